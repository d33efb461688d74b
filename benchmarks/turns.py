"""Processes that stay and answer when asked, so that ways of theirs take turns; one that fails costs itself."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

from measure import ROOT, Row

TAIL: Final = 300  # characters of what a failed process said last


class LostError(Exception):
    """A process that has ended, failed or not answered; the text says how."""


class Player:
    """A script of this folder in a process of its own: a line of JSON asks, a line of JSON answers."""

    def __init__(
        self, script: str, request: Mapping[str, object], environment: Mapping[str, str]
    ) -> None:
        """Start it.

        Args:
            script: it calls `answering` and `asked`.
            request: its first line.
            environment: beyond that of this process.
        """
        paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        path = os.pathsep.join(filter(None, paths))
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 -- it ends with the process
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name(script)), json.dumps(request)],
            env={**os.environ, "PYTHONPATH": path, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            start_new_session=True,
        )

    def __enter__(self) -> "Player":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def ask(self, question: object, limit: float) -> Row:
        """Ask; return the answer.

        Args:
            question: anything that JSON has.
            limit: seconds until the answer.

        Raises:
            LostError: there is none.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise LostError(self._how()) from None
        return self.answer(limit)

    def answer(self, limit: float) -> Row:
        """Return the next answer.

        Raises:
            LostError: it does not come within the limit, in seconds, or is that the question failed.
        """
        assert self._process.stdout is not None
        end, line = time.monotonic() + limit, b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._process.stdout], [], [], end - time.monotonic())
            if not ready:
                self.end()
                raise LostError(f"no answer within {limit:.0f} s")
            part = os.read(self._process.stdout.fileno(), 1 << 16)
            if not part:
                raise LostError(self._how())
            line += part
        made: Row = json.loads(line)
        if "failed" in made:
            raise LostError(made["failed"])
        return made

    def said(self) -> str:
        """Return what it has written to stderr."""
        self._said.seek(0)
        return self._said.read().decode(errors="replace")

    def end(self) -> None:
        """End it and all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _how(self) -> str:
        code = self._process.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        last = (self.said().strip().splitlines() or ["no output"])[-1]
        return f"ended with {how}: {last[:TAIL]}"


class Answers:
    """The script's side: what libraries print goes to stderr, answers go where they are read."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def give(self, row: Mapping[str, object]) -> None:
        """Answer."""
        self._out.write(json.dumps(row) + "\n")
        self._out.flush()

    def fail(self, error: BaseException) -> None:
        """Answer that it failed."""
        said = " ".join(str(error).split()) or "no message"
        self.give({"failed": f"{type(error).__name__}: {said}"[:TAIL]})


def questions() -> Iterator[Any]:
    """Yield what is asked, until nobody asks any more."""
    for line in sys.stdin:
        yield json.loads(line)
