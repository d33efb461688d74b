"""The decoder of gpu.py: layers like those of Llama, with and without a cache."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

EPSILON: Final = 1e-5


class RMSNorm(nn.Module):
    """The norm of Llama, as its code writes it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON)
        return (wide * scale).to(x.dtype) * self.weight


@dataclass(frozen=True, kw_only=True)
class Llama:
    """The sizes of a decoder."""

    layers: int
    hidden: int
    heads: int
    groups: int  # heads of keys and values
    head: int
    inner: int

    def weights(self) -> int:
        """Return how many weights its products have."""
        projections = 2 * self.hidden * self.head * (self.heads + self.groups)
        return self.layers * (projections + 3 * self.hidden * self.inner)

    def attention(self, queries: int, keys: int) -> int:
        """Return the operations of attention, where each query looks at all keys."""
        return 4 * queries * keys * self.layers * self.heads * self.head


LLAMA: Final = Llama(layers=4, hidden=4096, heads=32, groups=8, head=128, inner=14336)
SMALL_LLAMA: Final = Llama(layers=2, hidden=64, heads=4, groups=2, head=16, inner=128)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair of values by the angle of its position; the angles are [positions, head]."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Layer(nn.Module):
    """A layer of a decoder; `slots` is how many positions its cache holds, 0 for no cache."""

    keys: Tensor
    values: Tensor

    def __init__(self, size: Llama, slots: int) -> None:
        super().__init__()
        hidden, shared = size.hidden, size.groups * size.head
        self.head = size.head
        self.before_attention = RMSNorm(hidden)
        self.query = nn.Linear(hidden, size.heads * size.head, bias=False)
        self.key = nn.Linear(hidden, shared, bias=False)
        self.value = nn.Linear(hidden, shared, bias=False)
        self.out = nn.Linear(size.heads * size.head, hidden, bias=False)
        self.before_inner = RMSNorm(hidden)
        self.gate = nn.Linear(hidden, size.inner, bias=False)
        self.up = nn.Linear(hidden, size.inner, bias=False)
        self.down = nn.Linear(size.inner, hidden, bias=False)
        if slots:
            self.register_buffer("keys", torch.randn(1, size.groups, slots, size.head))
            self.register_buffer("values", torch.randn(1, size.groups, slots, size.head))

    def split(self, x: Tensor) -> Tensor:
        """Return [batch, tokens, width] as [batch, heads, tokens, head]."""
        return x.reshape(*x.shape[:2], -1, self.head).transpose(1, 2)

    def forward(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        position: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        normed = self.before_attention(x)
        query = rotate(self.split(self.query(normed)), cos, sin)
        key = rotate(self.split(self.key(normed)), cos, sin)
        value = self.split(self.value(normed))
        if position is not None:
            self.keys[:, :, position] = key
            self.values[:, :, position] = value
            key, value = self.keys, self.values
        attended = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None, enable_gqa=True
        )
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        normed = self.before_inner(x)
        down: Tensor = self.down(F.silu(self.gate(normed)) * self.up(normed))
        return x + down


class Decoder(nn.Module):
    """The layers of a decoder for one text; with `cached`, one token a call."""

    cos: Tensor
    sin: Tensor
    slots: Tensor

    def __init__(self, size: Llama, length: int, *, cached: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            Layer(size, length if cached else 0) for _ in range(size.layers)
        )
        self.norm = RMSNorm(size.hidden)
        half = torch.arange(0, size.head, 2, dtype=torch.float32) / size.head
        turns = torch.outer(torch.arange(length, dtype=torch.float32), 500_000.0**-half)
        angles = torch.cat((turns, turns), dim=-1)
        self.register_buffer("cos", angles.cos().to(self.norm.weight.dtype))
        self.register_buffer("sin", angles.sin().to(self.norm.weight.dtype))
        if cached:
            self.register_buffer("slots", torch.arange(length))

    def forward(self, x: Tensor, position: Tensor | None = None) -> Tensor:
        """Take [1, tokens, hidden] and, with a cache, the position of the one token, int64 [1]."""
        cos, sin, mask = self.cos, self.sin, None
        if position is not None:
            cos, sin = cos[position], sin[position]
            mask = (self.slots <= position)[None, :]
        for layer in self.layers:
            x = layer(x, cos, sin, position, mask)
        normed: Tensor = self.norm(x)
        return normed
