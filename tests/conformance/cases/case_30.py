"""30 - things made inside forward follow the input's device and size.

Source: pytorch/pytorch#121761, #151010, #126674 (device burnt in by export), #152087, #136369 (package only ran
on cuda:0), #152130 (tensor left on the wrong GPU).
Must hold: aranges, masks and constants made in forward follow the runtime size, and - where GPUs exist - the
package built on cuda:0 runs on cuda:1 with every output there. Outputs that are Python ints from a dynamic
size carry the runtime value.
"""

import torch
from torch.export import Dim

BUILD = "ok"
MORE = ["hit", "hit"]
DEVICES = ["cpu", "cuda:0", "cuda:1"]


class Causal(torch.nn.Module):
    def forward(self, x):
        n = x.size(1)
        i = torch.arange(n, device=x.device)
        mask = i[:, None] >= i[None, :]
        bias = torch.tensor([0.5, -0.5], device=x.device)
        s = (x @ x.transpose(1, 2)).masked_fill(~mask, -1e4)
        return torch.softmax(s, -1) @ x + bias, n


def make():
    torch.manual_seed(0)
    return Causal().eval(), (torch.randn(2, 5, 2),), {}, {"x": {1: Dim("seq", min=2, max=32)}}


def more_inputs():
    torch.manual_seed(1)
    return [((torch.randn(2, n, 2),), {}) for n in (2, 32)]
