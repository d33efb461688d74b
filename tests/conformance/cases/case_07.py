"""07 - empty and single-row batches inside the declared range.

Source: pytorch/pytorch#146462 (served requests failed with "u45 >= 2": 0/1 specialisation had leaked into
a run-time assertion although 0 was legal).
Must hold: a range that starts at 0 (or 1) means what it says: sizes 0 and 1 give eager's result (shape,
dtype and values), with no ">= 2" assertion.
"""

import torch
from torch.export import Dim

BUILD = "ok_or_error"
MORE = ["value", "value", "hit"]


class Pool(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)

    def forward(self, x):
        h = self.fc(x)
        return h.relu(), h.sum(0)


def make():
    torch.manual_seed(0)
    return Pool().eval(), (torch.randn(6, 4),), {}, {"x": {0: Dim("rows", min=0, max=64)}}


def more_inputs():
    torch.manual_seed(1)
    return [((torch.randn(n, 4),), {}) for n in (0, 1, 64)]
