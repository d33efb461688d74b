"""The clock, read by the model."""

import time

import torch
from torch import Tensor, nn

KIND = "function that is no PyTorch code"
WAY = "pass what it gives as an argument"
BUILDS = False


class Model(nn.Module):
    """Has the defect."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(6, 8)
        self.down = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [rows, 6]."""
        h = torch.relu(self.up(x))
        h = h * (time.time() % 1.0)  # <- here
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
