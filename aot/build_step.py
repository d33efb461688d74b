"""One training step from the spec to a part of the artifact: capture, cut, compile both graphs."""

import torch

from . import sizes
from .build_job import BuiltJob
from .candidate import Candidate
from .capture import capture
from .compile import compile_job
from .job_cache import JobCache
from .plan import Job
from .progress import Watch
from .report import JobReport
from .spec import Spec
from .step_graphs import step_graphs
from .step_part import step_part
from .training import Training
from .weight_table import WeightTable


def build_step(
    spec: Spec,
    module: torch.nn.Module,
    job: Job,
    weights: WeightTable,
    cache: JobCache,
    watch: Watch,
) -> BuiltJob:
    """Build a training step.

    Args:
        spec: of the model.
        module: the model, on the job's kind of device.
        job: what to build.
        weights: of the artifact; gets those that the step takes.
        cache: of finished jobs.
        watch: told of each stage.

    Raises:
        TcbuildError: one of the classes of errors.py, by stage.
    """
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
