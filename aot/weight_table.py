"""The weights of all variants: each stored once, tied ones under one name."""

import ctypes
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import torch

from ..formats.external import Digests, External
from ..formats.layout import axes
from ..formats.manifest import Weight, Weights
from ..formats.safetensors_header import ITEM_SIZES, write_header
from ..formats.section import sha256, xxh3
from ..formats.step import Step
from . import structure

ALIGN = 64  # of the first tensor's bytes, and of all whose size is a multiple of it


class Weighted(Protocol):
    """What has weights of the model.

    Attributes:
        weights: by name, dense.
        roles: what each of them is in the model: "parameter", "buffer" or "constant".
    """

    @property
    def weights(self) -> Mapping[str, torch.Tensor]: ...
    @property
    def roles(self) -> Mapping[str, str]: ...


class Held(Weighted, Protocol):
    """What a variant holds of the model.

    Attributes:
        constants: the weight in each slot, by its name in the model.
        state: the buffers that it writes to, by name.
    """

    @property
    def constants(self) -> Mapping[str, str]: ...
    @property
    def state(self) -> tuple[str, ...]: ...


class WeightTable:
    """Collects weights from the variants and says under which name each is stored."""

    def __init__(self) -> None:
        self._tensors: dict[str, torch.Tensor] = {}
        self._roles: dict[str, str] = {}
        self._renamed: dict[str, str] = {}

    def add(self, part: Held) -> dict[str, str]:
        """Add a variant's weights; return its constants with the names that they are stored under.

        Two variants may have different tensors under one name (a constant that was computed while
        tracing): the second then gets another name.
        """
        return {slot: self._name(name, part) for slot, name in part.constants.items()}

    def add_state(self, part: Held) -> tuple[str, ...]:
        """Add the buffers that a variant writes to; return the names that they are stored under."""
        return tuple(self._name(name, part) for name in part.state)

    def add_step(self, part: Weighted, step: Step) -> Step:
        """Add what a training step takes and its backward holds; return it with the names of these."""
        constants = step.backward_constants.items()
        return replace(
            step,
            weights=tuple(self._name(name, part) for name in step.weights),
            backward_constants={slot: self._name(name, part) for slot, name in constants},
        )

    def tie(self, module: torch.nn.Module) -> None:
        """Add every other name under which the model has a parameter that is there.

        Tracing keeps one of its names, and a checkpoint may have only another.
        """
        names = {place(t): name for name, t in self._tensors.items() if t.numel()}
        for name, parameter in module.named_parameters(remove_duplicate=False):
            known = names.get(place(structure.dense(parameter.detach())))
            if known is not None and name not in self._tensors:
                self._tensors[name] = self._tensors[known]
                self._roles[name] = self._roles[known]

    def renamed(self) -> dict[str, str]:
        """Return the model's own name for each weight that is stored under another."""
        return dict(self._renamed)

    def tied(self, module: torch.nn.Module) -> dict[str, str]:
        """Return, for each weight that the model has under several names, the first of these."""
        named: dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
        named |= dict(module.named_buffers(remove_duplicate=False))
        first: dict[object, str] = {}
        several = set()
        for name in sorted(named):
            where = place(structure.dense(named[name].detach()))
            if first.setdefault(where, name) != name:
                several.add(where)
        places = {name: place(tensor) for name, tensor in self._tensors.items() if tensor.numel()}
        return {name: first[where] for name, where in places.items() if where in several}

    def add_name(self, name: str, tensor: torch.Tensor, role: str) -> None:
        """Add a name for a tensor that is there under another; nothing where the name is taken."""
        self._tensors.setdefault(name, tensor)
        self._roles.setdefault(name, role)

    def record(self, section: str, external: External | None = None) -> Weights | None:
        """Return the manifest's record of the weights; None where there are none.

        Args:
            section: the name of the section that they are in.
            external: the file that they are in instead.
        """
        if not self._tensors:
            return None
        return Weights(
            section=section if external is None else None,
            external=external,
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
        dense = {name: _in_memory_order(tensor) for name, tensor in self._in_order()}
        return [_header(dense), *(tensor_bytes(tensor) for tensor in dense.values())]

    def write_file(self, path: Path) -> dict[str, Digests]:
        """Write the safetensors file; return the digests of its tensors.

        In the order of the section, but each tensor in row-major order, as whoever reads such a file
        expects it. One tensor at a time is copied to the CPU.
        """
        digests = {}
        with path.open("wb") as file:
            file.write(_header(dict(self._in_order())))
            for name, tensor in self._in_order():
                data = tensor_bytes(tensor.contiguous().cpu())
                file.write(data)
                digests[name] = Digests(digest=sha256(data), checksum=xxh3(data))
            file.flush()
            os.fsync(file.fileno())
        return digests

    def _in_order(self) -> list[tuple[str, torch.Tensor]]:
        """Return the stored tensors in their order in the file."""
        aliases = self._aliases()
        stored = [item for item in self._tensors.items() if item[0] not in aliases]
        return sorted(
            stored, key=lambda item: (item[1].nbytes % ALIGN != 0, -item[1].itemsize, item[0])
        )

    def bytes(self) -> int:
        """Return how many bytes the stored weights take."""
        aliases = self._aliases()
        return sum(t.nbytes for name, t in self._tensors.items() if name not in aliases)

    def _name(self, name: str, part: Weighted) -> str:
        tensor = part.weights[name]
        unique, number = name, 2
        while unique in self._tensors and not same(self._tensors[unique], tensor):
            unique, number = f"{name}#{number}", number + 1
        self._tensors.setdefault(unique, tensor)
        self._roles.setdefault(unique, part.roles[name] if unique == name else "constant")
        if unique != name:
            self._renamed[unique] = name
        return unique

    def _aliases(self) -> dict[str, str]:
        first: dict[object, str] = {}
        aliases = {}
        for name in sorted(self._tensors):
            tensor = self._tensors[name]
            key = place(tensor)
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


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype or one.stride() != other.stride():
        return False
    if one.device == other.device:
        return one.data_ptr() == other.data_ptr() or torch.equal(one, other)
    return torch.equal(one.cpu(), other.cpu())


def place(tensor: torch.Tensor) -> object:
    """Return what two tensors have in common that are one and the same."""
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()


def _header(tensors: Mapping[str, torch.Tensor]) -> bytes:
    forms = {name: (_dtype(tensor), tuple(tensor.shape)) for name, tensor in tensors.items()}
    return write_header(forms, ALIGN)


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
