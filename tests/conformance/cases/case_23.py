"""23 - repeated blocks, each with its own weights and constants.

Source: pytorch/pytorch#152021 (saved and reloaded artifact did not lift parameters properly),
sgl-project/sglang#28193 (regional compilation: one block compiled and reused, cold compile 50.7 s -> 8.1 s).
Must hold: if the tool compiles one block and reuses it, every instance still uses its own weights, buffers
and per-instance constants (eps, scale); block order matters.
"""

import torch

BUILD = "ok"
MORE = ["hit"]


class Block(torch.nn.Module):
    def __init__(self, i):
        super().__init__()
        self.fc = torch.nn.Linear(6, 6)
        self.register_buffer("shift", torch.full((6,), float(i)))
        self.eps = 10.0 ** -(i + 1)
        self.scale = 1.0 + i

    def forward(self, x):
        h = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return x + torch.tanh(self.fc(h) * self.scale + self.shift)


class Stack(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(i) for i in range(4))

    def forward(self, x):
        for b in self.blocks:
            x = b(x)
        return x


def make():
    torch.manual_seed(0)
    return Stack().eval(), (torch.randn(2, 6),), {}, None


def more_inputs():
    torch.manual_seed(3)
    return [((torch.randn(2, 6) * 0.01,), {})]
