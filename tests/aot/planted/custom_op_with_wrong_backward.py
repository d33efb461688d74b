"""An operator whose backward forgets a factor."""

from typing import Any

import torch
from torch import Tensor, nn

RUNG, KIND, OPERATOR = "eager", "wrong backward", "planted.cube.default"
SPEC = "[training]\ninference = false\n"


@torch.library.custom_op("planted::cube", mutates_args=())
def cube(x: Tensor) -> Tensor:
    """Take x, of any shape."""
    return x**3


@cube.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def _keep(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])


def _backward(ctx: Any, grad: Tensor) -> Tensor:
    x: Tensor = ctx.saved_tensors[0]
    return grad * x**2  # not three times as much


torch.library.register_autograd("planted::cube", _backward, setup_context=_keep)


class Model(nn.Module):
    """Has the defect."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(6, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [4, 6]."""
        return torch.tanh(cube(self.up(x))).sum()


def make() -> nn.Module:
    """Return the model."""
    return Model().eval()


def example() -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Return a call."""
    return (torch.linspace(-1, 1, 24).view(4, 6),), {}
