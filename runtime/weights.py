"""The weights of an artifact: mapped once, shared by every variant, checked before use."""

import torch

from ..formats import section as sections
from ..formats.container import Artifact
from ..formats.layout import strides_of
from ..formats.safetensors_header import read_header
from ..formats.weights import check_stored


def load(artifact: Artifact, *, check: bool = True) -> dict[str, torch.Tensor]:
    """Return the artifact's weights by name, as tensors over one private mapping of the file.

    Tied weights are the same tensor. Nothing is copied; a page that is written to is copied by the
    system and never reaches the file.

    Args:
        artifact: an open artifact.
        check: read all bytes once and hold them against their checksum (about 10 GB/s).

    Raises:
        DigestError: the bytes are not the ones that were recorded.
        WeightsError: the section is not what safetensors prescribes, or a tensor is missing or has
            another dtype or shape than the variants need.
    """
    weights = artifact.manifest.weights
    if weights is None:
        return {}
    section = artifact.section(weights.section)
    view = artifact.map_private(section.name)
    if check:
        sections.check_bytes(section, view, str(artifact.path))
    where = f"{artifact.path}: section {section.name!r}"
    entries = read_header(view, where)
    check_stored(weights, entries, where)
    storage = torch.frombuffer(view, dtype=torch.uint8).untyped_storage()
    tensors: dict[str, torch.Tensor] = {}
    for name, entry in entries.items():
        weight = weights.tensors[name]
        dtype: torch.dtype = getattr(torch, entry.dtype)
        strides = strides_of(weight.layout, weight.shape)
        tensor = torch.empty(0, dtype=dtype)
        tensors[name] = tensor.set_(storage, entry.start // dtype.itemsize, weight.shape, strides)
    return tensors | {name: tensors[stored] for name, stored in weights.aliases.items()}


def on(device: torch.device, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the weights on a device, each copied there once; tied ones are tied there, too.

    What is on the device already is not copied. The source is read page by page, so the host needs no
    memory for it beyond the mapping.
    """
    if device.type == "cpu":
        return tensors
    moved: dict[int, torch.Tensor] = {}
    for tensor in tensors.values():
        if id(tensor) not in moved:
            copy = torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device
            )
            moved[id(tensor)] = copy.copy_(tensor)
    return {name: moved[id(tensor)] for name, tensor in tensors.items()}


def dtype_name(dtype: torch.dtype) -> str:
    """Return the dtype as the formats write it: "float32"."""
    return str(dtype).removeprefix("torch.")


def describe(tensor: torch.Tensor) -> str:
    """Return dtype and shape in words: `float32 [384, 1536]`."""
    return f"{dtype_name(tensor.dtype)} {list(tensor.shape)}"
