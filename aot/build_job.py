"""One job from the spec to a part of the artifact: capture, partition, compile or tune."""

from dataclasses import dataclass

import torch

from . import sizes
from .candidate import Candidate
from .capture import capture
from .compile import compile_job
from .job_cache import JobCache
from .library_part import library_part
from .package import Part
from .padding import padding
from .partition import partition
from .plan import Job
from .progress import Watch
from .report import JobReport
from .spec import MAX_AUTOTUNE, Spec
from .step_graphs import step_graphs
from .step_part import step_part
from .training import Training
from .tuning import tune
from .verify import Inputs
from .weight_table import WeightTable


@dataclass(frozen=True, kw_only=True)
class BuiltJob:
    """What a job has come to: the part, how it was compiled, and the report."""

    part: Part
    candidate: Candidate
    report: JobReport


def build_job(
    spec: Spec,
    module: torch.nn.Module,
    job: Job,
    inputs: Inputs,
    weights: WeightTable,
    cache: JobCache,
    watch: Watch,
    seconds: float,
) -> BuiltJob:
    """Build one job.

    Args:
        spec: of the model.
        module: the model, on the job's kind of device.
        job: what to build.
        inputs: makes calls of the module.
        weights: of the artifact; gets those that the job needs.
        cache: of finished jobs.
        watch: told of each stage.
        seconds: that a search for fast code may take.

    Raises:
        TcbuildError: one of the classes of errors.py, by stage.
    """
    if job.mode.step:
        return _build_step(spec, module, job, weights, cache, watch)
    with watch.stage("capture"):
        captured = capture(
            spec, module, job.bucket, job.id, job.choices, job.target.device, job.mode
        )
        names = sizes.Names.of(captured, job.id)
        sizes.relations(captured.program.graph, job.bucket, names, job.id)
        partitioned = partition(captured, names, job.id)
        padded = padding(spec, module, job, partitioned)
    if spec.mode == MAX_AUTOTUNE:
        with watch.stage("tune") as said:
            tuned = tune(spec, module, job, captured, partitioned, padded, inputs, cache, seconds)
            said.append("cached" if tuned.cached else tuned.words)
        candidate, compiled, trials = tuned.candidate, tuned.compiled, tuned.trials
    else:
        candidate, trials = Candidate.of(spec, job.target), ()
        with watch.stage("compile") as said:
            tensors = (*captured.tensors, *partitioned.state_tensors())
            compiled = compile_job(job, partitioned, tensors, cache, candidate.options)
            said.append("cached" if compiled.cached else "")
    part = library_part(
        spec, job, captured, partitioned, compiled, candidate, weights, padded, trials
    )
    report = JobReport(
        id=job.id,
        compiled=not compiled.cached,
        seconds=dict(watch.seconds),
        library_bytes=sum(map(len, part.files.values())),
        relations=compiled.job.relations,
        trials=trials,
    )
    return BuiltJob(part=part, candidate=candidate, report=report)


def _build_step(
    spec: Spec,
    module: torch.nn.Module,
    job: Job,
    weights: WeightTable,
    cache: JobCache,
    watch: Watch,
) -> BuiltJob:
    """Build a training step: its forward and its backward."""
    with watch.stage("capture"):
        captured = capture(
            spec, module, job.bucket, job.id, job.choices, job.target.device, job.mode
        )
        names = sizes.Names.of(captured, job.id)
        graphs = step_graphs(captured, names, spec.step or Training(), job.id)
        sizes.relations(graphs.forward.graph.graph, job.bucket, names, job.id)
    candidate = Candidate.of(spec, job.target)
    with watch.stage("compile") as said:
        forward, backward = (
            compile_job(job, half, half.inputs(), cache, candidate.options)
            for half in (graphs.forward, graphs.backward)
        )
        cached = forward.cached and backward.cached
        said.append("cached" if cached else "")
    part = step_part(job, captured, graphs, forward, backward, candidate, weights)
    report = JobReport(
        id=job.id,
        compiled=not cached,
        seconds=dict(watch.seconds),
        library_bytes=sum(map(len, part.files.values())),
        relations=tuple(dict.fromkeys((*forward.job.relations, *backward.job.relations))),
        cuts=graphs.cuts,
    )
    return BuiltJob(part=part, candidate=candidate, report=report)
