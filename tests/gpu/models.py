"""The models that the GPU tests compile, and calls of them."""

from typing import Any

import torch
from torch import Tensor, nn

WIDTH, CACHE = 64, 16


class Mlp(nn.Module):
    """Two linear layers; takes x, float32 [batch, 64]."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH))
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Return float32 [batch, 64]."""
        made: Tensor = self.head(self.body(x))
        return made


class Step(nn.Module):
    """A step that writes its key into a cache at a position, and attends to what is there."""

    cache: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.key = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("cache", torch.zeros(CACHE, WIDTH))

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        """Take x, float32 [1, 64], and position, int64 [1]; return float32 [1, 64]."""
        self.cache.index_copy_(0, position, self.key(x))
        weights = torch.softmax(x @ self.cache.t(), -1)
        return weights @ self.cache


class Mean(nn.Module):
    """A masked mean: x is float32 [batch, seq, 64], mask float32 [batch, seq]."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return float32 [batch, 64]."""
        hidden = torch.tanh(self.linear(x)) * mask.unsqueeze(-1)
        return hidden.sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


def seeded(model: type[nn.Module]) -> Any:
    """Return a model with random weights on the CPU, the same ones each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return model().eval()


def drawn(*shape: int, seed: int = 0, device: str = "cuda") -> Tensor:
    """Return a tensor of random values, the same ones each time."""
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return values.to(device)


def close(made: Any, expected: Any) -> bool:
    """Return whether two tensors are alike up to rounding, and on the same device."""
    return bool(
        made.device == expected.device
        and made.dtype == expected.dtype
        and torch.allclose(made, expected, rtol=1e-3, atol=1e-4)
    )
