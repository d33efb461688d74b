"""One job from graph to library, or from the cache."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import torch

from ..formats.target import Target
from . import environment, inductor, packing, sizes
from .fingerprint import fingerprint
from .hoist import hoist
from .job_cache import FinishedJob, JobCache
from .packing import Packer
from .plan import Job
from .sizes import Names
from .writing import writing

_ROOM: Final = "set TCBUILD_CACHE and TMPDIR to folders with room for what is compiled"


class Compilable(Protocol):
    """What can be compiled."""

    @property
    def graph(self) -> torch.fx.GraphModule:
        """Tensors to a tuple of tensors, with weights as attributes."""
        ...

    @property
    def names(self) -> Mapping[str, str]:
        """The dimension that each symbol of the graph stands for."""
        ...


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A finished job, and whether it was found in the cache."""

    job: FinishedJob
    cached: bool


def compile_job(
    job: Job,
    given: Compilable,
    tensors: tuple[torch.Tensor, ...],
    cache: JobCache,
    options: Mapping[str, object],
) -> Compiled:
    """Compile a graph.

    Args:
        job: what it is for.
        given: the graph.
        tensors: that it takes: real ones, or what is known of them.
        cache: where finished jobs are looked up and kept.
        options: of Inductor, beyond those of every build; and how to pack weights.

    Raises:
        CompileError: compilation failed.
        CaptureError: the compiler needs more of the sizes than most of the bucket gives.
        OutputError: the cache or the folder for temporary files cannot be written to.
    """
    key = key_of(job, given, tensors, options)
    with writing(cache.path, tip=_ROOM):
        found = cache.get(key)
        if found is not None:
            return Compiled(job=found, cached=True)
        with tempfile.TemporaryDirectory(prefix="tcbuild-") as folder:
            packer = packing.packer(options)
            made = inductor.compile_graph(
                given.graph,
                tensors,
                job.target,
                Path(folder),
                cache.path,
                packing.without(options),
                job.id,
                rewrite=_rewrite(job.target, packer),
            )
            packed = {} if packer is None else packer.taken(made.values, job.id)
        names = Names(given.names, job.id)
        relations = sizes.relations(given.graph.graph, job.bucket, names, job.id)
        compiled = FinishedJob(library=made, relations=relations, packed=packed)
        cache.put(key, compiled)
    return Compiled(job=compiled, cached=False)


def _rewrite(target: Target, packer: Packer | None) -> Callable[[torch.fx.Graph], None] | None:
    """Return what is done to a decomposed graph for a target."""
    if target.device != "cpu":
        return packer

    def rewrite(graph: torch.fx.Graph) -> None:
        hoist(graph)
        if packer is not None:
            packer(graph)

    return rewrite


def key_of(
    job: Job,
    given: Compilable,
    tensors: tuple[torch.Tensor, ...],
    options: Mapping[str, object],
) -> str:
    """Return the key of a job in the cache, for the same arguments as `compile_job`."""
    return fingerprint(
        given.graph,
        tensors,
        given.names,
        environment.describe(job.target),
        inductor.describe_options(job.target, options),
    )
