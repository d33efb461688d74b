"""What a process is to compile: a pure function of a graph and of what is said here."""

import contextlib
import fcntl
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..formats.provider import bring_in
from . import carried, inductor, measuring, operators
from .candidate import Candidate
from .compile import compile_job
from .job_cache import JobCache
from .partition import Partitioned
from .plan import Job
from .shared_cache import SharedCache


@dataclass(frozen=True, kw_only=True)
class Order:
    """A job and a way to compile it, besides the graph.

    Attributes:
        job: what it is for.
        names: the dimension that each symbol of the graph stands for.
        options: of Inductor, beyond those of every build.
        cache, jobs, shared: the job cache that the library is put into.
        imports: the files of the modules that register the graph's operators.
        lock: of measurements on the device.
        settings: of torch, which compiled code depends on.
    """

    job: Job
    names: Mapping[str, str]
    options: Mapping[str, object]
    cache: Path
    jobs: Path
    shared: str | None
    imports: Mapping[str, str]
    lock: Path
    settings: Mapping[str, Any]

    @classmethod
    def of(
        cls, job: Job, partitioned: Partitioned, candidate: Candidate, cache: JobCache
    ) -> "Order":
        """Return the order to compile a job in this process's settings."""
        return cls(
            job=job,
            names=dict(partitioned.names),
            options=dict(candidate.options),
            cache=cache.path,
            jobs=cache.jobs,
            shared=cache.shared.url if cache.shared is not None else None,
            imports=operators.files(),
            lock=measuring.lock(job.target),
            settings={
                "dtype": torch.get_default_dtype(),
                "deterministic": torch.are_deterministic_algorithms_enabled(),
                "precision": torch.get_float32_matmul_precision(),
            },
        )

    def write(self, path: Path) -> None:
        """Write it for another process of ours."""
        path.write_bytes(pickle.dumps(self))

    @classmethod
    def read(cls, path: Path) -> "Order":
        """Read what `write` has written."""
        order: Order = pickle.loads(path.read_bytes())
        return order

    def run(self, graph: Path) -> None:
        """Compile the graph that `carried.dump` has written into the job cache.

        Raises:
            Exception: of any class: of `compile_job`, or torch cannot put the graph together.
        """
        torch.set_default_dtype(self.settings["dtype"])
        torch.use_deterministic_algorithms(self.settings["deterministic"])
        torch.set_float32_matmul_precision(self.settings["precision"])
        bring_in(self.imports)
        module, tensors = carried.load(graph)
        # Of the rest nothing is read: see compile_job.
        partitioned = Partitioned(
            graph=module,
            constants={},
            state=(),
            written=(),
            weights={},
            roles={},
            operators={},
            outputs=None,  # type: ignore[arg-type]
            names=self.names,
        )
        shared = SharedCache(self.shared) if self.shared else None
        cache = JobCache(self.cache, shared, self.jobs)
        with _alone(self.lock):
            compile_job(self.job, partitioned, tensors, cache, self.options)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Let the compiler measure kernels on a GPU only while no other process of a build measures."""

    @contextlib.contextmanager
    def lock() -> Iterator[None]:
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    with inductor.measuring(lock):
        yield
