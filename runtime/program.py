"""A variant that is loaded and bound to its weights: tensors in, tensors out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..formats.container import Artifact
from ..formats.expression import evaluate
from ..formats.guard import HOST
from ..formats.signature import DimLeaf, InputLeaf, Node, TensorLeaf, ValueLeaf
from ..formats.tree import assemble
from ..formats.variant import LIBRARY, Variant
from . import graph_source, library_files
from .aoti import Library
from .stats import Counter

LIBRARY_FILE = "model.so"
SOURCE_FILE = "graph.py"

Run = Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]
Tensors = tuple[torch.Tensor, ...]


class Program:
    """A variant, loaded.

    Attributes:
        variant: its record.
        guards: the guards that depend on the call and the process; the host's have been checked.
        run: takes the call's tensors in order and returns the program's outputs. It checks nothing.
        hits: how many calls it has answered.
    """

    def __init__(self, variant: Variant, run: Run) -> None:
        self.variant = variant
        self.guards = tuple(guard for guard in variant.guards if guard.subject != HOST)
        self.run = run
        self.hits = Counter()
        self.result = _result(variant.outputs)

    def __call__(self, tensors: Tensors, dims: Mapping[str, int]) -> Any:
        """Answer a call that the guards have accepted, in the model's own types."""
        return self.result(self.run(list(tensors)), tensors, dims)


def load(variant: Variant, artifact: Artifact, weights: Mapping[str, torch.Tensor]) -> Program:
    """Load one variant; its host guards have been checked.

    Raises:
        FormatError: a section is not the one that was recorded.
        LibraryError: the library does not load, or needs other constants than the manifest says.
    """
    constants = {name: weights[weight] for name, weight in variant.constants.items()}
    if variant.form == LIBRARY:
        files = library_files.place(artifact, variant.files)
        library = Library(files[LIBRARY_FILE])
        library.bind(constants)
        return Program(variant, library.run)
    forward = graph_source.load(artifact, variant.files[SOURCE_FILE], constants)
    return Program(variant, lambda tensors: forward(*tensors))


Result = Callable[[Sequence[torch.Tensor], Tensors, Mapping[str, int]], Any]


def _result(outputs: Node) -> Result:
    """Return a function that puts a program's outputs into the structure the model returns."""
    if isinstance(outputs, TensorLeaf):
        index = outputs.index
        return lambda made, _, __: made[index]

    def result(made: Sequence[torch.Tensor], tensors: Tensors, dims: Mapping[str, int]) -> Any:
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

    return result
