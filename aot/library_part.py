"""A compiled job as a part of the artifact: its guards, its bytes, and the graph to hold it against."""

from ..formats.precision import BF16, IEEE
from ..formats.trial import Trial
from ..formats.variant import LIBRARY
from . import graph_source, inductor, rounding
from .candidate import Candidate
from .capture import Captured
from .compile import Compiled
from .guards import call_guards
from .package import Part
from .padding import Padding
from .partition import Partitioned
from .plan import Job
from .spec import Spec
from .targets import host_guards
from .weight_table import WeightTable


def library_part(
    spec: Spec,
    job: Job,
    captured: Captured,
    partitioned: Partitioned,
    compiled: Compiled,
    candidate: Candidate,
    weights: WeightTable,
    padded: Padding | None = None,
    trials: tuple[Trial, ...] = (),
) -> Part:
    """Return the part; the weights that it needs are added to the table.

    Args:
        spec: which modes of the model there are variants for.
        job, captured, partitioned, compiled: the job, and what its stages have made.
        candidate: how it was compiled.
        weights: of the artifact.
        padded: how smaller calls are padded, if they are.
        trials: what the search that has found the candidate measured.
    """
    files = compiled.job.library.files
    host = host_guards(
        job.target,
        files["model.so"],
        inductor.vector_flags(job.target),
        packed=bool(compiled.job.packed),
    )
    guards = call_guards(
        captured.signature,
        job.bucket,
        compiled.job.relations,
        written=partitioned.written,
        device=job.target.device,
        grad=job.mode.grad,
        training=captured.training if spec.trains() else None,
    )
    constants, packed = weights.add(partitioned), compiled.job.packed
    constants |= {slot: constants[one.slot] for slot, one in packed.items()}
    return Part(
        id=job.id,
        entry=job.entry,
        form=LIBRARY,
        signature=captured.signature,
        bucket=job.bucket,
        guards=(*host, *guards),
        outputs=padded.outputs if padded else partitioned.outputs,
        files=dict(files),
        constants=constants,
        packed={slot: one.packing for slot, one in packed.items()},
        fp32_precision=BF16 if rounding.asked(candidate.options) else IEEE,
        state=weights.add_state(partitioned),
        written=partitioned.written,
        operators=partitioned.providers(compiled=True),
        pad=padded.pad if padded else {},
        fill=padded.fill if padded else {},
        reference=padded.reference if padded else graph_source.write(partitioned.graph, job.id),
        target=job.target,
        device=job.target.device,
        cuda_graph=candidate.cuda_graph,
        options=inductor.describe_options(job.target, candidate.options),
        trials=trials,
    )
