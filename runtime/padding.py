"""A call that is smaller than a bucket: padded up, answered, and cut back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

import torch

from ..formats.guard import DIMS, Guard
from ..formats.layout import strides_of
from ..formats.signature import Signature, Size, TensorLeaf, walk
from . import samples
from .miss import Refusal
from .observe import Observed
from .program import Program, Tensors

Filler = Callable[[list[int]], torch.Tensor]


class Padded:
    """One program for calls of certain sizes below its bucket's.

    Attributes:
        program: the program that answers.
        variant, hits, result: the program's own.
    """

    def __init__(
        self,
        program: Program,
        signature: Signature,
        dims: Mapping[str, int],
        noise: torch.Generator | None = None,
    ) -> None:
        """Prepare for calls of the sizes `dims`.

        With `noise`, padding that may hold anything holds values drawn at random: for the proof that
        it may.
        """
        self._noise = noise
        self.program = program
        self.variant = program.variant
        self.hits = program.hits
        self.result = program.result
        fixed = program.variant.bucket.fixed()
        self._grow = {
            name: fixed[name] for name in program.variant.pad if fixed[name] != dims[name]
        }
        self._share = prod(dims[name] / size for name, size in self._grow.items())
        self._inputs = [self._input(path, leaf) for path, leaf in signature.tensors()]
        self._cuts = {
            leaf.index: [
                (axis, dims[size])
                for axis, size in enumerate(leaf.shape)
                if isinstance(size, str) and size in self._grow
            ]
            for _, leaf in walk(program.variant.outputs, "output")
            if isinstance(leaf, TensorLeaf)
        }

    def pad(self, tensors: Tensors) -> list[torch.Tensor]:
        """Return the call's tensors, grown to the bucket's sizes."""
        return [
            _grown(tensor, axes, fill)
            for tensor, (axes, fill) in zip(tensors, self._inputs, strict=True)
        ]

    def _filler(self, path: str, leaf: TensorLeaf) -> Filler:
        """Return what makes a tensor of a shape, in the leaf's layout, whose values are the padding's."""
        dtype: torch.dtype = getattr(torch, leaf.dtype)
        device = self.program.device
        if self._noise is not None and path not in self.variant.fill:
            noise = self._noise

            def noisy(shape: list[int]) -> torch.Tensor:
                return samples.in_layout(samples.values(leaf, shape, noise), leaf.layout).to(device)

            return noisy
        value = self.variant.fill.get(path, 0)

        def filled(shape: list[int]) -> torch.Tensor:
            strides = strides_of(leaf.layout, shape)
            return torch.empty_strided(shape, strides, dtype=dtype, device=device).fill_(value)

        return filled

    def run(self, tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Answer a call that the guards have accepted in its padded form."""
        self.program.padding.add(1 - self._share)
        made = self.program.run(self.pad(tuple(tensors)))
        return [_cut(tensor, self._cuts.get(i, [])) for i, tensor in enumerate(made)]

    def _input(self, path: str, leaf: TensorLeaf) -> tuple[dict[int, int], Filler]:
        axes = {
            axis: self._grow[size]
            for axis, size in enumerate(leaf.shape)
            if isinstance(size, str) and size in self._grow
        }
        return axes, self._filler(path, leaf)


def refusals(program: Program, signature: Signature, observed: Observed) -> list[Refusal]:
    """Return why a call cannot be padded up to the program's bucket; empty if it can.

    The call's own sizes must be at most the bucket's; every other guard must hold as it stands.
    """
    variant = program.variant
    fixed = variant.bucket.fixed()
    refused = []
    for name, low in variant.pad.items():
        size = observed.dims.get(name)
        if size is None or not low <= size <= fixed[name]:
            text = f"dims.{name}: expected {low}..{fixed[name]}, found {size}"
            refused.append(Refusal(f"dims.{name}", text))
    if program.relaxed is None:
        shapes = {path: leaf.shape for path, leaf in signature.tensors()}
        program.relaxed = tuple(_relaxed(guard, shapes, variant.pad) for guard in program.guards)
    return refused + observed.refusals(program.relaxed)


def _relaxed(guard: Guard, shapes: Mapping[str, tuple[Size, ...]], pad: Mapping[str, int]) -> Guard:
    """Return a guard on a size as one that the call's own size meets: all axes of a dim agree."""
    if guard.fact != "size" or guard.subject == DIMS:
        return guard
    size = shapes[guard.subject][guard.axis or 0]
    return replace(guard, expected=size) if isinstance(size, str) and size in pad else guard


def _grown(tensor: torch.Tensor, axes: Mapping[int, int], fill: Filler) -> torch.Tensor:
    if not axes:
        return tensor
    shape = [axes.get(axis, size) for axis, size in enumerate(tensor.shape)]
    padded = fill(shape)
    padded[tuple(slice(0, size) for size in tensor.shape)] = tensor
    return padded


def _cut(tensor: torch.Tensor, cuts: Sequence[tuple[int, int]]) -> torch.Tensor:
    for axis, size in cuts:
        tensor = tensor.narrow(axis, 0, size)
    return tensor.contiguous() if cuts else tensor
