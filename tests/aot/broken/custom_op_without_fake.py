"""An operator of one's own that says nothing of its result."""

import torch
from torch import Tensor, nn

KIND = "operator without a fake implementation"
WAY = 'register_fake("broken::scaled")'
BUILDS = False


@torch.library.custom_op("broken::scaled", mutates_args=())
def scaled(x: Tensor) -> Tensor:
    """Take x, of any shape."""
    return x * 3


@torch.library.custom_op("broken::scaled_and_known", mutates_args=())
def scaled_and_known(x: Tensor) -> Tensor:
    """Take x, of any shape."""
    return x * 3


@scaled_and_known.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class Model(nn.Module):
    """Has the defect."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(6, 8)
        self.down = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [rows, 6]."""
        h = scaled(self.up(x))  # <- here
        made: Tensor = self.down(h)
        return made


class Fixed(Model):
    """Has the way out."""

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [rows, 6]."""
        made: Tensor = self.down(scaled_and_known(self.up(x)))
        return made


def inputs() -> tuple[Tensor, ...]:
    """Return the arguments of a call."""
    return (torch.linspace(-1, 1, 24).view(4, 6),)
