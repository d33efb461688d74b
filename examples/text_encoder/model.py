"""A transformer that turns token ids into one unit vector for each text."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY = 30_522
POSITIONS = 512
LAYERS = 6
WIDTH = 384
HEADS = 6
HIDDEN = 1536


class Block(nn.Module):
    """Self-attention and a feed-forward network, each normalised first and added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(WIDTH)
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.project = nn.Linear(WIDTH, WIDTH)
        self.norm_feed = nn.LayerNorm(WIDTH)
        self.widen = nn.Linear(WIDTH, HIDDEN)
        self.narrow = nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        """Map `x`, float32 [batch, seq, WIDTH]; `keep`, bool [batch, 1, 1, seq], hides padding."""
        batch, seq, _ = x.shape
        heads = self.query_key_value(self.norm_attention(x)).view(batch, seq, 3, HEADS, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=keep)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, seq, WIDTH))
        fed: Tensor = self.narrow(F.gelu(self.widen(self.norm_feed(x))))
        return x + fed


class TextEncoder(nn.Module):
    """Token and position embeddings, `LAYERS` blocks, and the mean over the tokens kept."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(POSITIONS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Encode texts.

        Args:
            ids: int64 [batch, seq], seq <= POSITIONS.
            mask: int64 [batch, seq], 1 for a token and 0 for padding; at least one token in a row.

        Returns:
            float32 [batch, WIDTH], each row of length 1.
        """
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        keep = mask.bool()[:, None, None, :]
        for block in self.blocks:
            x = block(x, keep)
        weight = mask.unsqueeze(-1).to(x.dtype)
        mean = (self.norm(x) * weight).sum(1) / weight.sum(1).clamp(min=1)
        return F.normalize(mean, dim=-1)


def build() -> nn.Module:
    """Return the encoder with random weights, the same ones each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return TextEncoder().eval()


def example_inputs(batch: int = 8, seq: int = 128) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Return `(args, kwargs)` for texts of `seq` tokens and fewer, the same ones each time."""
    random = torch.Generator().manual_seed(1)
    ids = torch.randint(VOCABULARY, (batch, seq), generator=random)
    lengths = torch.linspace(seq, (seq + 1) // 2, batch).long()
    mask = (torch.arange(seq) < lengths[:, None]).long()
    return (), {"ids": ids, "mask": mask}
