"""numpy in the middle of the model."""

import numpy as np
import torch
from torch import Tensor, nn

KIND = "numpy"
WAY = "use torch's function of the same name"
BUILDS = False


class Model(nn.Module):
    """Has the defect."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(6, 8)
        self.down = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [rows, 6]."""
        h = self.up(x)
        ranks = np.argsort(h.detach().numpy(), axis=1)  # <- here
        made: Tensor = self.down(torch.gather(h, 1, torch.from_numpy(ranks)))
        return made


class Fixed(Model):
    """Has the way out."""

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [rows, 6]."""
        h = self.up(x)
        made: Tensor = self.down(torch.gather(h, 1, torch.argsort(h, dim=1)))
        return made


def inputs() -> tuple[Tensor, ...]:
    """Return the arguments of a call."""
    return (torch.linspace(-1, 1, 24).view(4, 6),)
