"""An operator whose fake says row-major, and whose kernel makes column-major."""

import torch
from torch import Tensor, nn

RUNG, KIND, OPERATOR = "export", "wrong fake", "planted.turned.default"


@torch.library.custom_op("planted::turned", mutates_args=())
def turned(x: Tensor) -> Tensor:
    """Take x, float32 [rows, columns]."""
    return (x * 2).t().contiguous().t()


@turned.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class Model(nn.Module):
    """Has the defect."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(6, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [4, 6]."""
        return torch.relu(turned(self.up(x)))


def make() -> nn.Module:
    """Return the model."""
    return Model().eval()


def example() -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Return a call."""
    return (torch.linspace(-1, 1, 24).view(4, 6),), {}
