"""Our side of a process that climbs rungs: it may crash or hang, and is then ended, and said to have."""

import json
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from .. import own_process, source_line
from .kinds import CRASHES, HANGS

_POLL: Final = 0.2  # seconds
_FRAME: Final = re.compile(r'^\s+File "(.+)", line (\d+) in (\S+)', re.MULTILINE)

Tick = Callable[[float, int], None]


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What came of a request.

    Attributes:
        kind: "" where all is well; else one of kinds.py.
        said: what is wrong, in words.
        seconds: that it took.
        peak: bytes of memory that the process had at most.
        record: all that it answered.
    """

    kind: str
    said: str = ""
    seconds: float = 0.0
    peak: int = 0
    record: dict[str, Any] = field(default_factory=dict)


class Hand:
    """A process, started by the first request, and anew by the first after it was lost."""

    def __init__(self, spec: Path, job: str, folder: Path, cache: Path, seconds: float) -> None:
        self._command = own_process.command("aot.diagnose.worker", str(spec), job)
        self._folder = folder
        self._cache = cache
        self._seconds = seconds
        self._count = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Hand":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def ask(self, request: dict[str, Any], tick: Tick = lambda seconds, peak: None) -> Reply:
        """Send a request and wait for what comes of it.

        Args:
            request: see worker.py.
            tick: told the seconds so far and the peak of memory in bytes, a few times a second.
        """
        began, peak = time.monotonic(), 0
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        line = b""
        try:
            text = json.dumps({**request, "seconds": self._seconds})
            process.stdin.write(f"{text}\n".encode())
            process.stdin.flush()
            while True:
                ready, _, _ = select.select([process.stdout], [], [], _POLL)
                peak = max(peak, _peak(process.pid))
                seconds = time.monotonic() - began
                tick(seconds, peak)
                if ready:
                    line = process.stdout.readline()
                    break
                if seconds > self._seconds:
                    return self._lost(HANGS, f"no answer within {self._seconds:g} s", began, peak)
        except OSError:
            pass
        if not line:
            process.wait()
            code = process.returncode
            name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            return self._lost(CRASHES, f"the process ended with {name}", began, peak)
        record = json.loads(line)
        return Reply(
            kind=record.get("kind", ""),
            said=record.get("said", ""),
            seconds=time.monotonic() - began,
            peak=peak,
            record=record,
        )

    def _start(self) -> "subprocess.Popen[bytes]":
        self._count += 1
        self._place = self._folder / f"process-{self._count}"
        self._place.mkdir(parents=True)
        environment = anew(self._cache)
        with (self._place / "said").open("wb") as said:
            self._process = subprocess.Popen(
                [*self._command, str(self._place)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                start_new_session=True,
            )
        return self._process

    def _lost(self, kind: str, said: str, began: float, peak: int) -> Reply:
        self._end()
        record: dict[str, Any] = {"kind": kind, "line": _users_line(self._place / "trace")}
        at = self._place / "at"
        if at.exists():
            record["node"] = int(at.read_text(encoding="utf-8") or 0)
        return Reply(
            kind=kind, said=said, seconds=time.monotonic() - began, peak=peak, record=record
        )

    def _end(self) -> None:
        if self._process is not None:
            own_process.end(self._process)
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None and not pipe.closed:
                    try:
                        pipe.close()
                    except OSError:  # what was not sent is not wanted any more
                        continue
        self._process = None


def anew(cache: Path) -> dict[str, str]:
    """Return an environment in which no graph or kernel that was compiled earlier hides what is compiled now.

    Args:
        cache: a folder that begins empty with the diagnosis. Graphs are in no cache at all, since their keys do
            not know of a lowering that was changed; what is shared by its processes is C++, by its text.
    """
    return {
        **own_process.environment(),
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
    }


def _users_line(trace: Path) -> str:
    """Return the innermost line of the user's own among the frames of a process that is no more."""
    for file, number, name in _FRAME.findall(trace.read_text(encoding="utf-8", errors="replace")):
        if source_line.is_users(file) and not file.startswith(("<", "/usr/lib")):
            return f"{file}:{number} in {name}"
    return ""


def _peak(pid: int) -> int:
    """Return the bytes of memory that a process had at most; 0 where the system does not say."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0
