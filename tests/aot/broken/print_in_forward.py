"""A print between two operators that would be one kernel."""

import torch
from torch import Tensor, nn

KIND = "output to the user"
WAY = "remove it"
BUILDS = True


class Model(nn.Module):
    """Has the defect."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(6, 8)
        self.down = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [rows, 6]."""
        h = torch.relu(self.up(x))
        print("half way")  # <- here
        made: Tensor = self.down(h * 2)
        return made


class Fixed(Model):
    """Has the way out."""

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [rows, 6]."""
        h = torch.relu(self.up(x))
        made: Tensor = self.down(h * 2)
        return made


def inputs() -> tuple[Tensor, ...]:
    """Return the arguments of a call."""
    return (torch.linspace(-1, 1, 24).view(4, 6),)
