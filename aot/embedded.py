"""The captured graph that an artifact carries for calls no compiled variant accepts.

It is captured for as many sizes as the model's code allows, whatever the spec's buckets are, and has
guards of its own: where it would not be right, the call is a miss without an answer.
"""

import torch

from ..formats.bucket import Bucket, Range
from ..formats.variant import GRAPH
from . import graph_source, sizes
from .capture import capture
from .errors import CaptureError
from .guards import call_guards
from .package import Part
from .partition import partition
from .spec import Spec
from .weight_table import WeightTable

ID = "embedded"


def embed(
    spec: Spec, module: torch.nn.Module, weights: WeightTable
) -> tuple[list[Part], list[str]]:
    """Return the embedded graph, or none and a note that says why."""
    anything = Bucket(dims={name: Range(min=2) for name in spec.dims})
    as_declared = Bucket(dims={name: _span(spec, name) for name in spec.dims})
    reason = None
    for bucket in dict.fromkeys((str(anything), str(as_declared))):
        chosen = anything if bucket == str(anything) else as_declared
        try:
            return [_part(spec, module, chosen, weights)], []
        except CaptureError as error:
            reason = error
    note = "no embedded graph: a call that no variant accepts needs a fallback module"
    return [], [f"{note} ({reason})"]


def _part(spec: Spec, module: torch.nn.Module, bucket: Bucket, weights: WeightTable) -> Part:
    captured = capture(spec, module, bucket, ID)
    names = sizes.Names(captured, ID)
    partitioned = partition(captured, names, ID)
    relations = sizes.relations(captured, names, ID, whole=False)
    source = graph_source.write(partitioned.graph, ID)
    return Part(
        id=ID,
        form=GRAPH,
        signature=captured.signature,
        bucket=bucket,
        guards=call_guards(
            captured.signature, bucket, relations, written=partitioned.written, graph=True
        ),
        outputs=partitioned.outputs,
        files={"graph.py": source.encode()},
        constants=weights.add(partitioned),
        state=weights.add_state(partitioned),
        written=partitioned.written,
        operators=partitioned.providers(),
        options={},
    )


def _span(spec: Spec, name: str) -> int | Range:
    """Return the whole of what the spec declares for a dimension, as one range."""
    pieces = spec.dims[name].pieces()
    ranges = [piece for piece in pieces if isinstance(piece, Range)]
    if ranges:
        return ranges[0]
    values = sorted(piece for piece in pieces if isinstance(piece, int))
    if len(values) > 1 and values[-1] > max(values[0], 2):
        return Range(min=max(values[0], 2), max=values[-1])
    return values[0]
