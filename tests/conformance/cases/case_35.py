"""35 - in-place transpose of the same storage.

Source: pytorch/pytorch#198280 (torch 2.14 on CUDA: copy fused with the transposed read, silently wrong at some
sizes only; 2.9.1 was right).
Must hold: exact equality with eager, and the build-time numeric check must run at more than one size and more
than once, since such bugs appear only at some sizes. On GPU try (80000, 5, 5) and (64, 256, 256) too.
"""

import torch
from torch.export import Dim

BUILD = "ok_or_error"
MORE = ["value", "value"]
TOL = dict(rtol=0, atol=0)


class Flip(torch.nn.Module):
    def forward(self, x):
        x = x.clone()
        x.copy_(x.transpose(-1, -2) * 1.0)
        return x


def make():
    torch.manual_seed(0)
    return Flip().eval(), (torch.rand(16, 5, 5),), {}, {"x": {0: Dim("n", min=2, max=200000)}}


def more_inputs():
    torch.manual_seed(1)
    return [((torch.rand(652, 5, 5),), {}), ((torch.rand(20000, 5, 5),), {})]
