"""An `if` on what the data comes to."""

import torch
from torch import Tensor, nn

KIND = "branch on data"
WAY = "torch.where"
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
        if h.sum() > 3:  # <- here
            h = h * 2
        made: Tensor = self.down(h)
        return made


class Fixed(Model):
    """Has the way out."""

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [rows, 6]."""
        h = torch.relu(self.up(x))
        h = torch.where(h.sum() > 3, h * 2, h)
        made: Tensor = self.down(h)
        return made


def inputs() -> tuple[Tensor, ...]:
    """Return the arguments of a call."""
    return (torch.linspace(-1, 1, 24).view(4, 6),)
