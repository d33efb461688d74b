"""Calls that are padded up to a bucket: how the results are cut back, and what the padding may hold."""

from dataclasses import dataclass, replace
from itertools import zip_longest

import torch

from ..formats.bucket import Bucket, Range
from ..formats.expression import names as names_in
from ..formats.signature import DimLeaf, Node, TensorLeaf, ValueLeaf, walk
from . import graph_source, sizes
from .capture import capture
from .dims import Pad
from .errors import CaptureError
from .partition import Partitioned, partition
from .plan import Job
from .spec import Spec


@dataclass(frozen=True, kw_only=True)
class Padding:
    """What a variant needs to serve calls that are smaller than its bucket.

    Attributes:
        pad: the smallest size that is padded up, by dimension.
        fill: what the padding of an input holds, by path; where nothing is said, anything may.
        outputs: what a call returns, with sizes in terms of the padded dimensions.
        reference: the source of the graph for any of their sizes.
    """

    pad: dict[str, int]
    fill: dict[str, float]
    outputs: Node
    reference: str


def padding(
    spec: Spec, module: torch.nn.Module, job: Job, partitioned: Partitioned
) -> Padding | None:
    """Say how a job's variant is padded; None where the spec pads nothing.

    Raises:
        CaptureError: the results cannot be cut back to the call's size, or the model writes to
            something, which padding would make wrong.
    """
    policies = {name: dim for name, dim in spec.dims.items() if isinstance(dim, Pad)}
    if not policies:
        return None
    if partitioned.state or partitioned.written:
        raise CaptureError(
            job.id,
            found="a model that writes to its buffers or inputs",
            expected=f"one that does not, to pad {', '.join(policies)}",
            tip="use policy = 'dynamic' or 'specialize' for these dims",
        )
    ranges = {name: Range(min=2, max=max(dim.sizes)) for name, dim in policies.items()}
    bucket = Bucket(dims={**job.bucket.dims, **ranges})
    captured = capture(spec, module, bucket, job.id, job.choices, job.target.device, job.mode)
    names = sizes.Names.of(captured, job.id)
    sizes.relations(captured.program.graph, bucket, names, job.id)
    symbolic = partition(captured, names, job.id)
    if not _same_form(symbolic.outputs, partitioned.outputs):
        found = "results that are other tensors for other sizes"
        raise CaptureError(job.id, found=found, expected="the same for every size")
    for path, leaf in walk(symbolic.outputs, "output"):
        _refuse_uncut(path, leaf, set(policies), job.id)
    fill = {path: value for dim in policies.values() for path, value in dim.fill.items()}
    return Padding(
        pad={name: dim.min for name, dim in policies.items()},
        fill=fill,
        outputs=symbolic.outputs,
        reference=graph_source.write(symbolic.graph, job.id),
    )


def _refuse_uncut(path: str, leaf: Node, padded: set[str], where: str) -> None:
    """Refuse an output whose size is neither a padded dimension itself nor free of it."""
    expressions = leaf.shape if isinstance(leaf, TensorLeaf) else ()
    if isinstance(leaf, DimLeaf):
        expressions = (leaf.size,)
    for size in expressions:
        if isinstance(size, str) and size not in padded and names_in(size) & padded:
            raise CaptureError(
                f"{where}: {path}",
                found=f"a size of {size}",
                expected=f"{' or '.join(sorted(padded))} as it is, so that it can be cut back",
                tip="use policy = 'dynamic' or 'specialize' for this dim",
            )


def _same_form(one: Node, other: Node) -> bool:
    """Return whether two outputs are the same but for their sizes."""
    pairs = list(zip_longest(walk(one, ""), walk(other, ""), fillvalue=None))
    return all(
        first is not None
        and second is not None
        and first[0] == second[0]
        and _without_size(first[1]) == _without_size(second[1])
        for first, second in pairs
    )


def _without_size(leaf: Node) -> object:
    if isinstance(leaf, TensorLeaf):
        return replace(leaf, shape=())
    is_size = isinstance(leaf, DimLeaf) or (isinstance(leaf, ValueLeaf) and leaf.type == "int")
    return "a size" if is_size else leaf
