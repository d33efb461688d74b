"""One job from the spec to a part of the artifact: capture, partition, compile or tune."""

from dataclasses import dataclass

import torch

from . import sizes
from .candidate import Candidate
from .capture import Captured, capture
from .compile import Compiled
from .job_cache import JobCache
from .library_part import library_part
from .package import Part
from .padding import Padding, padding
from .partition import Partitioned, partition
from .plan import Job
from .progress import Watch
from .report import JobReport
from .spec import Spec
from .tuning import EarlierTuning, Tuned, tune
from .verify import Inputs
from .weight_table import WeightTable


@dataclass(frozen=True, kw_only=True)
class BuiltJob:
    """What a job has come to: the part, how it was compiled, and the report."""

    part: Part
    candidate: Candidate
    report: JobReport


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A job that is captured, and may be compiled."""

    job: Job
    captured: Captured
    partitioned: Partitioned
    padded: Padding | None
    watch: Watch

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """The example call's tensors, and the state's."""
        return (*self.captured.tensors, *self.partitioned.state_tensors())


def prepare(spec: Spec, module: torch.nn.Module, job: Job, watch: Watch) -> Prepared:
    """Capture a job.

    Args:
        spec: of the model.
        module: the model, on the job's kind of device.
        job: what to build.
        watch: told of the stage.

    Raises:
        TcbuildError: one of the classes of errors.py.
    """
    with watch.stage("capture"):
        captured = capture(
            spec, module, job.bucket, job.id, job.choices, job.target.device, job.mode
        )
        names = sizes.Names.of(captured, job.id)
        sizes.relations(captured.program.graph, job.bucket, names, job.id)
        partitioned = partition(captured, names, job.id)
        padded = padding(spec, module, job, partitioned)
    return Prepared(job=job, captured=captured, partitioned=partitioned, padded=padded, watch=watch)


def search(
    spec: Spec,
    module: torch.nn.Module,
    prepared: Prepared,
    inputs: Inputs,
    weights: WeightTable,
    cache: JobCache,
    seconds: float,
    earlier: EarlierTuning | None = None,
) -> BuiltJob:
    """Find the fastest way to compile a job.

    Args:
        spec, module: as for `prepare`.
        prepared: the job.
        inputs: makes calls of the module.
        weights: of the artifact; gets those that the job needs.
        cache: of finished jobs.
        seconds: that the search may take.
        earlier: choices that are made again without one.

    Raises:
        TcbuildError: one of the classes of errors.py, by stage.
    """
    job, captured = prepared.job, prepared.captured
    partitioned, padded = prepared.partitioned, prepared.padded
    with prepared.watch.stage("tune") as said:
        tuned = tune(
            spec,
            module,
            job,
            captured,
            partitioned,
            padded,
            inputs,
            cache,
            seconds,
            earlier,
            prepared.watch.stands,
        )
        said.append(tuned.words)
    return finish(spec, prepared, tuned.candidate, tuned.compiled, weights, tuned)


def finish(
    spec: Spec,
    prepared: Prepared,
    candidate: Candidate,
    compiled: Compiled,
    weights: WeightTable,
    tuned: Tuned | None = None,
) -> BuiltJob:
    """Return a compiled job as a part of the artifact."""
    trials = tuned.trials if tuned else ()
    part = library_part(
        spec,
        prepared.job,
        prepared.captured,
        prepared.partitioned,
        compiled,
        candidate,
        weights,
        prepared.padded,
        trials,
    )
    report = JobReport(
        id=prepared.job.id,
        compiled=not compiled.cached,
        seconds=dict(prepared.watch.seconds),
        library_bytes=sum(map(len, part.files.values())),
        relations=compiled.job.relations,
        trials=trials,
        tuning=tuned.origin if tuned else "",
    )
    return BuiltJob(part=part, candidate=candidate, report=report)
