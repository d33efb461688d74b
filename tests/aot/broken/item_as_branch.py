"""A number that is read out of a tensor, and decided on."""

import torch
from torch import Tensor, nn

KIND = "number out of a tensor"
WAY = "stay with the tensor"
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
        top = h.max().item()  # <- here
        if top > 1:
            h = h / top
        made: Tensor = self.down(h)
        return made


class Fixed(Model):
    """Has the way out."""

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [rows, 6]."""
        h = torch.relu(self.up(x))
        made: Tensor = self.down(h / h.max().clamp(min=1))
        return made


def inputs() -> tuple[Tensor, ...]:
    """Return the arguments of a call."""
    return (torch.linspace(-1, 1, 24).view(4, 6),)
