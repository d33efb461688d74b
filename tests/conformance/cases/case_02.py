"""02 - built on a slice, run on a fresh tensor.

Source: pytorch/pytorch#153992 (package worked on a channel slice of a bigger image, failed on a new
tensor of the very same shape: the slice's batch stride had been recorded).
Must hold: example input is a view with a larger outer stride and a non-zero offset; a fresh contiguous
tensor of the same shape must give the eager result, for every batch size in the declared range.
"""

import torch
from torch.export import Dim

BUILD = "ok"
MORE = ["hit", "hit", "value"]


class Stem(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, img):
        return self.conv(img).relu().mean((2, 3))


def _slice(n, seed):
    big = torch.randn(n, 9, 8, 8, generator=torch.Generator().manual_seed(seed))
    return big[:, 3:6]


def make():
    torch.manual_seed(0)
    return Stem().eval(), (_slice(2, 1),), {}, {"img": {0: Dim("n", min=1, max=16)}}


def more_inputs():
    fresh = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(5))
    wide = torch.randn(7, 3, 8, 8, generator=torch.Generator().manual_seed(6))
    return [((fresh,), {}), ((wide,), {}), ((_slice(4, 7),), {})]
