"""05 - other dtype at run time.

Source: pytorch/pytorch#142479 (Inductor takes a dtype mix that eager refuses), pytorch/pytorch#141115
(dtype checks off by default in AOTI).
Must hold: a float32 artifact called with float64, int32 or bfloat16 data returns eager's values AND
eager's result dtype, or raises; it never reads the bytes as float32. A mix eager refuses stays refused.
"""

import torch

BUILD = "ok"
MORE = ["value", "value", "value", "reject"]


class Affine(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.eye(4) * 3)

    def forward(self, x, y):
        return x * 2 + 1, y @ self.w


def make():
    return Affine().eval(), (torch.ones(4), torch.ones(2, 4)), {}, None


def more_inputs():
    y = torch.arange(8.0).reshape(2, 4)
    return [
        ((torch.arange(4, dtype=torch.float64), y), {}),
        ((torch.arange(4, dtype=torch.int32), y), {}),
        ((torch.arange(4, dtype=torch.bfloat16), y), {}),
        ((torch.ones(4), y.double()), {}),
    ]
