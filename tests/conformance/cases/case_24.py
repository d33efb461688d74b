"""24 - autocast regions.

Source: pytorch/pytorch#108173 / #110490 (export missed the outer autocast: float32 came out where eager gave
half precision).
Must hold: an autocast region inside forward, with a disabled island in it, keeps eager's per-output dtypes.
An autocast context around the CALL changes eager's result dtype, so it is a guard: fallback or variant, not
the no-autocast artifact.
"""

import torch

BUILD = "ok"
MORE = ["hit"]
TOL = dict(rtol=2e-2, atol=2e-2)


class Mixed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(8, 8)
        self.b = torch.nn.Linear(8, 8)

    def forward(self, x):
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            h = self.a(x)
            with torch.autocast(x.device.type, enabled=False):
                island = self.b(h.float())
        return h, island, self.b(x)


def make():
    torch.manual_seed(0)
    return Mixed().eval(), (torch.randn(4, 8),), {}, None


def more_inputs():
    torch.manual_seed(1)
    return [((torch.randn(4, 8),), {})]


def check(run, ref):
    x = torch.randn(4, 8)
    assert [t.dtype for t in run(x)] == [torch.bfloat16, torch.float32, torch.float32]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert [t.dtype for t in run(x)] == [t.dtype for t in ref(x)]
