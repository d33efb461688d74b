"""Candidates compiled beside each other, each in a process of its own, into the job cache."""

import time
from collections.abc import Sequence
from typing import Final

import torch

from ...formats.errors import TcbuildError
from .. import processors
from ..candidate import Candidate
from ..compile import Compiled, compile_job
from ..compile_apart import UNCARRIED, compile_apart
from ..job_cache import JobCache
from ..partition import Partitioned
from ..plan import Job
from .standings import Standings

MEMORY: Final = 0.5  # of what is free on the device, for the weights of all that compile at once


def compile_all(
    job: Job,
    partitioned: Partitioned,
    tensors: tuple[torch.Tensor, ...],
    offered: Sequence[Candidate],
    keys: Sequence[str],
    cache: JobCache,
    seconds: float,
    standings: Standings,
) -> tuple[dict[str, Compiled], dict[str, str]]:
    """Return the candidates that compile, and why the others do not, by name.

    Args:
        job, partitioned, tensors, cache: as for `compile_job`.
        offered: what to compile; the first in any case.
        keys: of each, in the cache.
        seconds: that it may take.
        standings: told of each.

    Raises:
        TcbuildError: none does; what the first one said.
    """
    missing = []
    for one, key in zip(offered, keys, strict=True):
        if cache.get(key) is None:
            missing.append(one)
        else:
            standings.compiled(one.name)
    failed: dict[str, str] = {}
    if len(missing) > 1:
        failed = compile_apart(
            job,
            partitioned,
            tensors,
            missing,
            cache,
            seconds=seconds,
            workers=_workers(partitioned, job, len(missing)),
            began=standings.compiling,
            ended=standings.compiled,
        )
    made: dict[str, Compiled] = {}
    errors: list[TcbuildError] = []
    new = {one.name for one in missing}
    began = time.monotonic()
    for one, key in zip(offered, keys, strict=True):
        here = failed.get(one.name) == UNCARRIED or (one.name in new and one.name not in failed)
        found = cache.get(key)
        if found is not None:
            made[one.name] = Compiled(job=found, cached=one.name not in new)
        elif one is offered[0] or (here and time.monotonic() - began < seconds):
            standings.compiling(one.name)
            try:
                made[one.name] = compile_job(job, partitioned, tensors, cache, one.options)
                failed.pop(one.name, None)
            except TcbuildError as error:
                errors.append(error)
                failed[one.name] = str(error).splitlines()[0]
        elif here:
            failed[one.name] = "not compiled: the time for the search was over"
        if one.name in made:
            standings.compiled(one.name)
        else:
            standings.out(one.name, failed[one.name])
    if not made:
        raise errors[0]
    return made, failed


def _workers(partitioned: Partitioned, job: Job, most: int) -> int:
    """Return how many may compile at once: each makes weights of its own, as far as they are used."""
    workers = min(most, max(1, processors.count() // 2))
    if job.target.device == "cuda":
        held = sum(t.numel() * t.element_size() for t in partitioned.weights.values())
        free, _ = torch.cuda.mem_get_info()
        workers = min(workers, max(1, int(MEMORY * free / max(1, held))))
    return workers
