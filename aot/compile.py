"""One job from graph to library, or from the cache."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from ..formats.target import Target
from . import environment, inductor
from .fingerprint import fingerprint
from .job_cache import FinishedJob, JobCache
from .partition import Partitioned
from .writing import writing

_ROOM: Final = "set TCBUILD_CACHE and TMPDIR to folders with room for what is compiled"


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A finished job, and whether it was found in the cache."""

    job: FinishedJob
    cached: bool


def compile_job(
    partitioned: Partitioned,
    tensors: tuple[torch.Tensor, ...],
    target: Target,
    cache: JobCache,
    extra: Mapping[str, object],
    relations: Callable[[], tuple[str, ...]],
    where: str,
) -> Compiled:
    """Compile a forward graph.

    Args:
        partitioned: the graph.
        tensors: the example call's.
        target: what to compile for.
        extra: options of Inductor that the spec asks for.
        cache: where finished jobs are looked up and kept.
        relations: says what the sizes must satisfy for the graph; asked after the compilation, which
            may add to it.
        where: the job's identifier, for messages.

    Raises:
        CompileError: compilation failed.
        OutputError: the cache or the folder for temporary files cannot be written to.
    """
    options = inductor.describe_options(target, extra)
    key = fingerprint(
        partitioned.graph, tensors, partitioned.names, environment.describe(target), options
    )
    with writing(cache.path, tip=_ROOM):
        found = cache.get(key)
        if found is not None:
            return Compiled(job=found, cached=True)
        with tempfile.TemporaryDirectory(prefix="tcbuild-") as folder:
            made = inductor.compile_graph(
                partitioned.graph, tensors, target, Path(folder), cache.path, extra, where
            )
        compiled = FinishedJob(library=made, relations=relations())
        cache.put(key, compiled)
    return Compiled(job=compiled, cached=False)
