"""The model that farm.py builds: two blocks of an encoder, batch 1 to 16, 64 tokens of 256 numbers."""

import torch
from torch import Tensor, nn

WIDTH, HEADS, LAYERS, TOKENS = 256, 4, 2, 64


class Block(nn.Module):
    """Attention and a multilayer perceptron, each behind a LayerNorm and with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Map float32 [batch, tokens, WIDTH] to the same."""
        shape = (*x.shape[:2], HEADS, WIDTH // HEADS)
        q, k, v = (
            part.view(shape).transpose(1, 2) for part in self.qkv(self.first(x)).chunk(3, -1)
        )
        seen = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
        made: Tensor = x + self.down(nn.functional.gelu(self.up(self.second(x))))
        return made


def build() -> nn.Module:
    """Return the model, the same one each time."""
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(LAYERS))).eval()


def example_inputs(batch: int) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Return one call."""
    random = torch.Generator().manual_seed(batch)
    return (torch.randn(batch, TOKENS, WIDTH, generator=random),), {}
