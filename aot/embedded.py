"""The captured graph that an artifact carries for calls no compiled variant accepts.

It is captured for as many sizes as the model's code allows, whatever the spec's buckets are, and has
guards of its own: where it would not be right, the call is a miss without an answer.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch

from ..formats.bucket import Bucket, Range
from ..formats.variant import GRAPH
from . import graph_source, sizes
from .capture import capture
from .errors import CaptureError
from .guards import call_guards
from .package import Part
from .partition import partition
from .plan import choices_of
from .spec import Spec
from .weight_table import WeightTable

ID = "embedded"


def embed(
    spec: Spec, module: torch.nn.Module, weights: WeightTable, device: str, entry: str = ""
) -> tuple[list[Part], list[str]]:
    """Return an embedded graph for each choice of values, and a note for each that there is not.

    Args:
        spec: of the model.
        module: the model, on the device.
        weights: gets the graphs' weights.
        device: the kind of device that the graphs are to run on.
        entry: the method that `forward` is of the module.
    """
    parts: list[Part] = []
    notes: list[str] = []
    for choices in choices_of(spec):
        try:
            part = _widest(spec, module, weights, choices, device)
            method = f"{entry}:" if entry else ""
            parts.append(replace(part, id=f"{method}{part.id}", entry=entry))
        except CaptureError as error:
            note = f"no embedded graph{f' for {entry}' if entry else ''}: a call that no variant accepts needs a fallback module"
            notes.append(f"{note} ({error})")
    return parts, notes


def _widest(
    spec: Spec,
    module: torch.nn.Module,
    weights: WeightTable,
    choices: Mapping[str, object],
    device: str,
) -> Part:
    """Capture for any size from 2 on or, where the model's code does not allow it, as declared.

    Raises:
        CaptureError: neither is possible.
    """
    anything = Bucket(dims={name: Range(min=2) for name in spec.dims})
    as_declared = Bucket(dims={name: _span(spec, name) for name in spec.dims})
    try:
        return _part(spec, module, anything, weights, choices, device)
    except CaptureError:
        if not spec.dims:
            raise
        return _part(spec, module, as_declared, weights, choices, device)


def _part(
    spec: Spec,
    module: torch.nn.Module,
    bucket: Bucket,
    weights: WeightTable,
    choices: Mapping[str, object],
    device: str,
) -> Part:
    name = ",".join([ID, *(f"{key}={value!r}" for key, value in choices.items())])
    name = name if device == "cpu" else f"{name}@{device}"
    captured = capture(spec, module, bucket, name, choices, device)
    names = sizes.Names.of(captured, name)
    partitioned = partition(captured, names, name)
    relations = sizes.relations(captured.program.graph, bucket, names, name, whole=False)
    source = graph_source.write(partitioned.graph, name)
    return Part(
        id=name,
        form=GRAPH,
        signature=captured.signature,
        bucket=bucket,
        guards=call_guards(
            captured.signature,
            bucket,
            relations,
            written=partitioned.written,
            graph=True,
            device=device,
        ),
        outputs=partitioned.outputs,
        files={"graph.py": source.encode()},
        constants=weights.add(partitioned),
        state=weights.add_state(partitioned),
        written=partitioned.written,
        operators=partitioned.providers(),
        device=device,
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
