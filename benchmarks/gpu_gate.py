"""How a cell of gpu.py asks to be alone on the machine: to measure, or to let Inductor measure."""

import ctypes
import functools
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

ALONE: Final = b"a"  # the cell asks to be alone, and waits
GO: Final = b"g"  # the runner: it is
DONE: Final = b"d"  # the cell: the others may go on

_DEATH_SIGNAL: Final = 1  # PR_SET_PDEATHSIG


class Gate:
    """A cell's end of the socket to the runner; without one, the cell is alone anyway.

    Attributes:
        taken: how many times the cell was alone.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self.taken = 0
        self._socket: socket.socket | None = None
        self._lock = threading.RLock()
        self._depth = 0
        if descriptor is not None:
            self._socket = socket.socket(fileno=descriptor)
            os.set_inheritable(descriptor, False)  # the runner reads its end as the cell's
            ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)  # with the runner

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no other cell runs; none does until the end of the block."""
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                self.taken += 1
                self._ask()
            try:
                yield
            finally:
                self._depth -= 1
                if self._socket is not None and not self._depth:
                    self._socket.sendall(DONE)

    def _ask(self) -> None:
        if self._socket is not None:
            self._socket.sendall(ALONE)
            if self._socket.recv(1) != GO:
                os._exit(1)  # the runner has ended

    @contextmanager
    def tuning(self) -> Iterator[None]:
        """Let Inductor be alone whenever it measures a kernel, in the block and after it.

        All of its tuning goes through one method. Where this torch has no such method, the cell is
        alone for the whole block.
        """
        try:
            from torch._inductor.runtime import benchmarking

            kind: Any = type(benchmarking.benchmarker)
            inner = kind.benchmark_gpu
        except (ImportError, AttributeError):
            with self.alone():
                yield
            return
        if not hasattr(inner, "alone"):

            @functools.wraps(inner)
            def benchmark(*args: Any, **kwargs: Any) -> Any:
                with self.alone():
                    return inner(*args, **kwargs)

            benchmark.alone = True  # type: ignore[attr-defined]
            kind.benchmark_gpu = benchmark
        yield
