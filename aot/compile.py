"""One job from graph to library, or from the cache."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from . import environment, inductor, sizes
from .fingerprint import fingerprint
from .job_cache import FinishedJob, JobCache
from .partition import Partitioned
from .plan import Job
from .sizes import Names
from .writing import writing

_ROOM: Final = "set TCBUILD_CACHE and TMPDIR to folders with room for what is compiled"


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A finished job, and whether it was found in the cache."""

    job: FinishedJob
    cached: bool


def compile_job(
    job: Job,
    partitioned: Partitioned,
    tensors: tuple[torch.Tensor, ...],
    cache: JobCache,
    options: Mapping[str, object],
) -> Compiled:
    """Compile a forward graph.

    Args:
        job: what it is for.
        partitioned: the graph; all that is read of it is its graph and its names.
        tensors: the example call's, and the state's.
        cache: where finished jobs are looked up and kept.
        options: of Inductor, beyond those of every build.

    Raises:
        CompileError: compilation failed.
        CaptureError: the compiler needs more of the sizes than most of the bucket gives.
        OutputError: the cache or the folder for temporary files cannot be written to.
    """
    key = key_of(job, partitioned, tensors, options)
    with writing(cache.path, tip=_ROOM):
        found = cache.get(key)
        if found is not None:
            return Compiled(job=found, cached=True)
        with tempfile.TemporaryDirectory(prefix="tcbuild-") as folder:
            made = inductor.compile_graph(
                partitioned.graph, tensors, job.target, Path(folder), cache.path, options, job.id
            )
        names = Names(partitioned.names, job.id)
        relations = sizes.relations(partitioned.graph.graph, job.bucket, names, job.id)
        compiled = FinishedJob(library=made, relations=relations)
        cache.put(key, compiled)
    return Compiled(job=compiled, cached=False)


def key_of(
    job: Job,
    partitioned: Partitioned,
    tensors: tuple[torch.Tensor, ...],
    options: Mapping[str, object],
) -> str:
    """Return the key of a job in the cache, for the same arguments as `compile_job`."""
    return fingerprint(
        partitioned.graph,
        tensors,
        partitioned.names,
        environment.describe(job.target),
        inductor.describe_options(job.target, options),
    )
