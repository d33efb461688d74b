"""What the ladder is climbed with: the spec's model, or a few operators cut out of its graph."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.export.graph_signature import InputKind

from ...formats.bucket import Bucket
from .. import source_line
from ..build import make_module
from ..call_mode import CallMode
from ..capture import Captured, capture, read_call
from ..placement import Placement, example_call
from ..plan import Job, Plan
from ..source_line import Line
from ..spec import ON, Call, Spec
from ..training import Training


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model and one call of it.

    Attributes:
        spec: that a build of it would have.
        job: of that spec.
        module: in eval mode, on the job's kind of device.
        call: of the job's example sizes, on that device.
    """

    spec: Spec
    job: Job
    module: torch.nn.Module
    call: Call

    @classmethod
    def of(cls, spec: Spec, job: Job) -> "Subject":
        """Make the spec's model, and a call of it; of a method, as if the model had no other.

        Raises:
            ModelError: that fails.
        """
        torch.manual_seed(0)
        module = Placement(make_module(spec)).on(job.target.device, job.entry)
        own, job = spec.of(job.entry), replace(job, entry="")
        return cls(spec=own, job=job, module=module, call=example_call(own, module, job))

    @property
    def mode(self) -> CallMode:
        """Of the call."""
        return self.job.mode

    def capture(self, bucket: Bucket | None = None) -> Captured:
        """Capture it as a build does; at fixed sizes where a bucket of such is given.

        Raises:
            CaptureError: it cannot be captured.
        """
        job = self.job
        return capture(
            self.spec,
            self.module,
            job.bucket if bucket is None else bucket,
            job.id,
            job.choices,
            job.target.device,
            job.mode,
        )

    def varying(self) -> Iterator[tuple[torch.Tensor, int]]:
        """Yield the axes of the call's tensors whose size the build lets vary."""
        signature, tensors = read_call(self.spec, self.module, self.call, self.job.id)
        ranges = self.job.bucket.ranges()
        for tensor, (_, leaf) in zip(tensors, signature.tensors(), strict=True):
            yield from ((tensor, i) for i, name in enumerate(leaf.shape) if name in ranges)


@dataclass(frozen=True, kw_only=True)
class Window:
    """Some operators of a graph by themselves.

    Attributes:
        module: takes the tensors that they take from the others; weights are its attributes.
        inputs: those tensors.
        outputs: for each tensor that it returns, the index of the operator that makes it.
    """

    module: torch.fx.GraphModule
    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[int, ...]

    def subject(self, whole: Subject) -> Subject:
        """Return it as a model of its own, to be called as the whole is."""
        mode = whole.mode
        step = whole.spec.step or Training()
        trained = any(tensor.requires_grad for tensor in self._tensors()) and mode.step
        spec = Spec.from_module(
            self.module,
            self.inputs,
            name="window",
            training=(mode.training,) if not mode.step else (False,),
            grad=(ON,) if mode.grad and not mode.step else ("off",),
            step=Training(
                inference=False,
                partition=step.partition,
                activation_memory_budget=step.activation_memory_budget,
            )
            if trained
            else None,
            targets=(whole.job.target.device,),
            emulate_precision_casts=whole.spec.emulate_precision_casts,
            pack_weights=whole.spec.pack_weights,
            fp32_precision=whole.spec.fp32_precision,
            embed_graph=False,
            tolerance=whole.spec.tolerance,
        )
        return Subject(
            spec=spec, job=Plan.of(spec).jobs[0], module=self.module, call=(self.inputs, {})
        )

    def _tensors(self) -> Iterator[torch.Tensor]:
        yield from self.inputs
        yield from self.module.parameters()


class Graph:
    """The graph of a subject at fixed sizes, whose operators can be run one by one.

    Attributes:
        nodes: the operators in their order.
    """

    def __init__(self, subject: Subject) -> None:
        """Capture it.

        Raises:
            CaptureError: it cannot be captured.
        """
        sizes = subject.spec.example_sizes(subject.job.bucket)
        captured = subject.capture(Bucket(dims=dict(sizes)))
        self.mode = subject.mode
        self._root = captured.program.graph_module
        self._graph = self._root.graph
        self._weights: dict[torch.fx.Node, torch.Tensor] = {}
        self._given: dict[torch.fx.Node, torch.Tensor] = {}
        tensors = iter(captured.tensors)
        specs = captured.program.graph_signature.input_specs
        for node, spec in zip(self._graph.find_nodes(op="placeholder"), specs, strict=True):
            if spec.kind is InputKind.USER_INPUT:
                self._given[node] = next(tensors)
            else:
                self._weights[node] = _weight(captured, str(spec.target))
        self.nodes = tuple(node for node in self._graph.nodes if node.op == "call_function")
        self.index = {node: i for i, node in enumerate(self.nodes)}

    def uses(self, index: int) -> tuple[int, ...]:
        """Return the operators that one takes something from."""
        nodes = self.nodes[index].all_input_nodes
        return tuple(self.index[node] for node in nodes if node in self.index)

    def line(self, index: int) -> Line | None:
        """Return the user's line that an operator comes from."""
        return source_line.of_node(self.nodes[index])

    def run(
        self,
        see: Callable[[int, torch.fx.Node, Callable[[Any], Any]], Any],
        stop: int | None = None,
    ) -> dict[torch.fx.Node, Any]:
        """Run the operators up to an index.

        Args:
            see: runs one: called with its index, itself, and what gives its arguments their values.
            stop: the index of the first that is not run; all are where left out.

        Returns:
            The value of each node.
        """
        values: dict[torch.fx.Node, Any] = {**self._weights}
        values |= {
            node: tensor.detach().clone(memory_format=torch.preserve_format)
            for node, tensor in self._given.items()
        }
        for node, tensor in self._given.items():
            values[node].requires_grad_(tensor.requires_grad)
        for node in self._graph.find_nodes(op="get_attr"):
            values[node] = getattr(self._root, str(node.target))
        with torch.set_grad_enabled(self.mode.grad):
            for i, node in enumerate(self.nodes[:stop]):
                values[node] = see(i, node, lambda one: torch.fx.map_arg(one, values.__getitem__))
        return values

    def window(self, chosen: Sequence[int], outputs: Sequence[int] | None = None) -> Window:
        """Cut operators out; what they take is computed by eager kernels.

        Args:
            chosen: their indices, in order.
            outputs: of which the results are returned; of all that something else uses where left out.
        """
        values = self.run(evaluate, chosen[-1] if chosen else None)
        inside = {self.nodes[i] for i in chosen}
        graph = torch.fx.Graph()
        copies: dict[torch.fx.Node, torch.fx.Node] = {}
        attributes: dict[str, Any] = {}
        inputs: list[torch.Tensor] = []
        taken = dict.fromkeys(n for i in chosen for n in self.nodes[i].all_input_nodes)
        outside = [node for node in taken if node not in inside]
        for node in outside:
            value = values[node]
            if isinstance(value, torch.Tensor) and node not in self._weights:
                copies[node] = graph.placeholder(f"x{len(inputs)}")
                asks = value.requires_grad and self.mode.step
                inputs.append(value.detach().requires_grad_(asks))
        for node in outside:
            value = values[node]
            if node in self._weights:
                name = f"w{len(attributes)}"
                attributes[name] = value
                copies[node] = graph.get_attr(name)
            elif node.op == "get_attr":
                attributes[str(node.target)] = value
                copies[node] = graph.get_attr(str(node.target))
        for node in self.nodes:
            if node in inside:
                constant = {n: values[n] for n in node.all_input_nodes if n not in copies}
                known = {**constant, **copies}
                copies[node] = graph.node_copy(node, known.__getitem__)
        returned = self._returned(chosen, inside, outputs)
        graph.output(tuple(copies[self.nodes[i]] for i in returned))
        module = torch.fx.GraphModule(_holder(attributes), graph)
        module.eval()
        return Window(module=module, inputs=tuple(inputs), outputs=tuple(returned))

    def _returned(
        self,
        chosen: Sequence[int],
        inside: set[torch.fx.Node],
        outputs: Sequence[int] | None,
    ) -> list[int]:
        if outputs is not None:
            return list(outputs)
        found = []
        for i in chosen:
            node = self.nodes[i]
            needed = not node.users or any(user not in inside for user in node.users)
            if needed and isinstance(node.meta.get("val"), torch.Tensor):
                found.append(i)
        return found


def evaluate(_: int, node: torch.fx.Node, value: Callable[[Any], Any]) -> Any:
    """Run an operator by its eager kernel."""
    target: Any = node.target
    return target(*value(node.args), **value(node.kwargs))


def _weight(captured: Captured, target: str) -> torch.Tensor:
    tensor = captured.program.state_dict.get(target)
    found: Any = captured.program.constants[target] if tensor is None else tensor
    made: torch.Tensor = found
    return made


def _holder(attributes: dict[str, Any]) -> torch.nn.Module:
    """Return a module that has the attributes: weights as parameters, other tensors as buffers."""
    holder = torch.nn.Module()
    for name, value in attributes.items():
        if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
            holder.register_buffer(name, value)
        else:
            setattr(holder, name, value)
    return holder
