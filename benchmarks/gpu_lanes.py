"""Runs the cells of gpu.py in parallel, and each alone while it measures.

A cell says when it wants to measure (gpu_gate.py). Then all others are stopped, with the processes
that they started, and go on when it is done: SIGSTOP and SIGCONT to their process groups. Kernels
that a stopped process has queued get SETTLE to end: cells queue no more than a call, and all that
measures warms up first. The clock of a cell stands while it is stopped or waits.
"""

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import measure
from gpu_gate import ALONE, DONE, GO
from measure import Row

MINIMUM: Final = 5.0  # seconds; with less left, no cell is started
SETTLE: Final = 0.02  # seconds from the stop of the others to the start of what is measured
LINGER: Final = 0.01  # seconds that a cell stays alone after it is done: tuning soon asks again
LONGEST: Final = 60.0  # seconds that a cell may be alone
TICK: Final = 0.1
OUTPUT: Final = 4000  # characters of what a failed cell said
NO_TIME: Final = "no time left"

Key = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Task:
    """A process to run.

    Attributes:
        model: that it is about.
        way: what it does with it.
        script: of this folder.
        arguments: of the script; the path of the file for its row is added as the last.
        limit: seconds it may run.
        needs: what must have ended well before.
        after: what must have ended, however.
        gated: whether the script knows `--gate`.
    """

    model: str
    way: str
    script: str
    arguments: tuple[str, ...]
    limit: float
    needs: tuple[Key, ...] = ()
    after: tuple[Key, ...] = ()
    gated: bool = True

    @property
    def key(self) -> Key:
        """What names it."""
        return self.model, self.way


Ended = Callable[[Task, Row], Sequence[Task]]


@dataclass(kw_only=True)
class Cell:
    """A task's process.

    Attributes:
        task: that it does.
        process: and the leader of its group.
        ours: the runner's end of the socket.
        folder: of its row and of what it says.
        started: when.
        spent: seconds it has run, before `since`.
        since: when it went on; None while it is stopped or waits.
        asks: whether it waits to be alone.
        gone: whether it has ended, or soon will have.
    """

    task: Task
    process: "subprocess.Popen[bytes]"
    ours: socket.socket
    folder: "tempfile.TemporaryDirectory[str]"
    started: float
    spent: float = 0.0
    since: float | None = field(default_factory=time.monotonic)
    asks: bool = False
    gone: bool = False

    def seconds(self) -> float:
        """Return how long it has run."""
        return self.spent + (0.0 if self.since is None else time.monotonic() - self.since)

    def pause(self) -> None:
        """Stop the clock."""
        self.spent, self.since = self.seconds(), None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the cell and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def end(self) -> None:
        """End it and all that it started, whether stopped or not."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGKILL)
        self.process.wait()
        self.ours.close()

    def row(self, failed: str) -> Row:
        """Return the row it wrote; a crash becomes the row's."""
        folder = Path(self.folder.name)
        row: Row = {"seconds": self.seconds(), "started": self.started}
        with suppress(FileNotFoundError, json.JSONDecodeError):
            row.update(json.loads((folder / "row.json").read_text(encoding="utf-8")))
        output = (folder / "said").read_text(encoding="utf-8", errors="replace").strip()
        self.folder.cleanup()
        if failed and "failed" not in row:
            row["failed"] = f"{failed}: {(output.splitlines() or ['no output'])[-1]}"
        return {**row, "output": output[-OUTPUT:]} if "failed" in row else row


def environment(threads: int) -> dict[str, str]:
    """Return the environment of a cell, where Inductor compiles in so many processes."""
    paths = [str(measure.ROOT), str(measure.ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    added = {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "TORCHINDUCTOR_COMPILE_THREADS": str(threads),
    }
    return {**os.environ, **added}


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Turn the signals that end this process into an exception, so that it ends its cells."""

    def leave(number: int, _: object) -> None:
        sys.exit(128 + number)

    caught = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, leave) for number in caught]
    try:
        yield
    finally:
        for number, handler in zip(caught, before, strict=True):
            signal.signal(number, handler)


class Lanes:
    """Runs tasks, `jobs` at a time, until `end`.

    Attributes:
        jobs: how many processes there are at a time.
        cores: how many processors they have.
        end: when no time is left, on the monotonic clock.
    """

    def __init__(self, jobs: int, cores: int, end: float) -> None:
        self.jobs = jobs
        self.cores = cores
        self.end = end
        self._rows: dict[Key, Row] = {}
        self._cells: list[Cell] = []  # in the order they asked to be alone, those who did
        self._holder: Cell | None = None
        self._held = 0.0  # since when the holder is alone
        self._done: float | None = None  # since when it is done with that

    def run(self, tasks: Iterable[Task], ended: Ended) -> None:
        """Run tasks, the first first, and what `ended` returns when it is told of the row of one."""
        pending = list(tasks)

        def end(task: Task, row: Row) -> None:
            self._rows[task.key] = row
            pending[:0] = ended(task, row)

        with ended_by_signals(), selectors.DefaultSelector() as selector:
            try:
                while pending or self._cells:
                    self._start(pending, selector, end)
                    self._grant()
                    for key, _ in selector.select(self._patience()):
                        if not self._hear(key.data):
                            selector.unregister(key.fileobj)
                    self._reap(selector, end)
            finally:
                for cell in self._cells:
                    cell.end()
                    cell.folder.cleanup()
                self._cells, self._holder = [], None

    def _start(
        self,
        pending: list[Task],
        selector: selectors.BaseSelector,
        end: Callable[[Task, Row], None],
    ) -> None:
        """Start what there is room for, and refuse what cannot be done."""
        for task in list(pending):
            failed = [self._rows[key] for key in task.needs if "failed" in self._rows.get(key, {})]
            if time.monotonic() > self.end - MINIMUM:
                pending.remove(task)
                end(task, {"failed": NO_TIME})
            elif failed:
                pending.remove(task)
                end(task, {"failed": f"{task.needs[0][1]}: {failed[0]['failed']}"})
            elif self._holder is None and len(self._cells) < self.jobs:
                coming = {other.key for other in (*pending, *(cell.task for cell in self._cells))}
                if coming.isdisjoint((*task.needs, *task.after)):
                    pending.remove(task)
                    cell = self._launch(task)
                    self._cells.append(cell)
                    selector.register(cell.ours, selectors.EVENT_READ, cell)

    def _launch(self, task: Task) -> Cell:
        folder = tempfile.TemporaryDirectory(prefix="cell-")
        ours, theirs = socket.socketpair()
        path = str(Path(__file__).parent / task.script)
        gate = ["--gate", str(theirs.fileno())] if task.gated else []
        answer = str(Path(folder.name) / "row.json")
        threads = self.cores if self.jobs == 1 else max(1, self.cores // 2)
        # No pipe: a process that outlives its parent keeps it open.
        with theirs, (Path(folder.name) / "said").open("wb") as said:
            started = time.monotonic()
            process = subprocess.Popen(
                [sys.executable, path, *gate, *task.arguments, answer],
                env=environment(threads),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        return Cell(task=task, process=process, ours=ours, folder=folder, started=started)

    def _hear(self, cell: Cell) -> bool:
        """Take in what a cell says; return whether it may say more."""
        heard = b""
        with suppress(ConnectionResetError):
            heard = cell.ours.recv(64)
        cell.gone = not heard
        for said in heard:
            if said == DONE[0] and cell is self._holder:
                self._done = time.monotonic()
            elif said == ALONE[0]:
                cell.asks = True
                if cell is not self._holder:
                    cell.pause()
                    self._cells.remove(cell)
                    self._cells.append(cell)
        return not cell.gone

    def _grant(self) -> None:
        """Let the holder go on being alone, or else the cell that has asked first be it."""
        now = time.monotonic()
        if self._holder is not None:
            if self._holder.asks:
                self._go(self._holder)
            elif self._done is not None and now - self._done >= LINGER:
                self._release()
        if self._holder is None:
            asking = next((cell for cell in self._cells if cell.asks), None)
            if asking is not None:
                for cell in self._cells:
                    if cell is not asking:
                        cell.signal(signal.SIGSTOP)
                        if cell.since is not None:
                            cell.pause()
                time.sleep(SETTLE)
                self._holder, self._held = asking, time.monotonic()
                asking.since = self._held
                self._go(asking)

    def _go(self, cell: Cell) -> None:
        cell.asks, self._done = False, None
        with suppress(OSError):
            cell.ours.sendall(GO)

    def _release(self) -> None:
        """Let all go on."""
        self._holder, self._done = None, None
        for cell in self._cells:
            cell.signal(signal.SIGCONT)
            if cell.since is None and not cell.asks:
                cell.since = time.monotonic()

    def _patience(self) -> float:
        """Return how long nothing is to be done but to listen."""
        soon = self._done is not None or any(cell.gone for cell in self._cells)
        return LINGER if soon else TICK

    def _reap(self, selector: selectors.BaseSelector, end: Callable[[Task, Row], None]) -> None:
        """Take the rows of those that have ended, and end those that are over their limits."""
        now = time.monotonic()
        for cell in list(self._cells):
            code, failed = cell.process.poll(), ""
            if code is not None:
                failed = said_by(code)
            elif now > self.end:
                failed = NO_TIME
            elif cell.seconds() > cell.task.limit:
                failed = f"over {cell.task.limit:.0f} s"
            elif cell is self._holder and now - self._held > LONGEST and self._done is None:
                failed = f"over {LONGEST:.0f} s alone"
            else:
                continue
            if not cell.gone:
                selector.unregister(cell.ours)
            cell.end()
            self._cells.remove(cell)
            if cell is self._holder:
                self._release()
            end(cell.task, cell.row(failed))


def said_by(code: int) -> str:
    """Return what an exit code says went wrong, or nothing."""
    if code < 0:
        return f"crashed ({signal.Signals(-code).name})"
    return f"exit code {code}" if code else ""
