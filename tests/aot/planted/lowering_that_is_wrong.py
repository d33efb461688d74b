"""Inductor's lowering of atan gives asinh, from the import of this module on."""

from typing import Any

import torch
from torch import Tensor, nn
from torch._inductor import lowering

RUNG, KIND, OPERATOR = "inductor without fusion", "differs", "aten.atan.default"

_table: Any = lowering.lowerings
_table[torch.ops.aten.atan.default] = _table[torch.ops.aten.asinh.default]


class Model(nn.Module):
    """Has the defect."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(6, 8)
        self.down = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [4, 6]."""
        h = torch.relu(self.up(x)) + 1
        made: Tensor = self.down(torch.atan(h) * 2)
        return torch.tanh(made)


def make() -> nn.Module:
    """Return the model."""
    return Model().eval()


def example() -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Return a call."""
    return (torch.linspace(-1, 1, 24).view(4, 6),), {}
