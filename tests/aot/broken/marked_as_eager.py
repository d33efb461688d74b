"""A function that is marked as eager."""

import torch
from torch import Tensor, nn

KIND = "marked as eager"
WAY = "take the mark away"
BUILDS = True


@torch.compiler.disable  # type: ignore[untyped-decorator]
def doubled(x: Tensor) -> Tensor:
    """Take x, of any shape."""
    return x * 2


class Model(nn.Module):
    """Has the defect."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(6, 8)
        self.down = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [rows, 6]."""
        h = doubled(torch.relu(self.up(x)))  # <- here
        made: Tensor = self.down(h)
        return made


class Fixed(Model):
    """Has the way out."""

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [rows, 6]."""
        made: Tensor = self.down(torch.relu(self.up(x)) * 2)
        return made


def inputs() -> tuple[Tensor, ...]:
    """Return the arguments of a call."""
    return (torch.linspace(-1, 1, 24).view(4, 6),)
