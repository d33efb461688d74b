"""Processes that compile jobs, each one job after the other; one that is lost is replaced, its job done again.

What they make is in the job cache. Ours asks for it there by the job's key: a graph that did not survive
the way to another process has another one, and is compiled here.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

import torch

from ..formats.errors import TcbuildError
from . import carried, own_process, processors
from .errors import CompileError, record_of, recorded
from .order import Order

TRIES: Final = 3  # processes that a job may cost: the first, and others in its place
MEMORY: Final = 1.5e9  # bytes that a compilation needs: torch, a graph, and the C++ compiler
GPU_SHARE: Final = 0.5  # of what is free on the GPU, for all processes together
GPU_CONTEXT: Final = 1 << 29  # bytes that a process takes of it by being there


@dataclass(frozen=True, kw_only=True)
class Done:
    """What a compilation came to: the seconds it took, and the error that ended it, if one did."""

    seconds: float
    error: TcbuildError | None = None


class Crew:
    """Some processes, started when they are needed, and ended with the block."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._count = 0
        self._local = threading.local()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> "Crew":
        self._folder = tempfile.TemporaryDirectory(prefix="tcbuild-")
        self._threads = ThreadPoolExecutor(self._workers)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            running, self._running = self._running, set()
            self._workers = 0
        for process in running:
            own_process.end(process)
        self._threads.shutdown(wait=True)
        for process in running:
            _close(process)
        self._folder.cleanup()

    def begin(
        self, order: Order, graph: torch.fx.GraphModule, tensors: Sequence[torch.Tensor]
    ) -> "Future[Done] | None":
        """Let an order be compiled; None where its graph cannot be carried to another process."""
        self._count += 1
        place = Path(self._folder.name) / str(self._count)
        place.mkdir()
        try:
            carried.dump(graph, tuple(tensors), place / "graph")
        except Exception:  # torch says in many ways that it cannot
            return None
        order.write(place / "order")
        return self._threads.submit(self._run, order.job.id, place)

    def _run(self, job: str, place: Path) -> Done:
        """Have one order compiled by this thread's process."""
        ended = ""
        for _ in range(TRIES):
            process = self._process()
            if process is None:
                break
            began = time.monotonic()
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(f"{place}\n".encode())
                process.stdin.flush()
                if process.stdout.readline():
                    seconds = time.monotonic() - began
                    return Done(seconds=seconds, error=_error(job, place))
            except OSError:
                pass
            self._local.process = None
            with self._lock:
                if process not in self._running:  # the block has ended
                    break
                self._running.discard(process)
            own_process.end(process)
            ended = _ended(process.returncode)
            _close(process)
        error = CompileError(
            job,
            found=f"a compiler's process that ended with {ended}, {TRIES} times",
            expected="a library",
        )
        return Done(seconds=0.0, error=error)

    def _process(self) -> "subprocess.Popen[bytes] | None":
        """Return this thread's process; None where the block has ended."""
        process: subprocess.Popen[bytes] | None = getattr(self._local, "process", None)
        if process is not None:
            return process
        with self._lock:
            if not self._workers:
                return None
            threads = max(1, processors.count() // self._workers)
            environment = {
                "TORCHINDUCTOR_COMPILE_THREADS": str(threads),
                **own_process.environment(),
            }
            process = subprocess.Popen(
                own_process.command("aot.crew"),
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._running.add(process)
        self._local.process = process
        return process


def size(jobs: int, on_gpu: int = 0) -> int:
    """Return how many processes compile so many jobs: as processors and memory allow, at least 1.

    Args:
        jobs: that there are.
        on_gpu: bytes of a GPU's memory that each process takes: the weights, by their forms.
    """
    most = min(jobs, processors.count(), int(_free() / MEMORY))
    if on_gpu:
        free, _ = torch.cuda.mem_get_info()
        most = min(most, int(GPU_SHARE * free / (on_gpu + GPU_CONTEXT)))
    return max(1, most)


def _free() -> float:
    """Return how many bytes of memory are free, as far as the system says; else as many as are needed."""
    found = [float("inf")]
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        line = next(line for line in lines if line.startswith("MemAvailable:"))
        found.append(int(line.split()[1]) * 1024.0)
    with contextlib.suppress(OSError, ValueError):
        limits = Path("/sys/fs/cgroup")
        most = int((limits / "memory.max").read_text(encoding="utf-8"))
        used = int((limits / "memory.current").read_text(encoding="utf-8"))
        found.append(float(most - used))
    free = min(found)
    return free if free != float("inf") else MEMORY * processors.count()


def _close(process: "subprocess.Popen[bytes]") -> None:
    """Close the pipes to a process that has ended."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _ended(code: int | None) -> str:
    if code is not None and code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"


def _error(job: str, place: Path) -> TcbuildError | None:
    """Return the error that an order has ended with."""
    try:
        record: dict[str, str] = json.loads((place / "failed").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return recorded(record, job)


def main() -> int:
    """Compile the orders whose folders are named on stdin, and answer each with a line."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what compilers print is no answer
    for line in sys.stdin:
        place = Path(line.rstrip("\n"))
        try:
            Order.read(place / "order").run(place / "graph")
        except Exception as error:
            (place / "failed").write_text(json.dumps(record_of(error)), encoding="utf-8")
        answers.write("done\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
