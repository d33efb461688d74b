"""What a captured graph writes to besides its results: buffers of the model, inputs of the call."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.export.graph_signature import InputKind

from .capture import Captured
from .errors import CaptureError

# Operators whose schema says that they write, and that change nothing but how a tensor is seen.
_VIEWS_ONLY = frozenset({"detach_", "requires_grad_"})

# Operators that write to running statistics without saying so in their schema, and the argument that
# says whether they do.
_HIDDEN_WRITES = {
    "batch_norm": 5,
    "instance_norm": 5,
    "native_batch_norm": 5,
    "cudnn_batch_norm": 5,
}


@dataclass(frozen=True, kw_only=True)
class Writes:
    """What is written to in place.

    Attributes:
        buffers: the model's buffers, by the name of their placeholder: the state of the model.
        inputs: the call's tensors, by the name of their placeholder.
        storages: the memory of all of these.
    """

    buffers: frozenset[str]
    inputs: frozenset[str]
    storages: frozenset[object]


def find(captured: Captured, where: str) -> Writes:
    """Return what the graph writes to.

    Raises:
        CaptureError: it writes to a parameter, or to a tensor that is neither buffer nor input: nobody
            could say afterwards which value it has.
    """
    specs = {spec.arg.name: spec for spec in captured.program.graph_signature.input_specs}
    storages = {
        storage_of(node): node.name
        for node in captured.program.graph.nodes
        if node.op == "placeholder" and isinstance(node.meta.get("val"), torch.Tensor)
    }
    found: dict[str, object] = {}
    for name, line in _writes(captured.program.graph_module, storages):
        spec = specs[name]
        if spec.kind not in (InputKind.USER_INPUT, InputKind.BUFFER):
            kind = "parameter" if spec.kind is InputKind.PARAMETER else "plain tensor attribute"
            raise CaptureError(
                f"{where}: {line}",
                found=f"a write to the {kind} {str(spec.target).removeprefix('model.')!r}",
                expected="a model that writes to its buffers and inputs only",
                tip="register it with register_buffer, or keep the update outside the module",
            )
        found[name] = None
    return Writes(
        buffers=frozenset(name for name in found if specs[name].kind is InputKind.BUFFER),
        inputs=frozenset(name for name in found if specs[name].kind is InputKind.USER_INPUT),
        storages=frozenset(storage for storage, name in storages.items() if name in found),
    )


def storage_of(node: object) -> object:
    """Return what tells the memory behind a node's value from other memory."""
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        return value.untyped_storage()._cdata
    return object()


def _writes(
    graph: torch.fx.GraphModule, storages: Mapping[object, str]
) -> Iterator[tuple[str, str]]:
    """Yield whose memory is written to, and the operator and line that does it."""
    for node in graph.graph.nodes:
        if node.op != "call_function":
            continue
        for argument in _written(node):
            owner = storages.get(storage_of(argument))
            if owner is not None:
                yield owner, f"{node.target}{_line(node)}"
        for argument in node.args:
            if isinstance(argument, torch.fx.Node) and argument.op == "get_attr":
                inner = getattr(graph, str(argument.target), None)
                if isinstance(inner, torch.fx.GraphModule):
                    yield from _writes(inner, _inner_storages(node, argument, inner, storages))


def _inner_storages(
    node: torch.fx.Node,
    attribute: torch.fx.Node,
    inner: torch.fx.GraphModule,
    storages: Mapping[object, str],
) -> dict[object, str]:
    """Return the owners of the storages that a subgraph is given."""
    given = node.args[node.args.index(attribute) + 1 :]
    flat = [a for arg in given for a in (arg if isinstance(arg, tuple | list) else (arg,))]
    placeholders = inner.graph.find_nodes(op="placeholder")
    found = dict(storages)
    for outer, placeholder in zip(flat, placeholders, strict=False):
        owner = storages.get(storage_of(outer))
        if owner is not None:
            found[storage_of(placeholder)] = owner
    return found


def _written(node: torch.fx.Node) -> Iterator[Any]:
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return
    name = schema.name.partition("::")[2]
    if name in _VIEWS_ONLY or torch.Tag.inplace_view in getattr(node.target, "tags", ()):
        return
    for i, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield node.args[i] if i < len(node.args) else node.kwargs.get(argument.name)
    flag = _HIDDEN_WRITES.get(name)
    if flag is not None and len(node.args) > flag and node.args[flag]:
        yield from node.args[3:5]


def _line(node: torch.fx.Node) -> str:
    trace = node.meta.get("stack_trace") or ""
    lines = [line.strip() for line in trace.splitlines() if line.strip().startswith("File ")]
    return f" at {lines[-1]}" if lines else ""
