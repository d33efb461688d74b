"""09 - two inputs share a dimension.

Source: pytorch/pytorch#146462 (equality learned between two dims), pytorch/executorch#1350 (the
"7 is not equal to 12" relation error between two inputs was not understood).
Must hold: built with the two leading sizes tied. Equal sizes hit. Sizes (4, 1) broadcast in eager: same
values through a fallback, or an error naming both dims. Sizes (4, 3) are refused by eager: clear error,
never an out-of-bounds read.
"""

import torch
from torch.export import Dim

BUILD = "ok"
MORE = ["hit", "value", "reject"]


class Join(torch.nn.Module):
    def forward(self, a, b):
        return torch.sigmoid(a) * b - b


def make():
    n = Dim("n", min=2, max=32)
    return Join().eval(), (torch.randn(5, 3), torch.randn(5, 3)), {}, {"a": {0: n}, "b": {0: n}}


def more_inputs():
    torch.manual_seed(1)
    return [
        ((torch.randn(9, 3), torch.randn(9, 3)), {}),
        ((torch.randn(4, 3), torch.randn(1, 3)), {}),
        ((torch.randn(4, 3), torch.randn(3, 3)), {}),
    ]
