"""Calls drawn at random, of the sizes and values that a variant was built for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..formats.expression import evaluate
from ..formats.layout import strides_of
from ..formats.manifest import Manifest
from ..formats.signature import TensorLeaf
from ..formats.sizes import served
from ..formats.tree import arguments
from ..formats.variant import Variant


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One call: its sizes by dimension name, its tensors in order, and what to pass."""

    dims: Mapping[str, int]
    tensors: tuple[torch.Tensor, ...]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def draw(
    manifest: Manifest,
    variant: Variant,
    dims: Mapping[str, int] | None = None,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Call:
    """Draw a call for a variant.

    Args:
        manifest: the artifact's.
        variant: one of its variants.
        dims: sizes of the dimensions that have a range, or near ones if it serves no such call; what
            is left out gets a small size. A size that the variant pads up is drawn as it is given.
        seed: of the values; the same seed gives the same call.
        device: where the tensors are to be.
    """
    signature = manifest.signatures[variant.signature]
    sizes = served(variant, dims or {})
    sizes.update({name: dims[name] for name in variant.pad if dims and name in dims})
    generator = torch.Generator().manual_seed(seed)
    tensors = tuple(_tensor(leaf, sizes, generator).to(device) for _, leaf in signature.tensors())
    args, kwargs = arguments(signature, tensors)
    return Call(dims=sizes, tensors=tensors, args=args, kwargs=kwargs)


def _tensor(leaf: TensorLeaf, dims: Mapping[str, int], generator: torch.Generator) -> torch.Tensor:
    shape = [size if isinstance(size, int) else int(evaluate(size, dims)) for size in leaf.shape]
    return in_layout(values(leaf, shape, generator), leaf.layout)


def values(leaf: TensorLeaf, shape: list[int], generator: torch.Generator) -> torch.Tensor:
    """Draw a tensor of values like those that an input was recorded with."""
    dtype: torch.dtype = getattr(torch, leaf.dtype)
    sample = leaf.sample
    if dtype.is_floating_point or dtype.is_complex:
        drawn = torch.randn(shape, generator=generator, device="cpu") * sample.std + sample.mean
    else:
        drawn = torch.randint(sample.low, sample.high + 1, shape, generator=generator, device="cpu")
    return drawn.to(dtype)


def in_layout(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """Return a copy of the tensor that is dense in the layout."""
    shape = tuple(tensor.shape)
    strides = strides_of(layout, shape)
    copy = torch.empty_strided(shape, strides, dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor)
