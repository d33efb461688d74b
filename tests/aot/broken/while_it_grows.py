"""A loop whose end depends on the data."""

import torch
from torch import Tensor, nn

KIND = "branch on data"
WAY = "outside the model"
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
        while h.abs().max() > 0.1:  # <- here
            h = h / 2
        made: Tensor = self.down(h)
        return made


class Fixed(Model):
    """Has the way out."""

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [rows, 6]."""
        h = self.up(x)
        made: Tensor = self.down(h / 2 ** torch.log2(h.abs().max() / 0.1).ceil().clamp(min=0))
        return made


def inputs() -> tuple[Tensor, ...]:
    """Return the arguments of a call."""
    return (torch.linspace(-1, 1, 24).view(4, 6),)
