"""From the captured graph to the one that is compiled: tensors in, tensors out, weights by slot."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.export.graph_signature import InputKind

from ..formats.signature import Branch, DimLeaf, InputLeaf, Node, TensorLeaf
from . import structure
from .capture import Captured
from .errors import CaptureError
from .sizes import Names

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
class Partitioned:
    """The forward graph, ready to be compiled.

    Attributes:
        graph: takes the call's tensors in order and returns a tuple of tensors, each once. Its weights
            are attributes named by slot: c0, c1, ...
        constants: the weight in each slot, by its name in the model.
        weights: the weights by name, dense.
        outputs: what a call returns, its tensors numbered as `graph` returns them.
        names: the dimension that each symbol of the graph stands for.
    """

    graph: torch.fx.GraphModule
    constants: Mapping[str, str]
    weights: Mapping[str, torch.Tensor]
    outputs: Node
    names: Mapping[str, str]


def partition(captured: Captured, names: Names, where: str) -> Partitioned:
    """Cut the forward graph out of what was captured.

    Raises:
        CaptureError: the model writes to its buffers or inputs, or returns something that is neither
            a tensor nor a size.
    """
    program = captured.program
    _refuse_writes(captured, where)
    graph = torch.fx.GraphModule(program.graph_module, _copy(program.graph_module.graph))
    constants: dict[str, str] = {}
    weights: dict[str, torch.Tensor] = {}
    inputs: list[torch.fx.Node] = []
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    for node in list(graph.graph.nodes):
        if node.op != "placeholder":
            continue
        spec = specs[node.name]
        if spec.kind is InputKind.USER_INPUT:
            inputs.append(node)
            continue
        name = str(spec.target).removeprefix("model.")
        tensor = program.state_dict.get(spec.target)
        if tensor is None:
            tensor = program.constants[spec.target]
        if not isinstance(tensor, torch.Tensor):
            found = f"an object of type {type(tensor).__name__} in the graph"
            raise CaptureError(f"{where}: {name}", found=found, expected="tensors only")
        slot = f"c{len(constants)}"
        constants[slot] = name
        weights[name] = structure.dense(tensor.detach())
        graph.register_buffer(slot, weights[name])
        with graph.graph.inserting_before(node):
            attribute = graph.graph.get_attr(slot)
        attribute.meta = dict(node.meta)
        node.replace_all_uses_with(attribute)
        graph.graph.erase_node(node)
    outputs = _set_outputs(captured, graph.graph, inputs, names)
    graph.graph.eliminate_dead_code()
    used = {node.target for node in graph.graph.find_nodes(op="get_attr")}
    for slot in [slot for slot in constants if slot not in used]:
        delattr(graph, slot)
        del weights[constants.pop(slot)]
    graph.graph.lint()
    graph.recompile()
    return Partitioned(
        graph=graph, constants=constants, weights=weights, outputs=outputs, names=names.symbols
    )


def _copy(graph: torch.fx.Graph) -> torch.fx.Graph:
    copy = torch.fx.Graph()
    values: dict[torch.fx.Node, torch.fx.Node] = {}
    result = copy.graph_copy(graph, values)
    copy.output(result)
    return copy


def _set_outputs(
    captured: Captured, graph: torch.fx.Graph, inputs: list[torch.fx.Node], names: Names
) -> Node:
    """Let the graph return each tensor once; return the structure that says which goes where."""
    output = next(iter(graph.find_nodes(op="output")))
    returned: list[torch.fx.Node] = []
    leaves: list[Node] = []
    for value in output.args[0]:
        made = value.meta["val"] if isinstance(value, torch.fx.Node) else value
        if isinstance(made, torch.SymInt):
            leaves.append(DimLeaf(size=names.write(made.node.expr)))
        elif isinstance(made, int):
            leaves.append(DimLeaf(size=str(made)))
        elif value in inputs:
            leaves.append(InputLeaf(index=inputs.index(value)))
        else:
            if value not in returned:
                returned.append(value)
            leaves.append(_tensor_leaf(made, returned.index(value), names))
    output.args = (tuple(returned),)
    return _place(captured.outputs, leaves)


def _tensor_leaf(made: torch.Tensor, index: int, names: Names) -> TensorLeaf:
    shape = tuple(
        names.write(size.node.expr) if isinstance(size, torch.SymInt) else int(size)
        for size in made.shape
    )
    dtype = str(made.dtype).removeprefix("torch.")
    return TensorLeaf(dtype=dtype, shape=shape, index=index)


def _place(node: Node, leaves: list[Node]) -> Node:
    if isinstance(node, Branch):
        return replace(node, children=tuple(_place(child, leaves) for child in node.children))
    return leaves[node.index] if isinstance(node, TensorLeaf) else node


def _refuse_writes(captured: Captured, where: str) -> None:
    """Refuse a model that changes its buffers or its inputs: nobody would write the change back."""
    owners = {}
    specs = captured.program.graph_signature.input_specs
    users = iter(path for path, _ in captured.signature.tensors())
    for spec in specs:
        is_input = spec.kind is InputKind.USER_INPUT
        name = next(users) if is_input else str(spec.target).removeprefix("model.")
        owners[spec.arg.name] = f"{'input' if is_input else 'buffer'} {name!r}"
    storages = {
        _storage(node): owners[node.name]
        for node in captured.program.graph.nodes
        if node.op == "placeholder"
    }
    for owner, line in _writes(captured.program.graph_module, storages):
        raise CaptureError(
            f"{where}: {line}",
            found=f"a write to {owner}",
            expected="a model that leaves its buffers and inputs as they are",
            tip="pass the state in and return its new value, or keep the update outside the module",
        )


def _writes(
    graph: torch.fx.GraphModule, storages: Mapping[object, str]
) -> Iterator[tuple[str, str]]:
    """Yield who is written to, and the operator and line that does it."""
    for node in graph.graph.nodes:
        if node.op != "call_function":
            continue
        for argument in _written(node):
            owner = storages.get(_storage(argument))
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
        owner = storages.get(_storage(outer))
        if owner is not None:
            found[_storage(placeholder)] = owner
    return found


def _written(node: torch.fx.Node) -> Iterator[Any]:
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return
    name = schema.name.partition("::")[2]
    if name in _VIEWS_ONLY or torch.Tag.inplace_view in node.target.tags:
        return
    for i, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield node.args[i] if i < len(node.args) else node.kwargs.get(argument.name)
    flag = _HIDDEN_WRITES.get(name)
    if flag is not None and len(node.args) > flag and node.args[flag]:
        yield from node.args[3:5]


def _storage(node: object) -> object:
    """Return what tells the memory behind a node's value from other memory."""
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else object()


def _line(node: torch.fx.Node) -> str:
    trace = node.meta.get("stack_trace") or ""
    lines = [line.strip() for line in trace.splitlines() if line.strip().startswith("File ")]
    return f" at {lines[-1]}" if lines else ""
