"""The candidates of one job: compiled beside each other, timed in turn, the fastest that is right kept."""

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import torch

from ...formats.errors import TcbuildError
from ...formats.trial import Trial
from .. import graph_source
from ..candidate import Candidate
from ..capture import Captured
from ..compile import Compiled, compile_job, key_of
from ..job_cache import JobCache
from ..padding import Padding
from ..partition import Partitioned
from ..plan import Job
from ..report import CACHED, MEASURED, REUSED
from ..spec import Spec
from ..verify import Inputs
from . import trials
from .candidates import candidates
from .compiled import compile_all
from .earlier import EarlierTuning, Form
from .entrants import Entrants
from .record import TuningRecord
from .standings import Standings, Tell, unheard
from .trials import CLOSE, name_of

__all__ = ["CLOSE", "Tuned", "tune"]

TIMING: Final = 20.0  # seconds of timing at most, for one job


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What a search has come to.

    Attributes:
        candidate: the fastest that is right.
        compiled: by it.
        trials: of all.
        origin: where they come from: "measured" now, "cached", or "reused" from another artifact.
    """

    candidate: Candidate
    compiled: Compiled
    trials: tuple[Trial, ...]
    origin: str = MEASURED

    @property
    def words(self) -> str:
        """What was chosen, in a few words: `descent with CUDA graphs, 1.31x of default`."""
        if self.origin != MEASURED:
            return self.origin
        chosen = next((trial for trial in self.trials if trial.chosen), None)
        if chosen is None:
            return f"{self.candidate.name}; none of {len(self.trials)} is right"
        plain = next((t.microseconds for t in self.trials if t.candidate == "default"), 0.0)
        gain = plain / chosen.microseconds if plain and chosen.microseconds else 0.0
        graphs = " with CUDA graphs" if chosen.cuda_graph else ""
        said = f"{chosen.candidate}{graphs}"
        return f"{said}, {gain:.2f}x of default" if gain else said


def tune(
    spec: Spec,
    module: torch.nn.Module,
    job: Job,
    captured: Captured,
    partitioned: Partitioned,
    padded: Padding | None,
    inputs: Inputs,
    cache: JobCache,
    seconds: float,
    earlier: EarlierTuning | None = None,
    tell: Tell = unheard,
) -> Tuned:
    """Find the fastest way to compile a job.

    Args:
        spec, module, job, captured, partitioned, padded: as for `library_part`.
        inputs: makes calls of the module, on which the fastest is held against eager.
        cache: of finished jobs, and of what was found before.
        seconds: that the search may take; the first candidate is compiled and checked in any case.
        earlier: choices that are made again, without a search, where it has one for the job.
        tell: is told how the candidates stand, as they are compiled and measured.

    Raises:
        CompileError: no candidate compiles.
        VerifyError: none that does is right.
        TuningError: the earlier choice does not fit the job.
    """
    began = time.monotonic()
    offered = candidates(spec, job.target, partitioned.graph)
    tensors = (*captured.tensors, *partitioned.state_tensors())
    again = None
    if earlier is not None:
        graph = _graph(job, partitioned, padded)
        form = Form.of(graph, captured.signature, partitioned)
        again = earlier.choice(job, form, offered, spec.compiler_options())
    if again is not None:
        candidate, before = again
        compiled = compile_job(job, partitioned, tensors, cache, candidate.options)
        return Tuned(candidate=candidate, compiled=compiled, trials=before, origin=REUSED)
    keys = [key_of(job, partitioned, tensors, candidate.options) for candidate in offered]
    names = ", ".join(candidate.name for candidate in offered)
    rule = f"tolerance {spec.tolerance} minutes {spec.tune.minutes} of {names}"
    record = TuningRecord(cache.path, job.target, keys, rule, cache.shared)
    known = record.read()
    if known:
        chosen = next(trial for trial in known if trial.chosen)
        named = next(one for one in offered if one.name == chosen.candidate)
        compiled = compile_job(job, partitioned, tensors, cache, named.options)
        candidate = replace(named, cuda_graph=chosen.cuda_graph)
        return Tuned(candidate=candidate, compiled=compiled, trials=known, origin=CACHED)
    standings = Standings(tell)
    made, failed = compile_all(job, partitioned, tensors, offered, keys, cache, seconds, standings)
    with tempfile.TemporaryDirectory(prefix="tcbuild-") as folder:
        entrants = Entrants(spec, job, captured, partitioned, padded, made, Path(folder))
        left = min(TIMING, max(1.0, seconds - (time.monotonic() - began)))
        found = entrants.contest(offered, left, standings)
        measured = trials.of(offered, job.target, spec.compiler_options(), failed, found)
        error: TcbuildError | None = None
        for index in trials.ranking(measured):
            trial = measured[index]
            candidate = next(one for one in offered if one.name == trial.candidate)
            candidate = replace(candidate, cuda_graph=trial.cuda_graph)
            try:
                problem = entrants.problem(candidate, module, inputs)
            except TcbuildError as raised:
                error, problem = raised, str(raised).splitlines()[0]
            if not problem:
                measured[index] = replace(trial, chosen=True)
                standings.chosen(name_of(trial.candidate, trial.cuda_graph))
                record.write(measured)
                compiled = made[candidate.name]
                return Tuned(candidate=candidate, compiled=compiled, trials=tuple(measured))
            measured[index] = replace(trial, problem=problem)
            standings.out(name_of(trial.candidate, trial.cuda_graph), problem)
    # Nothing is right: let the build go on with the compiler's own choice, and verification say why.
    if error is not None:
        raise error
    first = next(iter(made))
    candidate = next(one for one in offered if one.name == first)
    return Tuned(candidate=candidate, compiled=made[first], trials=tuple(measured))


def _graph(job: Job, partitioned: Partitioned, padded: Padding | None) -> str:
    """Return the graph that is compiled, as the artifact keeps it."""
    return padded.reference if padded else graph_source.write(partitioned.graph, job.id)
