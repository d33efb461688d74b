"""A variant that is loaded and bound to its weights: tensors in, tensors out."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch

from ..formats.container import Artifact
from ..formats.expression import evaluate
from ..formats.guard import HOST, MODULE, Guard
from ..formats.signature import DimLeaf, InputLeaf, Node, TensorLeaf, ValueLeaf
from ..formats.tree import assemble
from ..formats.variant import LIBRARY, Variant
from . import devices, library_files, setting
from .aoti import Library
from .cuda_graphs import GraphOptions, Graphs
from .deferred import Deferred
from .graph_source import Graph
from .miss import Refusal
from .packing import PackedWeights
from .state import State
from .stats import Counter, Waste

LIBRARY_FILE = "model.so"
SOURCE_FILE = "graph.py"

Run = Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]
Tensors = tuple[torch.Tensor, ...]


class Bound(Protocol):
    """What can run: a library or a graph, with constants bound to it."""

    @property
    def run(self) -> Run:
        """Take the tensors, return the outputs; nothing is checked."""
        ...

    def bind_spare(self, constants: Mapping[str, torch.Tensor]) -> None:
        """Bind a second set of constants in place of the one before."""
        ...

    def flip(self) -> None:
        """Use the other set."""
        ...


class Program:
    """A variant, loaded.

    Attributes:
        variant: its record.
        guards: the guards that depend on the call and the process; the host's have been checked.
        device: where its tensors are.
        graphs: what it replays instead of running its library, where it does.
        relaxed: the guards for a call that is padded, once one was asked about.
        setting_guards: the guards on how the model is set.
        run: takes the call's tensors in order and returns the program's outputs. It checks nothing.
        hits: how many calls it has answered.
        padding: what of them was padded up to its bucket.
        seconds: what one run takes, as far as it was measured.
        result: puts the program's outputs into what the model returns.
        changed: names a weight that is another tensor than the one the program is bound to; None where
            nobody else has the weights.
    """

    def __init__(
        self,
        variant: Variant,
        bound: Bound,
        state: State,
        device: torch.device,
        graphs: Graphs | None = None,
    ) -> None:
        self.variant = variant
        self.device = device
        self.graphs = graphs
        self.guards = tuple(
            placed(guard, device) for guard in variant.guards if guard.subject not in (HOST, MODULE)
        )
        self.relaxed: tuple[Guard, ...] | None = None
        self.setting_guards = setting.guards(variant)
        self.hits = Counter()
        self.padding = Waste()
        self.seconds: float | None = None
        self.result = result(variant.outputs)
        self.changed: Callable[[], str | None] | None = None
        self._bound = bound
        self.run: Run = state.around(variant, bound.run if graphs is None else graphs.run)

    def fits(self) -> bool:
        """Return whether the weights are still the ones that it is bound to."""
        return self.changed is None or self.changed() is None

    def refusals(self) -> list[Refusal]:
        """Return what of the weights is not as when it was bound to them."""
        name = self.changed() if self.changed is not None else None
        if name is None:
            return []
        text = f"weights.{name}: expected the tensor that was attached, found another in its place"
        return [Refusal(f"weights.{name}", text)]

    def measure(self, tensors: Tensors) -> None:
        """Run on a drawn call a few times and keep the median in `seconds`."""
        for _ in range(1 if self.graphs is None else 2):
            self.run(list(tensors))
        took = []
        for _ in range(3):
            devices.synchronize(self.device)
            began = time.perf_counter()
            self.run(list(tensors))
            devices.synchronize(self.device)
            took.append(time.perf_counter() - began)
        self.seconds = sorted(took)[1]

    def bind_spare(self, weights: PackedWeights) -> None:
        """Bind the program to a second set of weights."""
        self._bound.bind_spare(weights.constants(self.variant))

    def flip(self) -> None:
        """Use the other set of weights from the next call on."""
        self._bound.flip()
        if self.graphs is not None:
            self.graphs.drop()

    def __call__(self, tensors: Tensors, dims: Mapping[str, int]) -> Any:
        """Answer a call that the guards have accepted, in the model's own types."""
        return self.result(self.run(list(tensors)), tensors, dims)


def load(
    variant: Variant,
    artifact: Artifact,
    weights: PackedWeights,
    state: State,
    device: torch.device,
    graphs: GraphOptions | None = None,
    *,
    defer: bool = False,
) -> Program:
    """Load one variant; its host guards have been checked. Without `graphs`, none are captured.

    Args:
        defer: whether its library is opened by its first call, to which it raises; the artifact stays open.

    Raises:
        FormatError: a section is not the one that was recorded.
        LibraryError: the library does not load, or needs other constants than the manifest says.
    """
    constants = weights.constants(variant)
    if variant.form == LIBRARY:

        def opened() -> Library:
            files = library_files.place(artifact, variant.files)
            return Library(files[LIBRARY_FILE], device)

        library: Library | Deferred
        if defer:
            library = Deferred(opened, constants)
        else:
            library = opened()
            library.bind(constants)
        captures = None
        if variant.cuda_graph and graphs is not None:
            captures = Graphs(
                library.run,
                device,
                graphs,
                name=variant.id,
                state=len(variant.state),
                written=variant.written,
            )
        return Program(variant, library, state, device, captures)
    graph = Graph(artifact, variant.files[SOURCE_FILE], constants)
    return Program(variant, graph, state, device)


def placed(guard: Guard, device: torch.device) -> Guard:
    """Return a guard with the device that the artifact is loaded for in place of the kind of device."""
    if guard.fact != "device" or guard.expected == devices.name(device):
        return guard
    return replace(guard, expected=devices.name(device))


Result = Callable[[Sequence[torch.Tensor], Tensors, Mapping[str, int]], Any]


def result(outputs: Node) -> Result:
    """Return a function that puts a program's outputs into the structure the model returns."""
    if isinstance(outputs, TensorLeaf):
        index = outputs.index
        return lambda made, _, __: made[index]

    def assembled(made: Sequence[torch.Tensor], tensors: Tensors, dims: Mapping[str, int]) -> Any:
        def leaf(node: Node) -> object:
            match node:
                case TensorLeaf():
                    return made[node.index]
                case InputLeaf():
                    return tensors[node.index]
                case ValueLeaf():
                    return node.value
                case DimLeaf():
                    return evaluate(node.size, dims)
            raise AssertionError(node)

        return assemble(outputs, leaf)

    return assembled
