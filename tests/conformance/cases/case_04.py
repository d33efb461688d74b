"""04 - wrong rank or wrong static size.

Source: pytorch/pytorch#141115 (package accepted shapes the exported program refuses; input checks sat
behind an environment variable), fix pytorch/pytorch#186898 (always-on rank check, about 0.13 us a call).
Must hold: a model built for shape (3,) and called with (2, 3) or (5,) either equals eager through a
counted fallback or raises an error naming the argument, the expected and the given shape; what eager
refuses is refused.
"""

import torch

BUILD = "ok"
MORE = ["value", "value", "reject"]


class AddBias(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("one", torch.ones(1))
        self.lin = torch.nn.Linear(3, 3)

    def forward(self, x, use):
        return x + self.one, self.lin(use)


def make():
    torch.manual_seed(0)
    return AddBias().eval(), (torch.randn(3), torch.randn(2, 3)), {}, None


def more_inputs():
    torch.manual_seed(1)
    ok = torch.randn(2, 3)
    return [
        ((torch.randn(2, 3), ok), {}),  # rank 2 instead of 1
        ((torch.randn(5), ok), {}),  # other static size
        ((torch.randn(3), torch.randn(2, 4)), {}),
    ]  # eager refuses: 4 != 3
