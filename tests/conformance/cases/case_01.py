"""01 - same shape, other strides.

Source: pytorch/pytorch#122784 (AOTI gave wrong numbers because one runtime input was transposed;
maintainer: strides differ, call .contiguous(); reporter asked for a runtime check).
Must hold: built with contiguous inputs, called with a transposed or expanded view of the same shape, the
result equals eager (copy to the recorded layout, another variant, or fallback) - never numbers computed
from the build-time strides.
"""

import torch

BUILD = "ok"
MORE = ["value", "value", "value"]


class Skewed(torch.nn.Module):
    def forward(self, m, v):
        return (m * v.unsqueeze(-2)).sum(-1) + m[..., 0]


def make():
    g = torch.Generator().manual_seed(1)
    m = torch.randn(6, 3, 4, generator=g)
    v = torch.randn(6, 4, generator=g)
    return Skewed().eval(), (m, v), {}, None


def more_inputs():
    g = torch.Generator().manual_seed(2)
    v = torch.randn(6, 4, generator=g)
    t = torch.randn(6, 4, 3, generator=g).transpose(1, 2)  # strides (12, 1, 3)
    e = torch.randn(1, 3, 4, generator=g).expand(6, 3, 4)  # stride 0
    s = torch.randn(6, 3, 8, generator=g)[..., ::2]  # stride 2 in the last dim
    return [((t, v), {}), ((e, v), {}), ((s, v), {})]
