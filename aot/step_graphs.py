"""A training step, ready to be compiled: two graphs of tensors to tensors, and how they fit together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import torch
from torch.fx import GraphModule, Node

from ..formats import signature as trees
from ..formats.layout import layout_of
from ..formats.signature import InputLeaf
from ..formats.step import Result, Step, Tangent, Write
from . import boundary, joint, operators
from .capture import Captured
from .errors import CaptureError
from .joint import Cut, Joint
from .operators import Provider
from .partition import dim_leaf, placed, role_of, tensor_leaf, weight_of
from .sizes import Names
from .training import Training
from .writes import storage_of

_PREFIX: Final = "model."


@dataclass(frozen=True, kw_only=True)
class Half:
    """The forward or the backward graph.

    Attributes:
        graph: of tensors to tensors; its constants are attributes named by slot: c0, c1, ...
        constants: the weight in each slot, by name.
        names: the dimension that each symbol of the graph stands for.
    """

    graph: GraphModule
    constants: Mapping[str, str]
    names: Mapping[str, str]

    def inputs(self) -> tuple[torch.Tensor, ...]:
        """Return what is known of the tensors that the graph takes."""
        return tuple(node.meta["val"] for node in self.graph.graph.find_nodes(op="placeholder"))


@dataclass(frozen=True, kw_only=True)
class StepGraphs:
    """Both graphs of a training step.

    Attributes:
        forward, backward: the graphs.
        step: how they fit together.
        outputs: what the model returns, its tensors numbered as the step's results.
        weights: what the step takes and what its graphs hold, by name.
        roles: of each, as in a Partitioned.
        operators: the custom operators that either calls.
        cuts: what each partitioner would have made of it.
    """

    forward: Half
    backward: Half
    step: Step
    outputs: trees.Node
    weights: Mapping[str, torch.Tensor]
    roles: Mapping[str, str]
    operators: Mapping[str, Provider]
    cuts: Mapping[str, Cut]

    @property
    def constants(self) -> Mapping[str, str]:
        """The forward's constants."""
        return self.forward.constants

    @property
    def state(self) -> tuple[str, ...]:
        """No weights are written to in place: what is written is a value of the step."""
        return ()


def step_graphs(captured: Captured, names: Names, training: Training, where: str) -> StepGraphs:
    """Cut a captured call into forward and backward.

    Raises:
        CaptureError: the gradients cannot be traced, or do not fit what a step can do.
    """
    made = joint.trace(captured, training, where)
    return _Cutter(captured, names, made, where).cut()


class _Cutter:
    """Takes apart what AOTAutograd has made; everything that it says of inputs and outputs ends here."""

    def __init__(self, captured: Captured, names: Names, made: Joint, where: str) -> None:
        self._captured = captured
        self._names = names
        self._made = made
        self._where = where
        self._weights: dict[str, torch.Tensor] = {}
        self._roles: dict[str, str] = {}
        self._inputs: list[Node] = []  # of the forward: the call's tensors, then the weights
        self._returned: list[Node] = []  # by the forward's library, each once
        specs = captured.program.graph_signature.input_specs
        self._specs = {str(spec.target): spec for spec in specs if spec.target is not None}

    def cut(self) -> StepGraphs:
        forward, backward = self._made.forward, self._made.backward
        descriptions = dict(self._described(forward.graph.output_node()))
        taken = self._order_inputs(forward.graph)
        carriers = boundary.carry(forward, backward, self._where)
        saved = self._saved(forward.graph, backward.graph)
        saved |= {taken_as: made for made, taken_as in carriers}
        results, outputs, at = self._results(descriptions)
        writes = self._writes(descriptions)
        values = {node: self._value(node) for node in saved.values()}
        tangents, order = self._tangents(backward.graph, at)
        _reorder(backward.graph, [*saved, *order])
        gradients = self._gradients(backward.graph)
        forward.graph.output_node().args = (tuple(self._returned),)
        halves = [self._half(graph) for graph in (forward, backward)]
        step = Step(
            weights=tuple(taken),
            trained=tuple(i for i, node in enumerate(self._inputs) if self._asks(i, node)),
            results=tuple(results),
            writes=tuple(writes),
            saved=tuple(values[node] for node in saved.values()),
            shares=tuple(self._shares(node) for node in saved.values()),
            watched=self._watched(list(saved.values()), results),
            tangents=tangents,
            gradients=gradients,
            backward_constants=dict(halves[1].constants),
        )
        return StepGraphs(
            forward=halves[0],
            backward=halves[1],
            step=step,
            outputs=outputs,
            weights=self._weights,
            roles=self._roles,
            operators=operators.find(forward) | operators.find(backward),
            cuts=self._made.cuts,
        )

    def _described(self, output: Node) -> list[tuple[Any, Node]]:
        """Return what each output of the forward is, with its node."""
        return list(zip(output.meta["desc"], output.args[0], strict=True))  # type: ignore[arg-type]

    def _order_inputs(self, graph: torch.fx.Graph) -> list[str]:
        """Let the forward take the call's tensors, then the weights; return the weights' names."""
        from torch._functorch._aot_autograd.descriptors import (
            BufferAOTInput,
            ParamAOTInput,
            PlainAOTInput,
        )

        given: dict[int, Node] = {}
        weights: list[Node] = []
        names = []
        for node in graph.find_nodes(op="placeholder"):
            what: Any = node.meta["desc"]
            if isinstance(what, PlainAOTInput):
                given[what.idx] = node
            elif isinstance(what, ParamAOTInput | BufferAOTInput):
                name = what.target.removeprefix(_PREFIX)
                self._add(name, what.target)
                weights.append(node)
                names.append(name)
            else:
                self._refuse(f"an input that is {what}")
        self._inputs = [*(given[i] for i in sorted(given)), *weights]
        _reorder(graph, self._inputs)
        return names

    def _add(self, name: str, target: str) -> None:
        program = self._captured.program
        self._weights[name] = weight_of(program, target, f"{self._where}: {name}")
        self._roles[name] = role_of(self._specs[target])

    def _saved(self, forward: torch.fx.Graph, backward: torch.fx.Graph) -> dict[Node, Node]:
        """Return the backward's inputs that the forward has saved, each with the forward's node."""
        from torch._functorch._aot_autograd.descriptors import TangentAOTInput

        boundary.take_sizes_from_tensors(backward)
        made = {node.name: node for node in forward.nodes}
        boundary.take_sizes_from_tensors(forward)
        saved = {}
        for node in backward.find_nodes(op="placeholder"):
            if node.name.startswith("carrier_") or isinstance(
                node.meta.get("desc"), TangentAOTInput
            ):
                continue
            if node.name not in made:
                self._refuse(f"a saved value {node.name!r} that the forward does not have")
            saved[node] = made[node.name]
        return saved

    def _shares(self, node: Node) -> int | None:
        """Return the input that a value shares memory with."""
        storage = storage_of(node)
        return next((i for i, n in enumerate(self._inputs) if storage_of(n) == storage), None)

    def _watched(self, saved: Sequence[Node], results: Sequence[Result]) -> tuple[int, ...]:
        """Return the inputs and results whose memory is saved under another form."""
        values = [*self._inputs, *self._returned]
        seen = [*range(len(self._inputs)), *(result.value for result in results)]
        watched = (
            value
            for value in dict.fromkeys(seen)
            if any(
                n is not values[value] and storage_of(n) == storage_of(values[value]) for n in saved
            )
        )
        return tuple(watched)

    def _value(self, node: Node) -> int:
        """Return the number of a value; a new one is returned by the forward from now on."""
        if node in self._inputs:
            return self._inputs.index(node)
        if node not in self._returned:
            self._returned.append(node)
        return len(self._inputs) + self._returned.index(node)

    def _results(
        self, descriptions: Mapping[Any, Node]
    ) -> tuple[list[Result], trees.Node, dict[int, int]]:
        """Return the results, the structure around them, and which output each of them is."""
        from torch._functorch._aot_autograd.descriptors import PlainAOTOutput
        from torch._functorch._aot_autograd.schemas import OutputType

        nodes = {d.idx: node for d, node in descriptions.items() if isinstance(d, PlainAOTOutput)}
        results: list[Result] = []
        leaves: list[trees.Node] = []
        at: dict[int, int] = {}
        flat = self._flat()
        for i, output in enumerate(self._made.metadata.output_info):
            kind, base = output.output_type, output.base_idx
            if kind is OutputType.is_input and flat[base] < len(self._captured.tensors):
                leaves.append(InputLeaf(index=flat[base]))
                continue
            own = kind in (
                OutputType.non_alias,
                OutputType.unsafe_view_alias,
                OutputType.custom_function_view,
            )
            if i not in nodes and kind is not OutputType.is_input:
                self._refuse(f"an output of kind {kind.name}")
            if not own and kind not in (OutputType.alias_of_input, OutputType.is_input):
                self._refuse(
                    "two outputs that share memory", tip="return a .clone() of one of them"
                )
            node = nodes[i] if i in nodes else self._inputs[flat[base]]
            made = node.meta["val"]
            if not isinstance(made, torch.Tensor):
                leaves.append(dim_leaf(made, self._names))
                continue
            at[i] = len(results)
            leaves.append(tensor_leaf(made, len(results), self._names))
            results.append(
                Result(
                    value=self._value(node),
                    differentiable=bool(output.requires_grad),
                    view_of=None if own else flat[base],
                )
            )
        return results, placed(self._captured.outputs, leaves), at

    def _flat(self) -> dict[int, int]:
        """Return for each of AOTAutograd's inputs which of ours it is."""
        named = sorted(self._inputs, key=lambda node: int(node.name.removeprefix("primals_")))
        return {i: self._inputs.index(node) for i, node in enumerate(named)}

    def _writes(self, descriptions: Mapping[Any, Node]) -> list[Write]:
        from torch._functorch._aot_autograd.descriptors import InputMutationAOTOutput

        writes = []
        inputs = {node.meta["desc"]: i for i, node in enumerate(self._inputs)}
        for what, node in descriptions.items():
            if isinstance(what, InputMutationAOTOutput):
                written = inputs[what.mutated_input]
                if self._asks(written, self._inputs[written]):
                    self._refuse("a model that writes to what it is asked a gradient of")
                writes.append(Write(input=written, value=self._value(node)))
        return writes

    def _tangents(
        self, backward: torch.fx.Graph, at: Mapping[int, int]
    ) -> tuple[tuple[Tangent, ...], list[Node]]:
        from torch._functorch._aot_autograd.descriptors import PlainAOTOutput, TangentAOTInput

        tangents, order = [], []
        for node in backward.find_nodes(op="placeholder"):
            what = node.meta.get("desc")
            if not isinstance(what, TangentAOTInput):
                continue
            if not isinstance(what.output, PlainAOTOutput):
                self._refuse(f"a gradient of {what.output}")
            tangents.append(Tangent(result=at[what.output.idx], layout=self._layout(node)))
            order.append(node)
        return tuple(tangents), order

    def _layout(self, node: Node) -> str:
        value: torch.Tensor = node.meta["val"]
        layout: str | None = layout_of(_hints(value.shape), _hints(value.stride()))
        if layout is None:
            self._refuse("an output whose gradient has elements apart in memory")
        return layout

    def _gradients(self, backward: torch.fx.Graph) -> tuple[int | None, ...]:
        """Let the backward return each gradient once; return which is whose."""
        from torch._functorch._aot_autograd.descriptors import GradAOTOutput

        output = backward.output_node()
        inputs = {node.meta["desc"]: i for i, node in enumerate(self._inputs)}
        found: list[int | None] = [None] * len(self._inputs)
        returned: list[Node] = []
        shared = {storage_of(node) for node in backward.find_nodes(op="placeholder")}
        for what, node in self._described(output):
            if node is None:
                continue
            if not isinstance(what, GradAOTOutput):
                self._refuse(f"a backward that returns {what}")
            if node not in returned and storage_of(node) in shared:
                # Whoever gets a gradient may add to it in place.
                with backward.inserting_before(output):
                    own = backward.call_function(torch.ops.aten.clone.default, (node,))
                own.meta["val"] = node.meta["val"]
                node = own
            shared.add(storage_of(node))
            if node not in returned:
                returned.append(node)
            found[inputs[what.grad_of]] = returned.index(node)
        output.args = (tuple(returned),)
        return tuple(found)

    def _asks(self, index: int, node: Node) -> bool:
        if index < len(self._captured.tensors):
            return self._captured.tensors[index].requires_grad
        name = node.meta["desc"].target
        weight = self._captured.program.state_dict.get(name)
        return weight is not None and weight.requires_grad

    def _half(self, graph: GraphModule) -> Half:
        """Name the constants of a graph by slot, and drop what is not used."""
        constants: dict[str, str] = {}
        for node in list(graph.graph.find_nodes(op="get_attr")):
            value = getattr(graph, str(node.target))
            if not isinstance(value, torch.Tensor):
                continue
            name = self._constant(value)
            slot = next((slot for slot, other in constants.items() if other == name), None)
            if slot is None:
                slot = f"c{len(constants)}"
                constants[slot] = name
                graph.register_buffer(slot, self._weights[name])
            node.target = slot
        graph.graph.output_node().meta.pop("desc", None)
        graph.graph.eliminate_dead_code()
        graph.graph.lint()
        graph.recompile()
        return Half(graph=graph, constants=constants, names=self._names.symbols)

    def _constant(self, value: torch.Tensor) -> str:
        """Return the name of a tensor that the model's code holds."""
        known: dict[str, Any] = {**self._captured.program.constants, **self._weights}
        found = (target for target, tensor in known.items() if tensor is value)
        name = next(found, "").removeprefix(_PREFIX)
        if not name:
            name = f"constant_{sum(role == 'constant' for role in self._roles.values())}"
        self._weights.setdefault(name, value.detach())
        self._roles.setdefault(name, "constant")
        return name

    def _refuse(self, found: str, tip: str = "") -> NoReturn:
        raise CaptureError(
            self._where,
            found=found,
            expected="a training step that can be cut into forward and backward",
            tip=tip or "change the model, or leave [training] out to build it for inference only",
        )


def _reorder(graph: torch.fx.Graph, nodes: Sequence[Node]) -> None:
    """Let a graph take its inputs in this order."""
    for node in nodes:
        last = list(graph.find_nodes(op="placeholder"))[-1]
        if node is not last:
            last.append(node)


def _hints(sizes: Sequence[int | torch.SymInt]) -> tuple[int, ...]:
    return tuple(int(s.node.hint) if isinstance(s, torch.SymInt) else int(s) for s in sizes)
