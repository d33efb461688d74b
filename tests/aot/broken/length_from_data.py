"""A part whose length is in a tensor."""

import torch
from torch import Tensor, nn

KIND = "number out of a tensor"
WAY = "take it as an argument"
BUILDS = False


class Model(nn.Module):
    """Has the defect."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(6, 8)
        self.down = nn.Linear(8, 6)

    def forward(self, x: Tensor, length: Tensor) -> Tensor:
        """Take x, float32 [rows, 6], and length, int64 []."""
        h = torch.relu(self.up(x))
        rows = int(length.item())  # <- here
        made: Tensor = self.down(h[:rows])
        return made


class Fixed(Model):
    """Has the way out."""

    def forward(self, x: Tensor, length: Tensor) -> Tensor:
        """Take x, float32 [rows, 6], and length, int64 []."""
        h = torch.relu(self.up(x))
        rows = torch.arange(x.size(0))[:, None]
        made: Tensor = self.down(torch.where(rows < length, h, 0))
        return made


def inputs() -> tuple[Tensor, ...]:
    """Return the arguments of a call."""
    return (torch.linspace(-1, 1, 24).view(4, 6), torch.tensor(3))
