"""Weights in the order in which kernels read them: packed once, shared by all that take them so."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ..formats.packing import BFLOAT16, BLOCKS, LINEAR, Packing
from ..formats.variant import Variant


class PackedWeights:
    """The packed copies of one set of weights.

    A weight may be packed in several ways; ways that come to the same order of memory share one copy.
    """

    def __init__(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Pack nothing yet.

        Args:
            weights: by name, on the CPU; nobody writes to those that are packed as long as a program is
                bound to the copies.
        """
        self._weights = weights
        self._made: dict[tuple[str, Packing], torch.Tensor] = {}
        self._plain: set[str] = set()
        self._orders: dict[tuple[str, bytes], torch.Tensor] = {}

    def constants(self, variant: Variant) -> Mapping[str, torch.Tensor]:
        """Return what is bound to each slot of a variant; what is not asked for is not packed."""
        return _Constants(self, variant)

    def get(self, name: str, packing: Packing | None) -> torch.Tensor:
        """Return a weight, as it is or packed."""
        if packing is not None:
            return self._packed(name, packing)
        self._plain.add(name)
        return self._weights[name]

    def packed_only(self) -> list[str]:
        """Return the names of those that were asked for in no other way than packed."""
        return sorted({name for name, _ in self._made} - self._plain)

    def nbytes(self) -> int:
        """Return how many bytes the packed copies take."""
        return sum(map(_nbytes, self._orders.values()))

    def _packed(self, name: str, packing: Packing) -> torch.Tensor:
        key = name, packing
        if key not in self._made:
            made = pack(self._weights[name], packing)
            self._made[key] = self._orders.setdefault((name, _order(made)), made)
        return self._made[key]


class _Constants(Mapping[str, torch.Tensor]):
    """The constants of a variant by slot."""

    def __init__(self, weights: PackedWeights, variant: Variant) -> None:
        self._weights = weights
        self._variant = variant

    def __getitem__(self, slot: str) -> torch.Tensor:
        name = self._variant.constants[slot]
        return self._weights.get(name, self._variant.packed.get(slot))

    def __iter__(self) -> Iterator[str]:
        return iter(self._variant.constants)

    def __len__(self) -> int:
        return len(self._variant.constants)


def _nbytes(packed: torch.Tensor) -> int:
    return int(_mkldnn()._nbytes(packed)) if packed.is_mkldnn else packed.nbytes


def _order(packed: torch.Tensor) -> bytes:
    """Return in which order of memory a weight is, as far as it matters to those that take it."""
    if packed.is_mkldnn:
        return bytes(_mkldnn()._get_mkldnn_serialized_md(packed).tolist())
    return str(packed.shape).encode()


def blocks(matrix: torch.Tensor, block: int) -> torch.Tensor:
    """Return a matrix [in, out] as [out / block, in, block], filled up with 0."""
    width = matrix.shape[1]
    whole = torch.nn.functional.pad(matrix, (0, -width % block))
    return whole.reshape(matrix.shape[0], -1, block).transpose(0, 1).contiguous()


def pack(weight: torch.Tensor, packing: Packing) -> torch.Tensor:
    """Return a copy of a weight in another order: oneDNN's fastest here, in its own layout, or in blocks.

    It is rounded where the packing says so.
    """
    with torch.no_grad(), torch._C.DisableTorchFunction():
        if packing.dtype == BFLOAT16:
            weight = weight.bfloat16()
        if packing.kind == BLOCKS:
            return blocks(weight if packing.transposed else weight.t(), packing.block)
        if packing.kind == LINEAR:
            dense = weight.t().contiguous() if packing.transposed else weight
            return _tensor(_mkldnn()._reorder_linear_weight(dense, packing.rows or None))
        return _tensor(
            _mkldnn()._reorder_convolution_weight(
                weight,
                packing.padding,
                packing.stride,
                packing.dilation,
                packing.groups,
                packing.input,
            )
        )


def _mkldnn() -> Any:
    return torch.ops.mkldnn


def _tensor(made: Any) -> torch.Tensor:
    assert isinstance(made, torch.Tensor)
    return made
