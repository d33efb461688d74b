"""A kernel that waits for something that never comes."""

import time

import torch
from torch import Tensor, nn

RUNG, KIND, OPERATOR = "eager", "hangs", "planted.wait.default"
TIMEOUT = "10"


@torch.library.custom_op("planted::wait", mutates_args=())
def wait(x: Tensor) -> Tensor:
    """Take x, of any shape."""
    while x.numel():
        time.sleep(0.05)
    return x + 1


@wait.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class Model(nn.Module):
    """Has the defect."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(6, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [4, 6]."""
        return torch.relu(wait(self.up(x)))


def make() -> nn.Module:
    """Return the model."""
    return Model().eval()


def example() -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Return a call."""
    return (torch.linspace(-1, 1, 24).view(4, 6),), {}
