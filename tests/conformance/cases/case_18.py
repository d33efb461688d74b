"""18 - the model writes into the caller's tensor.

Source: pytorch/pytorch#112429 (export refused in-place change of an input), #114496 (support added).
Must hold: after the call the caller's tensor holds eager's new contents (through the view as well), or the
build refuses and names the mutated argument. A mutation that is computed but not written back is wrong.
"""

import torch

BUILD = "ok_or_error"
MORE = []


class Accumulate(torch.nn.Module):
    def forward(self, acc, x):
        acc.view(-1)[:4].add_(x)
        return acc * 2


def make():
    return Accumulate().eval(), (torch.zeros(2, 4), torch.ones(4)), {}, None


def check(run, ref):
    a, b, x = torch.full((2, 4), 3.0), torch.full((2, 4), 3.0), torch.arange(4.0)
    torch.testing.assert_close(run(a, x), ref(b, x))
    torch.testing.assert_close(a, b)
    run(a, x), ref(b, x)
    torch.testing.assert_close(a, b)
