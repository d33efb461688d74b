"""13 - optional tensor: None at build, tensor at run, and back.

Source: pytorch/pytorch#139112 / #139114 (AOTI and None args), #115344 and #138546 (None passed to a kernel
treated as a pointer: illegal memory access).
Must hold: None-ness is part of the guard. Built with mask=None, a call with a mask gives eager's masked
result (second variant or counted fallback), never the unmasked one; and the other way round.
"""

import torch

BUILD = "ok"
MORE = ["hit", "value", "hit"]


class Attn(torch.nn.Module):
    def forward(self, q, k, mask=None):
        s = q @ k.transpose(-1, -2)
        if mask is not None:
            s = s.masked_fill(~mask, float("-inf"))
        return torch.softmax(s, -1)


def make():
    torch.manual_seed(0)
    return Attn().eval(), (torch.randn(4, 8), torch.randn(4, 8)), {"mask": None}, None


def more_inputs():
    torch.manual_seed(1)
    q, k = torch.randn(4, 8), torch.randn(4, 8)
    causal = torch.ones(4, 4, dtype=torch.bool).tril()
    return [((q, k), {"mask": None}), ((q, k), {"mask": causal}), ((q, k), {})]
