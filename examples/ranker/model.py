"""A recommendation model: one score for each candidate, from numbers and categories.

The architecture is DLRM's (https://arxiv.org/abs/1906.00091): each category is looked up in its
table, the numbers go through a network of their own, and the dot products of all pairs of these
vectors go, with the numbers, through the network that scores.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn

NUMBERS = 13
TABLES = [80_000 // (i + 1) for i in range(26)]  # rows of each: 80,000 down to 3,076; 39 MB in all
WIDTH = 32


def network(*sizes: int) -> nn.Sequential:
    """Return linear layers of these sizes, with a ReLU between each two."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Ranker(nn.Module):
    pairs: Tensor

    def __init__(self) -> None:
        super().__init__()
        vectors = 1 + len(TABLES)
        self.tables = nn.ModuleList(nn.Embedding(rows, WIDTH) for rows in TABLES)
        self.bottom = network(NUMBERS, 512, 256, WIDTH)
        self.top = network(WIDTH + vectors * (vectors - 1) // 2, 512, 256, 1)
        row, column = torch.tril_indices(vectors, vectors, offset=-1)
        self.register_buffer("pairs", row * vectors + column)

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        """Score candidates.

        Args:
            dense: float32 [batch, NUMBERS].
            sparse: int64 [batch, len(TABLES)], the row to take of each table.

        Returns:
            float32 [batch], logits.
        """
        numbers = self.bottom(dense)
        rows = [table(sparse[:, i]) for i, table in enumerate(self.tables)]
        vectors = torch.stack([numbers, *rows], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        features = torch.cat([numbers, products.index_select(1, self.pairs)], dim=1)
        scores: Tensor = self.top(features)
        return scores.squeeze(-1)


def build() -> nn.Module:
    """Return the ranker with random weights, the same ones each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Ranker().eval()


def example_inputs(batch: int = 64) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Return `(args, kwargs)` for `batch` candidates, the same ones each time."""
    random = torch.Generator().manual_seed(1)
    dense = torch.randn(batch, NUMBERS, generator=random)
    sparse = torch.stack(
        [torch.randint(rows, (batch,), generator=random) for rows in TABLES], dim=1
    )
    return (), {"dense": dense, "sparse": sparse}
