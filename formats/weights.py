"""The record of the weights, and what holds the stored tensors against it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from . import external as externals
from .errors import ManifestError, WeightsError
from .external import External
from .layout import axes
from .safetensors_header import ITEM_SIZES, Entry
from .signature_check import check_tensor
from .strict_json import show

ROLES: Final = ("parameter", "buffer", "constant")


@dataclass(frozen=True, kw_only=True, slots=True)
class Weight:
    """One parameter, buffer or constant of the model, as the variants were compiled for it.

    Attributes:
        dtype: as torch prints it, without the module: "float32".
        shape: the size of each axis.
        layout: "contiguous", or the axes from the outermost in memory to the innermost: "0,2,3,1".
            In a section the tensor is stored with its axes in that order.
        role: "parameter", "buffer" (both are in the model's state_dict) or "constant" (is not).
    """

    dtype: str
    shape: tuple[int, ...]
    layout: str = "contiguous"
    role: str = "parameter"


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """Where the weights are, and what they must be.

    Attributes:
        section: name of the safetensors section; null where they are in a file of their own.
        external: that file; null where they are in a section.
        tensors: every weight by name, tied ones under each of their names.
        aliases: for each tied weight that is not stored under its own name, the one it is stored
            as.
    """

    section: str | None = None
    external: External | None = None
    tensors: dict[str, Weight]
    aliases: dict[str, str] = field(default_factory=dict)

    def stored(self) -> list[str]:
        """Return the names that tensors are stored under, each once."""
        return [name for name in self.tensors if name not in self.aliases]

    def nbytes(self) -> int:
        """Return how many bytes the stored tensors take."""
        stored = (self.tensors[name] for name in self.stored())
        return sum(math.prod(weight.shape) * ITEM_SIZES[weight.dtype] for weight in stored)


def check(weights: Weights, where: str) -> None:
    """Refuse weights that no safetensors file can hold, and aliases and digests that lead nowhere.

    Raises:
        ManifestError: naming the weight.
    """
    for name, weight in weights.tensors.items():
        place = f"{where}: {show(name)}"
        check_tensor(weight.dtype, weight.shape, weight.layout, place)
        if weight.role not in ROLES:
            expected = f"one of {', '.join(ROLES)}"
            raise ManifestError(place, found=f"role {show(weight.role)}", expected=expected)
        if weight.dtype not in ITEM_SIZES:
            expected = f"one of {', '.join(ITEM_SIZES)}"
            raise ManifestError(place, found=f"dtype {weight.dtype}", expected=expected)
    for name, stored in weights.aliases.items():
        same = _form(weights.tensors.get(name)) == _form(weights.tensors.get(stored))
        if name not in weights.tensors or not same or stored in weights.aliases:
            found = f"{show(name)} as an alias of {show(stored)}"
            expected = "two weights that are alike, the second one stored"
            raise ManifestError(where, found=found, expected=expected)
    if weights.external is not None:
        externals.check(weights.external, weights.stored(), f"{where}: external")


def _form(weight: Weight | None) -> object:
    """Return what two tied weights have in common."""
    return None if weight is None else (weight.dtype, weight.shape, weight.layout)


def check_stored(weights: Weights, entries: Mapping[str, Entry], where: str) -> None:
    """Refuse stored tensors of a section that are not the ones of the record.

    Args:
        weights: the record, which has been checked.
        entries: the tensors of the section.
        where: for messages.

    Raises:
        WeightsError: a tensor is missing, is there without being listed, has another dtype or
            shape, or does not start at a multiple of its item's size.
    """
    listed = set(weights.stored())
    if listed != entries.keys():
        name = min(listed ^ entries.keys())
        found = "a tensor that is not listed" if name in entries else "no such tensor"
        expected = "the tensors that the manifest lists"
        raise WeightsError(f"{where}: tensor {show(name)}", found=found, expected=expected)
    for name in listed:
        weight = weights.tensors[name]
        shape = tuple(weight.shape[axis] for axis in axes(weight.layout, len(weight.shape)))
        _check_entry(name, weight.dtype, shape, entries, where)


def check_external(weights: Weights, entries: Mapping[str, Entry], where: str) -> None:
    """Refuse tensors of a file that are not the ones of the record; it may have others besides.

    Args:
        weights: the record, which has been checked.
        entries: the tensors of the file, each in row-major order whatever its layout.
        where: for messages.

    Raises:
        WeightsError: a tensor is missing, has another dtype or shape, or does not start at a multiple
            of its item's size.
    """
    for name in weights.stored():
        weight = weights.tensors[name]
        _check_entry(name, weight.dtype, tuple(weight.shape), entries, where)


def _check_entry(
    name: str, dtype: str, shape: tuple[int, ...], entries: Mapping[str, Entry], where: str
) -> None:
    place = f"{where}: tensor {show(name)}"
    entry = entries.get(name)
    if entry is None:
        expected = "the tensors that the manifest lists"
        raise WeightsError(place, found="no such tensor", expected=expected)
    if (entry.dtype, entry.shape) != (dtype, shape):
        found, expected = f"{entry.dtype} {entry.shape}", f"{dtype} {shape}"
        raise WeightsError(place, found=found, expected=expected)
    size = ITEM_SIZES[dtype]
    if entry.start % size:
        raise WeightsError(
            place, found=f"a start at byte {entry.start}", expected=f"a multiple of {size}"
        )
