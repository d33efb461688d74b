"""A square that bfloat16 has no number for."""

import torch
from torch import Tensor, nn

RUNG, KIND, OPERATOR = "eager", "overflows", "aten.mul.Tensor"


class Model(nn.Module):
    """Has the defect."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(6, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Take x, bfloat16 [4, 6]."""
        h = torch.relu(self.up(x)) * 1e20
        return (h * h) * 1e-40


def make() -> nn.Module:
    """Return the model."""
    return Model().to(torch.bfloat16).eval()


def example() -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Return a call."""
    return (torch.linspace(1, 2, 24).view(4, 6).to(torch.bfloat16),), {}
