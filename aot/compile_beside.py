"""The jobs of a plan, captured here one after the other, and compiled beside each other by a crew."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from . import crew
from .build_job import BuiltJob, Prepared, finish
from .candidate import Candidate
from .compile import compile_job, key_of
from .crew import Crew, Done
from .job_cache import JobCache
from .order import Order
from .plan import Job
from .spec import Spec
from .weight_table import WeightTable

AHEAD: Final = 2  # jobs that are captured and wait, for each process: their graphs take memory


@dataclass
class _Waiting:
    """A captured job. `here`: nobody else may compile it. `done` comes to be where a crew does."""

    prepared: Prepared
    candidate: Candidate
    missing: bool
    here: bool = False
    done: "Future[Done] | None" = None


def compile_beside(
    spec: Spec,
    prepared: Iterator[Prepared],
    jobs: Sequence[Job],
    weights: WeightTable,
    cache: JobCache,
) -> Iterator[BuiltJob]:
    """Compile jobs, as many at once as processors and memory allow; yield them in order.

    Args:
        spec: of the model.
        prepared: captures the next job when it is asked for it.
        jobs: these, at least one.
        weights: of the artifact; gets those that the jobs need.
        cache: of finished jobs.

    Raises:
        TcbuildError: of the first job that fails.
    """
    first = next(prepared)
    held = 0
    if any(job.target.device == "cuda" for job in jobs):
        held = sum(tensor.nbytes for tensor in first.partitioned.weights.values())
    workers = crew.size(len(jobs), held)
    waiting: deque[_Waiting] = deque()
    with Crew(workers) as hands:
        for one in chain([first], prepared):
            candidate = Candidate.of(spec, one.job.target)
            key = key_of(one.job, one.partitioned, one.tensors, candidate.options)
            missing = cache.get(key) is None
            waiting.append(_Waiting(prepared=one, candidate=candidate, missing=missing))
            # A single one is compiled here: a process costs seconds to start.
            new = [other for other in waiting if other.missing and not other.here]
            if workers > 1 and (len(new) > 1 or any(other.done for other in new)):
                for other in new:
                    _begin(hands, other, cache)
            while len(waiting) > AHEAD * workers or (waiting and not waiting[0].missing):
                yield _finished(spec, waiting.popleft(), weights, cache)
        while waiting:
            yield _finished(spec, waiting.popleft(), weights, cache)


def _begin(hands: Crew, one: _Waiting, cache: JobCache) -> None:
    if one.done is None:
        prepared = one.prepared
        order = Order.of(prepared.job, prepared.partitioned, one.candidate, cache)
        one.done = hands.begin(order, prepared.partitioned.graph, prepared.tensors)
        one.here = one.done is None
        if not one.here:
            prepared.watch.begin("compile")


def _finished(spec: Spec, one: _Waiting, weights: WeightTable, cache: JobCache) -> BuiltJob:
    prepared, done = one.prepared, None
    if one.done is not None:
        done = one.done.result()
        if done.error is not None:
            raise done.error
        prepared.watch.end("compile", done.seconds)
        compiled = compile_job(
            prepared.job, prepared.partitioned, prepared.tensors, cache, one.candidate.options
        )
        compiled = replace(compiled, cached=False)
    else:
        with prepared.watch.stage("compile") as said:
            compiled = compile_job(
                prepared.job, prepared.partitioned, prepared.tensors, cache, one.candidate.options
            )
            said.append("cached" if compiled.cached else "")
    return finish(spec, prepared, one.candidate, compiled, weights)
