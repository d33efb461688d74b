"""As many rows as the mask has."""

import torch
from torch import Tensor, nn

KIND = "size from data"
WAY = "masked_fill"
BUILDS = False


class Model(nn.Module):
    """Has the defect."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(6, 8)
        self.down = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [rows, 6]."""
        h = self.up(x)
        kept = h[h[:, 0] > 0]  # <- here
        made: Tensor = self.down(kept)
        return made


class Fixed(Model):
    """Has the way out."""

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [rows, 6]."""
        h = self.up(x)
        made: Tensor = self.down(h.masked_fill((h[:, 0] <= 0)[:, None], 0))
        return made


def inputs() -> tuple[Tensor, ...]:
    """Return the arguments of a call."""
    return (torch.linspace(-1, 1, 24).view(4, 6),)
