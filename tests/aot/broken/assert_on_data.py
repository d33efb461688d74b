"""An `assert` on what the data is."""

import torch
from torch import Tensor, nn

KIND = "branch on data"
WAY = "check the data before the call"
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
        assert h.abs().max() < 100, "too large"  # <- here
        made: Tensor = self.down(torch.relu(h))
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
