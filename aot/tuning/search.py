"""The candidates of one job: compiled beside each other, timed in turn, the fastest that is right kept."""

import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import torch

from ...formats.errors import TcbuildError
from ...formats.trial import Trial
from .. import graph_source, operators, processors, trial_artifact
from ..candidate import Candidate
from ..capture import Captured
from ..compile import Compiled, compile_job, key_of
from ..compile_apart import UNCARRIED, compile_apart
from ..job_cache import JobCache
from ..library_part import library_part
from ..padding import Padding
from ..partition import Partitioned
from ..plan import Job
from ..spec import Spec
from ..verify import Inputs, verify
from ..weight_table import WeightTable
from . import contest
from .candidates import candidates
from .contest import Entry, Result
from .earlier import EarlierTuning, Form
from .record import TuningRecord

CLOSE: Final = 1.01  # as good as the fastest: the one that was named earlier is taken
MEASURED: Final = 20.0  # seconds of timing at most, for one job
MEMORY: Final = 0.5  # of what is free on the device, for the weights of all that compile at once


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What a search has come to.

    Attributes:
        candidate: the fastest that is right.
        compiled: by it.
        trials: of all.
        cached: whether they were made before.
    """

    candidate: Candidate
    compiled: Compiled
    trials: tuple[Trial, ...]
    cached: bool

    @property
    def words(self) -> str:
        """What was chosen, in a few words: `descent with CUDA graphs, 1.31x of default`."""
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
) -> Tuned:
    """Find the fastest way to compile a job.

    Args:
        spec, module, job, captured, partitioned, padded: as for `library_part`.
        inputs: makes calls of the module, on which the fastest is held against eager.
        cache: of finished jobs, and of what was found before.
        seconds: that the search may take; the first candidate is compiled and checked in any case.
        earlier: choices that are made again, without a search, where it has one for the job.

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
        again = earlier.choice(job, Form.of(graph, captured.signature, partitioned), offered)
    if again is not None:
        candidate, trials = again
        compiled = compile_job(job, partitioned, tensors, cache, candidate.options)
        return Tuned(candidate=candidate, compiled=compiled, trials=trials, cached=True)
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
        return Tuned(candidate=candidate, compiled=compiled, trials=known, cached=True)
    made, failed = _compile(job, partitioned, tensors, offered, keys, cache, seconds)
    with tempfile.TemporaryDirectory(prefix="tcbuild-") as folder:
        tried = _Tried(spec, job, captured, partitioned, padded, made, Path(folder))
        left = min(MEASURED, max(1.0, seconds - (time.monotonic() - began)))
        found = tried.contest(offered, left)
        measured = list(_trials(spec, job, offered, failed, found))
        error: TcbuildError | None = None
        for index in _ranking(measured):
            candidate = next(one for one in offered if one.name == measured[index].candidate)
            candidate = replace(candidate, cuda_graph=measured[index].cuda_graph)
            try:
                problem = tried.problem(candidate, module, inputs)
            except TcbuildError as raised:
                error, problem = raised, str(raised).splitlines()[0]
            if not problem:
                measured[index] = replace(measured[index], chosen=True)
                record.write(measured)
                compiled = made[candidate.name]
                return Tuned(
                    candidate=candidate, compiled=compiled, trials=tuple(measured), cached=False
                )
            measured[index] = replace(measured[index], problem=problem)
    # Nothing is right: let the build go on with the compiler's own choice, and verification say why.
    if error is not None:
        raise error
    first = next(iter(made))
    candidate = next(one for one in offered if one.name == first)
    return Tuned(candidate=candidate, compiled=made[first], trials=tuple(measured), cached=False)


def _graph(job: Job, partitioned: Partitioned, padded: Padding | None) -> str:
    """Return the graph that is compiled, as the artifact keeps it."""
    return padded.reference if padded else graph_source.write(partitioned.graph, job.id)


class _Tried:
    """The compiled candidates of a job, in artifacts that are not kept."""

    def __init__(
        self,
        spec: Spec,
        job: Job,
        captured: Captured,
        partitioned: Partitioned,
        padded: Padding | None,
        made: Mapping[str, Compiled],
        folder: Path,
    ) -> None:
        self._spec = spec
        self._job = job
        self._captured = captured
        self._partitioned = partitioned
        self._padded = padded
        self._made = made
        self._folder = folder

    def contest(self, offered: Sequence[Candidate], seconds: float) -> Result:
        """Time all of them, on CUDA with and without CUDA graphs."""
        device = self._job.target.device
        there = [one for one in offered if one.name in self._made]
        path = self._folder / "all.tcb"
        self._write(path, [replace(one, cuda_graph=device == "cuda") for one in there], apart=True)
        entries = [
            Entry(name=_name(one.name, graph), variant=self._id(one.name), cuda_graph=graph)
            for one in there
            for graph in ((False, True) if device == "cuda" else (False,))
        ]
        found = contest.run(path, self._captured.tensors, entries, self._job.target, seconds)
        path.unlink()
        return found

    def problem(self, candidate: Candidate, module: torch.nn.Module, inputs: Inputs) -> str:
        """Return what is wrong with the answers of a candidate, or nothing."""
        path = self._folder / "one.tcb"
        self._write(path, [candidate], apart=False)
        rows = verify(
            path,
            module=module,
            inputs=inputs,
            tolerance=self._spec.tolerance,
            imports=operators.files(),
            at=self._spec.example_sizes(self._job.bucket),
        )
        path.unlink()
        return next((f"{row.output}: {row.problem}" for row in rows if row.problem), "")

    def _write(self, path: Path, chosen: Sequence[Candidate], *, apart: bool) -> None:
        weights = WeightTable()
        parts = [
            library_part(
                self._spec,
                self._job,
                self._captured,
                self._partitioned,
                self._made[candidate.name],
                candidate,
                weights,
                self._padded,
            )
            for candidate in chosen
        ]
        if apart:
            parts = [
                replace(part, id=self._id(candidate.name))
                for part, candidate in zip(parts, chosen, strict=True)
            ]
        trial_artifact.write(path, self._spec, parts, weights, self._job.target)

    def _id(self, candidate: str) -> str:
        return f"{self._job.id} {candidate}"


def _compile(
    job: Job,
    partitioned: Partitioned,
    tensors: tuple[torch.Tensor, ...],
    offered: Sequence[Candidate],
    keys: Sequence[str],
    cache: JobCache,
    seconds: float,
) -> tuple[dict[str, Compiled], dict[str, str]]:
    """Return the candidates that compile, and why the others do not.

    Raises:
        TcbuildError: none does; what the first one said.
    """
    missing = [one for one, key in zip(offered, keys, strict=True) if cache.get(key) is None]
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
            try:
                made[one.name] = compile_job(job, partitioned, tensors, cache, one.options)
                failed.pop(one.name, None)
            except TcbuildError as error:
                errors.append(error)
                failed[one.name] = str(error).splitlines()[0]
        elif here:
            failed[one.name] = "not compiled: the time for the search was over"
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


def _trials(
    spec: Spec, job: Job, offered: Sequence[Candidate], failed: Mapping[str, str], found: Result
) -> Sequence[Trial]:
    common = spec.compiler_options()
    trials = []
    for one in offered:
        own = {name: str(v) for name, v in one.options.items() if name not in common}
        for graph in (False, True) if job.target.device == "cuda" else (False,):
            name = _name(one.name, graph)
            seconds = found.seconds.get(name, ())
            problem = failed.get(one.name) or found.problems.get(name, "")
            if one.name in failed and graph:
                continue
            trials.append(
                Trial(
                    candidate=one.name,
                    cuda_graph=graph,
                    microseconds=_rounded(statistics.median(seconds) * 1e6) if seconds else 0.0,
                    calls=len(seconds),
                    problem=problem,
                    options=own,
                )
            )
    return trials


def _ranking(trials: Sequence[Trial]) -> list[int]:
    """Return the indices of the trials that were timed, the best first."""
    timed = [i for i, trial in enumerate(trials) if trial.microseconds and not trial.problem]
    ranked: list[int] = []
    while timed:
        fastest = min(trials[i].microseconds for i in timed)
        best = next(i for i in timed if trials[i].microseconds <= CLOSE * fastest)
        ranked.append(best)
        timed.remove(best)
    return ranked


def _name(candidate: str, cuda_graph: bool) -> str:
    return f"{candidate} + CUDA graph" if cuda_graph else candidate


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
