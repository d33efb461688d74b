"""The weights of all variants: each stored once, tied ones under one name."""

import ctypes
from dataclasses import replace

import torch

from ..formats.layout import axes
from ..formats.manifest import Weight, Weights
from ..formats.safetensors_header import ITEM_SIZES, write_header
from ..formats.step import Step
from . import structure
from .partition import Partitioned
from .step_graphs import StepGraphs

ALIGN = 64  # of the first tensor's bytes, and of all whose size is a multiple of it


class WeightTable:
    """Collects weights from the variants and says under which name each is stored."""

    def __init__(self) -> None:
        self._tensors: dict[str, torch.Tensor] = {}
        self._roles: dict[str, str] = {}

    def add(self, part: Partitioned) -> dict[str, str]:
        """Add a variant's weights; return its constants with the names that they are stored under.

        Two variants may have different tensors under one name (a constant that was computed while
        tracing): the second then gets another name.
        """
        return {slot: self._name(name, part) for slot, name in part.constants.items()}

    def add_state(self, part: Partitioned) -> tuple[str, ...]:
        """Add the buffers that a variant writes to; return the names that they are stored under."""
        return tuple(self._name(name, part) for name in part.state)

    def add_step(self, part: StepGraphs) -> tuple[dict[str, str], Step]:
        """Add what a training step takes and holds.

        Returns:
            The forward's constants with the names that they are stored under, and the step with those.
        """
        stored = {name: self._name(name, part) for name in part.weights}
        constants, behind = (
            {slot: stored[name] for slot, name in half.constants.items()}
            for half in (part.forward, part.backward)
        )
        taken = tuple(stored[name] for name in part.step.weights)
        return constants, replace(part.step, weights=taken, backward_constants=behind)

    def tie(self, module: torch.nn.Module) -> None:
        """Add every other name under which the model has a parameter that is there.

        Tracing keeps one of its names, and a checkpoint may have only another.
        """
        names = {_place(t): name for name, t in self._tensors.items() if t.numel()}
        for name, parameter in module.named_parameters(remove_duplicate=False):
            known = names.get(_place(structure.dense(parameter.detach())))
            if known is not None and name not in self._tensors:
                self._tensors[name] = self._tensors[known]
                self._roles[name] = self._roles[known]

    def record(self, section: str) -> Weights | None:
        """Return the manifest's record of the weights; None where there are none."""
        if not self._tensors:
            return None
        return Weights(
            section=section,
            tensors={
                name: _weight(tensor, self._roles[name]) for name, tensor in self._tensors.items()
            },
            aliases=self._aliases(),
        )

    def section(self) -> list[bytes | memoryview]:
        """Return the safetensors section, in pieces.

        Tensors whose size is a multiple of 64 bytes come first, then by the size of their items, so
        that as many as possible start at a multiple of 64 and all at a multiple of their item's size.
        """
        aliases = self._aliases()
        stored = {name: t for name, t in self._tensors.items() if name not in aliases}
        order = sorted(
            stored,
            key=lambda name: (stored[name].nbytes % ALIGN != 0, -stored[name].itemsize, name),
        )
        dense = {name: _in_memory_order(stored[name]) for name in order}
        header = write_header(
            {name: (_dtype(tensor), tuple(tensor.shape)) for name, tensor in dense.items()}, ALIGN
        )
        return [header, *(tensor_bytes(tensor) for tensor in dense.values())]

    def bytes(self) -> int:
        """Return how many bytes the stored weights take."""
        aliases = self._aliases()
        return sum(t.nbytes for name, t in self._tensors.items() if name not in aliases)

    def _name(self, name: str, part: Partitioned | StepGraphs) -> str:
        tensor = part.weights[name]
        unique, number = name, 2
        while unique in self._tensors and not _same(self._tensors[unique], tensor):
            unique, number = f"{name}#{number}", number + 1
        self._tensors.setdefault(unique, tensor)
        self._roles.setdefault(unique, part.roles[name] if unique == name else "constant")
        return unique

    def _aliases(self) -> dict[str, str]:
        first: dict[object, str] = {}
        aliases = {}
        for name in sorted(self._tensors):
            tensor = self._tensors[name]
            key = _place(tensor)
            if tensor.numel() and first.setdefault(key, name) != name:
                aliases[name] = first[key]
        return aliases


def _weight(tensor: torch.Tensor, role: str) -> Weight:
    return Weight(
        dtype=_dtype(tensor),
        shape=tuple(tensor.shape),
        layout=structure.tensor_layout(tensor),
        role=role,
    )


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype or one.stride() != other.stride():
        return False
    if one.device == other.device:
        return one.data_ptr() == other.data_ptr() or torch.equal(one, other)
    return torch.equal(one.cpu(), other.cpu())


def _place(tensor: torch.Tensor) -> object:
    """Return what two tensors have in common that are one and the same."""
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()


def _in_memory_order(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.permute(axes(structure.tensor_layout(tensor), tensor.dim()))
    return tensor.contiguous().cpu()


def tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """Return the memory of a contiguous tensor on the CPU, which the view keeps alive."""
    if tensor.numel() == 0:
        return memoryview(b"")
    array = (ctypes.c_ubyte * tensor.nbytes).from_address(tensor.data_ptr())
    # The array does not own the memory: the tensor must live as long.
    array._tensor = tensor  # type: ignore[attr-defined]
    return memoryview(array).cast("B")


def _dtype(tensor: torch.Tensor) -> str:
    name = structure.dtype_name(tensor.dtype)
    assert name in ITEM_SIZES, name
    return name
