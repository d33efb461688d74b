"""A small language model over bytes; `forward` returns the loss, so that it is compiled, too."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BYTES = 256
LAYERS = 4
WIDTH = 128
HEADS = 4
LENGTH = 64  # bytes of a text
BATCH = 16


class Block(nn.Module):
    """Causal self-attention and a feed-forward network, each normalised first and added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(WIDTH)
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.project = nn.Linear(WIDTH, WIDTH)
        self.norm_feed = nn.LayerNorm(WIDTH)
        self.widen = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Map `x`, float32 [batch, seq, WIDTH]."""
        batch, seq, _ = x.shape
        heads = self.query_key_value(self.norm_attention(x)).view(batch, seq, 3, HEADS, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, seq, WIDTH))
        fed: Tensor = self.narrow(F.gelu(self.widen(self.norm_feed(x))))
        return x + fed


class LanguageModel(nn.Module):
    """Embeddings, `LAYERS` blocks, and a head that is the embedding of the bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = nn.Embedding(BYTES, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, BYTES, bias=False)
        self.head.weight = self.bytes.weight

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy of the next byte, in nats.

        Args:
            ids, targets: int64 [batch, seq], seq <= LENGTH.
        """
        x = self.bytes(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        scores = self.head(self.norm(x))
        return F.cross_entropy(scores.flatten(0, 1), targets.flatten())


def build() -> nn.Module:
    """Make the model, the same each time, in eval mode: its `train()` is the caller's."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LanguageModel()
        for parameter in model.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
        return model.eval()


def example_inputs(batch: int) -> tuple[tuple[Tensor, Tensor], dict[str, Tensor]]:
    """Return a call for the builder."""
    generator = torch.Generator().manual_seed(0)
    text = torch.randint(BYTES, (batch, LENGTH + 1), generator=generator)
    return (text[:, :-1].contiguous(), text[:, 1:].contiguous()), {}
