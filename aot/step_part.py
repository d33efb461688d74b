"""A compiled training step as a part of the artifact."""

from ..formats.variant import BACKWARD, STEP
from . import inductor
from .candidate import Candidate
from .capture import Captured
from .compile import Compiled
from .guards import call_guards
from .package import Part
from .plan import Job
from .step_graphs import StepGraphs
from .targets import host_guards
from .weight_table import WeightTable


def step_part(
    job: Job,
    captured: Captured,
    graphs: StepGraphs,
    forward: Compiled,
    backward: Compiled,
    candidate: Candidate,
    weights: WeightTable,
) -> Part:
    """Return the part; the weights that it takes are added to the table.

    Args:
        job, captured, graphs: the job, and what its stages have made.
        forward, backward: what the two graphs were compiled to.
        candidate: how.
        weights: of the artifact.
    """
    ahead, behind = forward.job.library.files, backward.job.library.files
    libraries = ahead["model.so"], behind["model.so"]
    flags = inductor.vector_flags(job.target)
    host = [guard for library in libraries for guard in host_guards(job.target, library, flags)]
    once = [guard for i, guard in enumerate(host) if guard not in host[:i]]
    relations = dict.fromkeys((*forward.job.relations, *backward.job.relations))
    guards = call_guards(
        captured.signature,
        job.bucket,
        relations,
        device=job.target.device,
        grad=True,
        training=captured.training,
        trained=graphs.step.trained,
    )
    constants = weights.add(graphs)
    step = weights.add_step(graphs, graphs.step)
    files = {**ahead, BACKWARD: behind["model.so"]}
    if "model.json" in behind:
        files["backward.json"] = behind["model.json"]
    return Part(
        id=job.id,
        form=STEP,
        signature=captured.signature,
        bucket=job.bucket,
        guards=(*once, *guards),
        outputs=graphs.outputs,
        files=files,
        constants=constants,
        step=step,
        operators={
            name: provider.module
            for name, provider in graphs.operators.items()
            if not provider.is_triton
        },
        target=job.target,
        device=job.target.device,
        options=inductor.describe_options(job.target, candidate.options),
    )
