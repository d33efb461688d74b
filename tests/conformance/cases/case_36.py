"""36 - weights replaced after the build.

Source: pytorch/pytorch#114446 (double-buffered constants), #125657 (memory grows with each update), #192245 and
#194675 (constants freed after folding cannot be folded again).
Must hold: after loading a new state_dict of the same shapes all buckets use the new values, including those
that were constant-folded (here the weight is pre-scaled and transposed), memory does not grow, an in-flight
call sees old or new weights but no mix; a state_dict with another shape or a missing name is refused whole.
"""

import torch
from torch.export import Dim

BUILD = "ok"
MORE = ["hit", "hit"]


class Folded(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(4, 6))
        self.bn = torch.nn.BatchNorm1d(4)

    def forward(self, x):
        return self.bn(x @ (self.w * 0.5).t())


def make():
    torch.manual_seed(0)
    return Folded().eval(), (torch.randn(3, 6),), {}, {"x": {0: Dim("b", min=2, max=16)}}


def more_inputs():
    torch.manual_seed(1)
    return [((torch.randn(b, 6),), {}) for b in (2, 16)]


def NEW_STATE():
    torch.manual_seed(9)
    m = Folded()
    m.bn.running_mean.uniform_(-1, 1)
    m.bn.running_var.uniform_(0.5, 2)
    return m.state_dict()
