"""The models of tune.py, in float32, of the sizes that docs/performance.md has limits for.

What a call moves and computes at the least is counted as in gpu_models.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import gpu_models
from gpu_models import Args, Case

TABLES: Final = 26  # of the ranker, one for each of its categories


class Attention(nn.Module):
    """Self-attention; with a past, of one more token over it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(
        self, x: Tensor, past: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Take [batch, tokens, width], and keys and values of [batch, heads, past, head]."""
        batch, tokens, _ = x.shape
        parts = self.query_key_value(x).view(batch, tokens, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        keys, values = key, value
        if past is not None:
            keys, values = torch.cat((past[0], key), dim=2), torch.cat((past[1], value), dim=2)
        mixed = F.scaled_dot_product_attention(query, keys, values)
        return self.out(mixed.transpose(1, 2).reshape(x.shape)), key, value


class Layer(nn.Module):
    """Attention and a feed-forward network, each normalised first."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.before_attention, self.before_inner = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(
        self, x: Tensor, past: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Take what Attention takes; also return the keys and values of the tokens."""
        mixed, key, value = self.attention(self.before_attention(x), past)
        x = x + mixed
        return x + self.narrow(F.gelu(self.widen(self.before_inner(x)))), key, value


class Encoder(nn.Module):
    """Layers over all tokens at once."""

    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """Take and return [batch, tokens, width]."""
        for layer in self.layers:
            x = layer(x)[0]
        made: Tensor = self.norm(x)
        return made


class DecodeStep(nn.Module):
    """One token after a past, whose keys and values the caller keeps."""

    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Take [1, 1, width] and [layers, 1, heads, past, head]; return the token's keys, too."""
        new = []
        for i, layer in enumerate(self.layers):
            x, key, value = layer(x, (keys[i], values[i]))
            new.append((key, value))
        return self.norm(x), torch.stack([k for k, _ in new]), torch.stack([v for _, v in new])


class Ranker(nn.Module):
    """Categories looked up, numbers through a layer, and layers over both."""

    def __init__(self, rows: int, width: int, numbers: int, inner: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(TABLES))
        self.bottom = nn.Sequential(nn.Linear(numbers, inner), nn.ReLU())
        self.top = nn.Sequential(
            nn.Linear(TABLES * width + inner, inner), nn.ReLU(), nn.Linear(inner, 1), nn.Sigmoid()
        )

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        """Take float32 [batch, numbers] and int64 [batch, 26]; return [batch, 1]."""
        found = [table(categories[:, i]) for i, table in enumerate(self.tables)]
        made: Tensor = self.top(torch.cat([self.bottom(numbers), *found], dim=1))
        return made


def encoder(batch: int) -> Callable[[bool], Case]:
    """Return what makes an encoder for so many texts of 128 tokens."""

    def case(small: bool) -> Case:
        layers, width, tokens = (1, 32, 8) if small else (6, 512, 128)
        weights, rows = 12 * layers * width * width, batch * tokens
        return Case(
            model=lambda: Encoder(layers, width, width // (16 if small else 64)),
            inputs=lambda: (torch.randn(batch, tokens, width),),
            values=weights + 2 * rows * width,
            flops=2 * rows * weights + 4 * rows * tokens * width * layers,
        )

    return case


def conv(small: bool) -> Case:
    """Make ResNet-50 for one picture, in the layout that users have."""
    made = gpu_models.resnet(1)(small)

    def picture() -> Args:
        return tuple(tensor.contiguous() for tensor in made.inputs())

    def model() -> nn.Module:
        as_is: nn.Module = made.model().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        return as_is

    return replace(made, model=model, inputs=picture)


def ranker(small: bool) -> Case:
    """Make a ranker of 64 candidates."""
    rows, width, numbers, inner, batch = (50, 8, 5, 16, 4) if small else (20_000, 16, 13, 256, 64)
    layers = numbers * inner + (TABLES * width + inner) * inner + inner

    def call() -> Args:
        return torch.randn(batch, numbers), torch.randint(rows, (batch, TABLES))

    return Case(
        model=lambda: Ranker(rows, width, numbers, inner),
        inputs=call,
        values=layers + batch * (numbers + TABLES * (2 + width)),
        flops=2 * batch * layers,
    )


def decode(small: bool) -> Case:
    """Make a step that reads every weight for one token."""
    layers, width, past = (1, 32, 7) if small else (4, 1024, 127)
    head = 16 if small else 64
    weights, cache = 12 * layers * width * width, 2 * layers * width * past

    def call() -> Args:
        shape = (layers, 1, width // head, past, head)
        return torch.randn(1, 1, width), torch.randn(shape), torch.randn(shape)

    return Case(
        model=lambda: DecodeStep(layers, width, width // head),
        inputs=call,
        values=weights + cache,
        flops=2 * weights + 2 * cache,
    )


def chain(small: bool) -> Case:
    """Make what only moves memory: three large tensors in, one out."""
    side = 64 if small else 4096
    return Case(
        model=lambda: gpu_models.Chain(side),
        inputs=lambda: tuple(torch.randn(side, side) for _ in range(3)),
        values=4 * side * side,
        flops=0,
    )


CASES: Final[Mapping[str, Callable[[bool], Case]]] = {
    "encoder-1": encoder(1),
    "encoder-8": encoder(8),
    "conv": conv,
    "ranker": ranker,
    "decode": decode,
    "chain": chain,
}
# Sizes of the batch for an artifact of several buckets; the other models' batch is part of them.
BUCKETS: Final = (1, 2, 4, 8)


def module(case: Case) -> nn.Module:
    """Return the module in eval mode, with the same random weights each time."""
    return gpu_models.module(case, "cpu")


def inputs(case: Case) -> Args:
    """Return the arguments of the call, the same each time."""
    return gpu_models.inputs(case, "cpu")
