"""An operator that reads where no memory is."""

import ctypes

import torch
from torch import Tensor, nn

RUNG, KIND, OPERATOR = "eager", "crashes", "planted.peek.default"
SAID = "SIGSEGV"


@torch.library.custom_op("planted::peek", mutates_args=())
def peek(x: Tensor) -> Tensor:
    """Take x, of any shape."""
    ctypes.string_at(0)
    return x + 1


@peek.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class Model(nn.Module):
    """Has the defect."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(6, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [4, 6]."""
        return torch.relu(peek(self.up(x)))


def make() -> nn.Module:
    """Return the model."""
    return Model().eval()


def example() -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Return a call."""
    return (torch.linspace(-1, 1, 24).view(4, 6),), {}
