"""Models that train, each with what is special about it."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Mlp(nn.Module):
    """Linear layers, GELU and LayerNorm."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first = nn.Linear(width, 32)
        self.norm = nn.LayerNorm(32)
        self.second = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.second(self.norm(F.gelu(self.first(x))))
        return made


class Conv(nn.Module):
    """A convolution with batch norm, whose statistics each step changes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3)))
        return made


class Block(nn.Module):
    """A transformer block with dropout."""

    def __init__(self, width: int = 16, dropout: float = 0.1) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        batch, seq, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, seq, 3, 2, width // 2).unbind(2)
        mixed = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
        )
        x = x + self.dropout(self.out(mixed.transpose(1, 2).reshape(batch, seq, width)))
        made: Tensor = x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))
        return made


class Gpt(nn.Module):
    """A language model whose head is its embedding."""

    def __init__(self, words: int = 32, width: int = 16, layers: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, dropout=0.0) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        made: Tensor = self.head(self.norm(x))
        return made


class Losses(nn.Module):
    """Two losses, and what they are made of; one layer is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 1)
        self.two.requires_grad_(False)

    def forward(self, x: Tensor, label: Tensor, target: Tensor) -> dict[str, Tensor]:
        hidden = torch.relu(self.body(x))
        return {
            "class": F.cross_entropy(self.one(hidden), label),
            "value": F.mse_loss(self.two(hidden).squeeze(-1), target),
            "hidden": hidden,
        }


class Views(nn.Module):
    """Returns what it was given, a view of it, and what its layers made, which the backward makes again."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        made = x
        for layer in self.layers:
            made = checkpoint(
                lambda t, layer=layer: torch.tanh(layer(t)), made, use_reentrant=False
            )
        return x, x.transpose(0, 1), made


def seeded(make: type[nn.Module]) -> nn.Module:
    """Return a model of a class, the same each time, in eval mode."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make().eval()


def drawn(*shape: int, seed: int = 1) -> Tensor:
    """Return normal values, the same each time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
