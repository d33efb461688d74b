"""A language model with two methods: `prefill` reads a prompt, `decode` adds one token.

The architecture is Llama's (https://arxiv.org/abs/2307.09288): normalised by the root of the mean square,
positions by rotation, fewer heads for keys and values than for queries, and gated feed-forward networks.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY = 8_000
CAPACITY = 256  # tokens, of a prompt and what is added to it
LAYERS = 4
WIDTH = 512
HEADS = 8
KEY_HEADS = 4
HEAD = WIDTH // HEADS
HIDDEN = 1408


class Cache(NamedTuple):
    """The keys and values of the tokens so far, for each layer: float32 [batch, KEY_HEADS, CAPACITY, HEAD]."""

    keys: list[Tensor]
    values: list[Tensor]


class Block(nn.Module):
    """Self-attention and a feed-forward network, each normalised first and added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_attention = nn.RMSNorm(WIDTH, eps=1e-5)
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.key = nn.Linear(WIDTH, KEY_HEADS * HEAD, bias=False)
        self.value = nn.Linear(WIDTH, KEY_HEADS * HEAD, bias=False)
        self.project = nn.Linear(WIDTH, WIDTH, bias=False)
        self.norm_feed = nn.RMSNorm(WIDTH, eps=1e-5)
        self.gate = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.widen = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.narrow = nn.Linear(HIDDEN, WIDTH, bias=False)

    def heads(self, x: Tensor, turn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, float32 [batch, heads, tokens, HEAD]."""
        batch, tokens, _ = x.shape
        x = self.norm_attention(x)
        query = self.query(x).view(batch, tokens, HEADS, HEAD).transpose(1, 2)
        key = self.key(x).view(batch, tokens, KEY_HEADS, HEAD).transpose(1, 2)
        value = self.value(x).view(batch, tokens, KEY_HEADS, HEAD).transpose(1, 2)
        return rotated(query, turn), rotated(key, turn), value

    def finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Add what attention has mixed, and the feed-forward network."""
        x = x + self.project(mixed.transpose(1, 2).flatten(2))
        fed = self.norm_feed(x)
        narrowed: Tensor = self.narrow(F.silu(self.gate(fed)) * self.widen(fed))
        return x + narrowed


def rotated(heads: Tensor, turn: Tensor) -> Tensor:
    """Turn each pair of numbers of a head by the angle of its token.

    Args:
        heads: float32 [batch, heads, tokens, HEAD].
        turn: float32 [2, tokens, HEAD // 2], cosines and sines.
    """
    one, other = heads.chunk(2, dim=-1)
    cos, sin = turn
    return torch.cat([one * cos - other * sin, other * cos + one * sin], dim=-1)


class Decoder(nn.Module):
    turns: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        speed = 10_000 ** -torch.linspace(0, 1, HEAD // 2 + 1)[:-1]
        angles = torch.arange(CAPACITY)[:, None] * speed
        self.register_buffer("turns", torch.stack([angles.cos(), angles.sin()]))

    def prefill(self, ids: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Read a prompt.

        Args:
            ids: int64 [batch, prompt], prompt <= CAPACITY.

        Returns:
            Logits of each next token, float32 [batch, prompt, VOCABULARY]; and for each layer the keys, and
            the values, float32 [batch, KEY_HEADS, prompt, HEAD].
        """
        x = self.tokens(ids)
        turn = self.turns[:, : ids.shape[1]]
        keys, values = [], []
        for block in self.blocks:
            assert isinstance(block, Block)
            query, key, value = block.heads(x, turn)
            mixed = F.scaled_dot_product_attention(
                query, key, value, is_causal=True, enable_gqa=True
            )
            x = block.finish(x, mixed)
            keys.append(key)
            values.append(value)
        return self.head(self.norm(x)), keys, values

    def decode(
        self, token: Tensor, position: Tensor, keys: list[Tensor], values: list[Tensor]
    ) -> Tensor:
        """Add one token; its keys and values are written into the cache.

        Args:
            token: int64 [batch, 1].
            position: int64 [1], of the token, from 0.
            keys, values: of a Cache.

        Returns:
            Logits of the next token, float32 [batch, VOCABULARY].
        """
        x = self.tokens(token)
        turn = self.turns.index_select(1, position)
        seen = (torch.arange(CAPACITY, device=token.device) <= position)[None]
        for block, held_keys, held_values in zip(self.blocks, keys, values, strict=True):
            assert isinstance(block, Block)
            query, key, value = block.heads(x, turn)
            held_keys.index_copy_(2, position, key)
            held_values.index_copy_(2, position, value)
            mixed = F.scaled_dot_product_attention(
                query, held_keys, held_values, attn_mask=seen, enable_gqa=True
            )
            x = block.finish(x, mixed)
        logits: Tensor = self.head(self.norm(x))
        return logits.squeeze(1)


def build() -> nn.Module:
    """Return the decoder with random weights, the same ones each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Decoder().eval()


def empty_cache() -> Cache:
    """Return a cache for one sequence."""
    shape = (1, KEY_HEADS, CAPACITY, HEAD)
    return Cache(
        keys=[torch.zeros(shape) for _ in range(LAYERS)],
        values=[torch.zeros(shape) for _ in range(LAYERS)],
    )


def prefill_inputs(prompt: int = 32) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Return `(args, kwargs)` of `prefill` for a prompt of that many tokens, the same ones each time."""
    random = torch.Generator().manual_seed(1)
    return (torch.randint(VOCABULARY, (1, prompt), generator=random),), {}


def decode_inputs() -> tuple[tuple[object, ...], dict[str, Tensor]]:
    """Return `(args, kwargs)` of `decode` behind a prompt of 32 tokens."""
    random = torch.Generator().manual_seed(2)
    cache = empty_cache()
    for tensor in (*cache.keys, *cache.values):
        tensor[:, :, :32] = torch.randn(1, KEY_HEADS, 32, HEAD, generator=random)
    token = torch.randint(VOCABULARY, (1, 1), generator=random)
    return (token, torch.tensor([32]), cache.keys, cache.values), {}
