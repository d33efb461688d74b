"""The weights of an artifact: mapped once, shared by every variant, checked before use.

For another device than the CPU one tensor after the other is read from the mapped file and copied there, and
the memory of what was read is given back: the host needs it for the largest tensor, not for all of them.
"""

import os
from collections.abc import Collection
from typing import Final

import torch

from ..formats import section as sections
from ..formats.container import Artifact
from ..formats.layout import strides_of
from ..formats.private_map import forget
from ..formats.safetensors_header import Entry, read_header
from ..formats.weights import check_stored
from .devices import CPU

CONTIGUOUS: Final = "contiguous"


class StoredWeights(dict[str, torch.Tensor]):
    """Weights by name.

    Attributes:
        places: of those that are mapped: where in which view they are.
    """

    def __init__(self) -> None:
        """Hold none."""
        super().__init__()
        self.places: dict[str, tuple[memoryview, int, int]] = {}

    def forget(self, name: str) -> None:
        """Give back the memory of one that is mapped and was not written to; it can be read as before."""
        if name in self.places:
            forget(*self.places[name])


def load(
    artifact: Artifact,
    device: torch.device = CPU,
    *,
    check: bool = True,
    file: str | os.PathLike[str] | None = None,
    only: Collection[str] | None = None,
) -> "StoredWeights":
    """Return the artifact's weights by name; tied weights are the same tensor.

    On the CPU they are tensors over one private mapping of the file: nothing is copied, and a page that
    is written to is copied by the system and never reaches the file. A tensor that has another order in
    the file than in memory is copied: one of a file of its own, of another layout than row-major.

    Args:
        artifact: an open artifact.
        device: where the weights are to be.
        check: read all bytes and hold them against their checksums (about 10 GB/s).
        file: that has the weights, where they are in one of their own and it is not beside the artifact.
        only: the names of the weights that are needed; all of them where left out.

    Raises:
        DigestError: the bytes are not the ones that were recorded.
        WeightsError: the section or the file is not what safetensors prescribes, or a tensor is missing
            or has another dtype or shape than the variants need.
        MissingWeightsError: the file with the weights is not there.
    """
    record = artifact.manifest.weights
    if record is not None and record.external is not None and only is not None and not only:
        return StoredWeights()  # no need of the file
    opened = artifact.weights_file(file)
    if record is None:
        return StoredWeights()
    if opened is not None:
        view, entries = opened.view, opened.entries
    else:
        assert record.section is not None
        view, entries = _section(artifact, record.section, check=check)
        check_stored(record, entries, _where(artifact, record.section))
    wanted = None if only is None else {record.aliases.get(name, name) for name in only}
    storage = torch.frombuffer(view, dtype=torch.uint8).untyped_storage()
    tensors = StoredWeights()
    for name, entry in sorted(entries.items(), key=lambda item: item[1].start):
        if wanted is not None and name not in wanted:
            continue
        if opened is not None and check:
            opened.check(name)
        weight = record.tensors[name]
        layout = weight.layout if opened is None else CONTIGUOUS
        mapped = _tensor(storage, entry, weight.shape, strides_of(layout, weight.shape))
        strides = strides_of(weight.layout, weight.shape)
        if device == CPU and mapped.stride() == strides:
            tensors[name] = mapped
            tensors.places[name] = view, entry.start, entry.end
        else:
            tensor = torch.empty_strided(weight.shape, strides, dtype=mapped.dtype, device=device)
            tensors[name] = tensor.copy_(mapped)
            forget(view, entry.start, entry.end)
    aliases = record.aliases.items()
    for name, kept in aliases:
        if kept in tensors:
            tensors[name] = tensors[kept]
    return tensors


def _section(artifact: Artifact, name: str, *, check: bool) -> tuple[memoryview, dict[str, Entry]]:
    """Map the section with the weights; return it, and which tensor is where in it."""
    section = artifact.section(name)
    view = artifact.map_private(name)
    if check:
        sections.check_bytes(section, view, str(artifact.path))
    return view, read_header(view, _where(artifact, name))


def _where(artifact: Artifact, section: str) -> str:
    return f"{artifact.path}: section {section!r}"


def _tensor(
    storage: torch.UntypedStorage, entry: Entry, shape: tuple[int, ...], strides: tuple[int, ...]
) -> torch.Tensor:
    dtype: torch.dtype = getattr(torch, entry.dtype)
    tensor = torch.empty(0, dtype=dtype, device=CPU)
    return tensor.set_(storage, entry.start // dtype.itemsize, shape, strides)


def dtype_name(dtype: torch.dtype) -> str:
    """Return the dtype as the formats write it: "float32"."""
    return str(dtype).removeprefix("torch.")


def describe(tensor: torch.Tensor) -> str:
    """Return dtype and shape in words: `float32 [384, 1536]`."""
    return f"{dtype_name(tensor.dtype)} {list(tensor.shape)}"
