"""15 - Python int argument.

Source: pytorch/pytorch#106031 (symbolic ints not taken), #115054 ("we always specialize on scalar values in
export").
Must hold: built with k=2; a call with k=3 gives eager's k=3 result (dynamic int, second variant or counted
fallback) or an error saying that k was frozen to 2. Using the frozen 2 silently is the failure.
"""

import torch

BUILD = "ok"
MORE = ["hit", "value", "value"]


class TopK(torch.nn.Module):
    def forward(self, x, k):
        return x.sort(-1, descending=True).values[..., :k] * k


def make():
    torch.manual_seed(0)
    return TopK().eval(), (torch.randn(3, 6), 2), {}, None


def more_inputs():
    torch.manual_seed(1)
    x = torch.randn(3, 6)
    return [((x, 2), {}), ((x, 3), {}), ((x, 0), {})]
