"""From the captured graph to the one that is compiled: tensors in, tensors out, weights by slot."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec

from ..formats.safetensors_header import ITEM_SIZES
from ..formats.signature import Branch, DimLeaf, InputLeaf, Node, TensorLeaf
from . import operators, structure, writes
from .capture import Captured
from .errors import CaptureError
from .operators import Provider
from .sizes import Names
from .writes import Writes, storage_of


@dataclass(frozen=True, kw_only=True)
class Partitioned:
    """The forward graph, ready to be compiled.

    Attributes:
        graph: takes the call's tensors in order, then the state's, and returns a tuple of tensors,
            each once. Its weights are attributes named by slot: c0, c1, ...
        constants: the weight in each slot, by its name in the model.
        state: the buffers that the model writes to, by name, in the order in which `graph` takes them;
            it writes to them in place.
        written: the indices of the call's tensors that it writes to in place.
        weights: weights and state by name, dense.
        roles: what each of them is in the model: "parameter", "buffer" or "constant".
        operators: the custom operators that it calls.
        outputs: what a call returns, its tensors numbered as `graph` returns them.
        names: the dimension that each symbol of the graph stands for.
    """

    graph: torch.fx.GraphModule
    constants: Mapping[str, str]
    state: tuple[str, ...]
    written: tuple[int, ...]
    weights: Mapping[str, torch.Tensor]
    roles: Mapping[str, str]
    operators: Mapping[str, Provider]
    outputs: Node
    names: Mapping[str, str]

    def providers(self, *, compiled: bool = False) -> dict[str, str]:
        """Return the custom operators, each with the module that registers it.

        Args:
            compiled: leave out those that compilation replaces by their Triton kernels.
        """
        return {
            name: provider.module
            for name, provider in self.operators.items()
            if not (compiled and provider.is_triton)
        }

    def state_tensors(self) -> tuple[torch.Tensor, ...]:
        """Return the state's tensors in the order in which `graph` takes them."""
        return tuple(self.weights[name] for name in self.state)


def partition(captured: Captured, names: Names, where: str) -> Partitioned:
    """Cut the forward graph out of what was captured.

    What the model returns that views its state, or an input that it writes to, becomes a copy of its
    own; an input that is returned as it is stays the caller's tensor.

    Raises:
        CaptureError: the model writes to something that is neither a buffer nor an input, or returns
            something that is neither a tensor nor a size.
    """
    program = captured.program
    written = writes.find(captured, where)
    graph = torch.fx.GraphModule(program.graph_module, copy_of(program.graph_module.graph))
    constants: dict[str, str] = {}
    state: list[str] = []
    weights: dict[str, torch.Tensor] = {}
    roles: dict[str, str] = {}
    inputs: list[torch.fx.Node] = []
    kept: list[torch.fx.Node] = []
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    for node in graph.graph.find_nodes(op="placeholder"):
        spec = specs[node.name]
        if spec.kind is InputKind.USER_INPUT:
            inputs.append(node)
            continue
        name = str(spec.target).removeprefix("model.")
        weights[name] = weight_of(program, str(spec.target), f"{where}: {name}")
        roles[name] = role_of(spec)
        if node.name in written.buffers:
            state.append(name)
            kept.append(node)
            continue
        slot = f"c{len(constants)}"
        constants[slot] = name
        graph.register_buffer(slot, weights[name])
        with graph.graph.inserting_before(node):
            attribute = graph.graph.get_attr(slot)
        attribute.meta = dict(node.meta)
        _replace(graph.graph, node, attribute)
    _move_to_end(graph.graph, kept)
    outputs = _set_outputs(captured, graph.graph, inputs, written, names)
    graph.graph.eliminate_dead_code()
    used = {node.target for node in graph.graph.find_nodes(op="get_attr")}
    for slot in [slot for slot in constants if slot not in used]:
        delattr(graph, slot)
        del weights[constants.pop(slot)]
    graph.graph.lint()
    graph.recompile()
    return Partitioned(
        graph=graph,
        constants=constants,
        state=tuple(state),
        written=tuple(i for i, node in enumerate(inputs) if node.name in written.inputs),
        weights=weights,
        roles=roles,
        operators=operators.find(graph),
        outputs=outputs,
        names=names.symbols,
    )


def role_of(spec: InputSpec) -> str:
    if spec.kind is InputKind.PARAMETER:
        return "parameter"
    return "buffer" if spec.kind is InputKind.BUFFER and spec.persistent else "constant"


def weight_of(program: ExportedProgram, target: str, where: str) -> torch.Tensor:
    tensor = program.state_dict.get(target)
    if tensor is None:
        tensor = program.constants[target]
    if not isinstance(tensor, torch.Tensor):
        found = f"an object of type {type(tensor).__name__} in the graph"
        raise CaptureError(where, found=found, expected="tensors only")
    dtype = structure.dtype_name(tensor.dtype)
    if tensor.layout is not torch.strided or dtype not in ITEM_SIZES:
        found = f"a tensor of {tensor.dtype} with layout {tensor.layout}"
        raise CaptureError(where, found=found, expected="a dense one of a dtype safetensors has")
    return structure.dense(tensor.detach())


def _replace(graph: torch.fx.Graph, node: torch.fx.Node, by: torch.fx.Node) -> None:
    node.replace_all_uses_with(by)
    graph.erase_node(node)


def _move_to_end(graph: torch.fx.Graph, nodes: list[torch.fx.Node]) -> None:
    """Let the graph take `nodes` behind everything else that it takes."""
    for node in nodes:
        last = list(graph.find_nodes(op="placeholder"))[-1]
        if node is not last:
            last.append(node)


def copy_of(graph: torch.fx.Graph) -> torch.fx.Graph:
    """Return a copy whose nodes share what is known of their values."""
    copy = torch.fx.Graph()
    values: dict[torch.fx.Node, torch.fx.Node] = {}
    result = copy.graph_copy(graph, values)
    last = next(iter(graph.find_nodes(op="output")))
    copy.output(result).meta = dict(last.meta)
    return copy


def _set_outputs(
    captured: Captured,
    graph: torch.fx.Graph,
    inputs: list[torch.fx.Node],
    written: Writes,
    names: Names,
) -> Node:
    """Let the graph return each tensor once; return the structure that says which goes where."""
    output = next(iter(graph.find_nodes(op="output")))
    returned: list[torch.fx.Node] = []
    leaves: list[Node] = []
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for value in output.args[0]:
        made = value.meta["val"] if isinstance(value, torch.fx.Node) else value
        if isinstance(made, torch.SymInt | int):
            leaves.append(dim_leaf(made, names))
            continue
        same = next((i for i, node in enumerate(inputs) if _is_same(value, node)), None)
        if same is not None:
            leaves.append(InputLeaf(index=same))
            continue
        if storage_of(value) in written.storages:
            if value not in copies:
                with graph.inserting_before(output):
                    copies[value] = graph.call_function(torch.ops.aten.clone.default, (value,))
                copies[value].meta = dict(value.meta)
            value = copies[value]
        if value not in returned:
            returned.append(value)
        leaves.append(tensor_leaf(made, returned.index(value), names))
    output.args = (tuple(returned),)
    return placed(captured.outputs, leaves)


def _is_same(value: torch.fx.Node, node: torch.fx.Node) -> bool:
    """Return whether a value is the very tensor of an input, written to or not."""
    if value is node:
        return True
    made, given = value.meta["val"], node.meta["val"]
    return (
        storage_of(value) == storage_of(node)
        and made.shape == given.shape
        and made.stride() == given.stride()
        and made.storage_offset() == given.storage_offset()
        and made.dtype == given.dtype
    )


def dim_leaf(made: int | torch.SymInt, names: Names) -> DimLeaf:
    """Return the record of a size that is returned."""
    size = names.write(made.node.expr) if isinstance(made, torch.SymInt) else str(made)
    return DimLeaf(size=size)


def tensor_leaf(made: torch.Tensor, index: int, names: Names) -> TensorLeaf:
    """Return the record of an output, its symbolic sizes by the names of dimensions.

    Raises:
        CaptureError: a size follows from no dimension.
    """
    shape = tuple(
        names.write(size.node.expr) if isinstance(size, torch.SymInt) else int(size)
        for size in made.shape
    )
    dtype = structure.dtype_name(made.dtype)
    return TensorLeaf(dtype=dtype, shape=shape, index=index)


def placed(node: Node, leaves: list[Node]) -> Node:
    if isinstance(node, Branch):
        return replace(node, children=tuple(placed(child, leaves) for child in node.children))
    return leaves[node.index] if isinstance(node, TensorLeaf) else node
