"""19 - outputs that are inputs, views of inputs, or the same tensor twice.

Source: pytorch/pytorch#108079 (AOT path refuses outputs that alias inputs), #191002 (alias output showed the
wrong slice after an internal copy).
Must hold: values are right on every call, also when the first result is still alive during the second call;
the documented aliasing contract (same storage as eager, or always a copy) is kept on every path, including
fallback.
"""

import torch

BUILD = "ok_or_error"
MORE = ["hit"]


class Alias(torch.nn.Module):
    def forward(self, x):
        y = x + 1
        return x, x.t(), y, y, y[0]


def make():
    return Alias().eval(), (torch.arange(6.0).reshape(2, 3),), {}, None


def more_inputs():
    return [((torch.arange(6.0).reshape(2, 3) * -1,), {})]


def check(run, ref):
    x1, x2 = torch.randn(2, 3), torch.randn(2, 3)
    first = run(x1)
    keep = [t.clone() for t in first]
    run(x2)
    for a, b in zip(first, keep):
        torch.testing.assert_close(a, b)
