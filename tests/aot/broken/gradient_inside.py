"""A gradient in forward."""

import torch
from torch import Tensor, nn

KIND = "gradient inside forward"
WAY = "write the derivative down"
BUILDS = True


class Model(nn.Module):
    """Has the defect."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(6, 8)
        self.down = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [rows, 6]."""
        with torch.enable_grad():
            h = self.up(x.detach()).requires_grad_()
            energy = (h**3).sum()
            (slope,) = torch.autograd.grad(energy, h)  # <- here
        made: Tensor = self.down(slope)
        return made


class Fixed(Model):
    """Has the way out."""

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [rows, 6]."""
        made: Tensor = self.down(3 * self.up(x) ** 2)
        return made


def inputs() -> tuple[Tensor, ...]:
    """Return the arguments of a call."""
    return (torch.linspace(-1, 1, 24).view(4, 6),)
