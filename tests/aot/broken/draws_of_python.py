"""Random numbers of Python's own generator."""

import random

import torch
from torch import Tensor, nn

KIND = "value that changes"
WAY = "torch.rand"
BUILDS = False

generator = random.Random(3)


class Model(nn.Module):
    """Has the defect."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(6, 8)
        self.down = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [rows, 6]."""
        h = torch.relu(self.up(x))
        h = h * generator.random()  # <- here
        made: Tensor = self.down(h)
        return made


class Fixed(Model):
    """Has the way out."""

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [rows, 6]."""
        made: Tensor = self.down(torch.relu(self.up(x)))
        return made


def inputs() -> tuple[Tensor, ...]:
    """Return the arguments of a call."""
    return (torch.linspace(-1, 1, 24).view(4, 6),)
