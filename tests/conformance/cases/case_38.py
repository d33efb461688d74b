"""38 - random numbers are drawn at run time.

Source: pytorch/pytorch#103681 (bernoulli kept in the exported graph), general RNG contract of compiled code.
Must hold: two calls give different samples, manual_seed makes a call repeatable on the same path, the samples
have the right distribution (values need not equal eager's), and the draw is never constant-folded into the
package.
"""

import torch

BUILD = "ok"
MORE = []


class Noise(torch.nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x), torch.nn.functional.dropout(
            torch.ones_like(x), 0.25, training=True
        )


def make():
    return Noise().eval(), (torch.zeros(4000),), {}, None


def check(run, ref):
    x = torch.zeros(4000)
    torch.manual_seed(1)
    a, d = run(x)
    b, _ = run(x)
    torch.manual_seed(1)
    c, _ = run(x)
    assert not torch.equal(a, b) and torch.equal(a, c)
    assert 0 <= a.min() and a.max() < 1 and abs(a.mean() - 0.5) < 0.05
    assert abs((d == 0).float().mean() - 0.25) < 0.05
