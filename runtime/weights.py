"""The weights of an artifact: mapped once, shared by every variant, checked before use."""

import ctypes
import os
from typing import Any

import torch

from ..formats import section as sections
from ..formats.container import Artifact
from ..formats.layout import axes
from ..formats.manifest import Weight
from ..formats.safetensors_header import Entry, read_header
from .errors import StateError


def load(artifact: Artifact, *, check: bool = True) -> dict[str, torch.Tensor]:
    """Return the artifact's weights by name, as tensors over one private mapping of the file.

    Tied weights are the same tensor. Nothing is copied; a page that is written to is copied by the
    system and never reaches the file.

    Args:
        artifact: an open artifact.
        check: read all bytes once and hold them against their checksum (about 10 GB/s).

    Raises:
        DigestError: the bytes are not the ones that were recorded.
        WeightsError: the section is not what safetensors prescribes.
        StateError: a tensor is missing, or has another dtype or shape than the variants need.
    """
    weights = artifact.manifest.weights
    if weights is None:
        return {}
    section = artifact.manifest.section(weights.section)
    where = f"{artifact.path}: section {section.name!r}"
    start = artifact.data + section.offset
    storage: Any = torch.UntypedStorage.from_file(
        os.fspath(artifact.path), shared=False, nbytes=start + section.length
    )
    view = _bytes(storage, start, section.length)
    if check:
        sections.check_bytes(section, view, str(artifact.path))
    entries = read_header(view, where)
    tensors: dict[str, torch.Tensor] = {}
    for name, weight in weights.tensors.items():
        if name not in weights.aliases:
            tensors[name] = _tensor(storage, start, entries, name, weight, where)
    for name, stored in weights.aliases.items():
        _expect(where, name, weights.tensors[name], weights.tensors[stored])
        tensors[name] = tensors[stored]
    return tensors


def dtype_name(dtype: torch.dtype) -> str:
    """Return the dtype as the formats write it: "float32"."""
    return str(dtype).removeprefix("torch.")


def describe(tensor: torch.Tensor) -> str:
    """Return dtype and shape in words: `float32 [384, 1536]`."""
    return f"{dtype_name(tensor.dtype)} {list(tensor.shape)}"


def _tensor(
    storage: torch.UntypedStorage,
    start: int,
    entries: dict[str, Entry],
    name: str,
    weight: Weight,
    where: str,
) -> torch.Tensor:
    entry = entries.get(name)
    if entry is None:
        expected = f"{weight.dtype} {list(weight.shape)}"
        raise StateError(f"{where}: {name}", found="no such tensor", expected=expected)
    order = axes(weight.layout, len(weight.shape), f"{where}: {name}")
    stored = tuple(weight.shape[axis] for axis in order)
    _expect(where, name, Weight(dtype=weight.dtype, shape=stored), entry)
    dtype: torch.dtype = getattr(torch, entry.dtype)
    offset = start + entry.start
    if offset % dtype.itemsize:
        raise StateError(
            f"{where}: {name}",
            found=f"byte offset {offset}",
            expected=f"a multiple of {dtype.itemsize}",
        )
    strides = [1] * len(stored)
    for axis in range(len(stored) - 1, 0, -1):
        strides[axis - 1] = strides[axis] * max(stored[axis], 1)
    tensor = torch.empty(0, dtype=dtype)
    tensor.set_(storage, offset // dtype.itemsize, stored, strides)
    return tensor.permute([order.index(axis) for axis in range(len(order))])


def _expect(where: str, name: str, expected: Weight, found: Weight | Entry) -> None:
    if (found.dtype, tuple(found.shape)) != (expected.dtype, tuple(expected.shape)):
        raise StateError(
            f"{where}: {name}",
            found=f"{found.dtype} {list(found.shape)}",
            expected=f"{expected.dtype} {list(expected.shape)}",
        )


def _bytes(storage: torch.UntypedStorage, start: int, length: int) -> memoryview:
    array = (ctypes.c_ubyte * length).from_address(storage.data_ptr() + start)
    return memoryview(array).cast("B")
