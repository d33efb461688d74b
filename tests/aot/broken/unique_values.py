"""As many values as are different."""

import torch
from torch import Tensor, nn

KIND = "size from data"
WAY = "torch.topk"
BUILDS = False


class Model(nn.Module):
    """Has the defect."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(6, 8)
        self.down = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [rows, 6]."""
        h = self.down(torch.relu(self.up(x)))
        made: Tensor = torch.unique(h.round())  # <- here
        return made


class Fixed(Model):
    """Has the way out."""

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [rows, 6]."""
        h = self.down(torch.relu(self.up(x)))
        made: Tensor = torch.topk(h.round().flatten(), 4).values
        return made


def inputs() -> tuple[Tensor, ...]:
    """Return the arguments of a call."""
    return (torch.linspace(-1, 1, 24).view(4, 6),)
