"""32 - forward and backward artifact.

Source: pytorch/pytorch#194158 and pytorch/torchtitan#2670, #2671 (saved joint graphs), pytorch/pytorch#178204
(None among saved activations crashed the runtime), #191002 (silently inflated gradients).
Must hold: loss, parameter gradients and the input gradient equal eager, step after step; an unused parameter
keeps grad None, bias=None is fine, gradient accumulation and a second forward before the first backward are
right; under no_grad the inference path serves.
"""

import torch

BUILD = "ok_or_error"
MODE = "train"
MORE = []


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(6, 8, bias=False)
        self.b = torch.nn.Linear(8, 1)
        self.unused = torch.nn.Parameter(torch.ones(3))
        self.frozen = torch.nn.Parameter(torch.ones(8), requires_grad=False)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)) * self.frozen).squeeze(-1)


def make():
    torch.manual_seed(0)
    return Net().train(), (torch.randn(4, 6, requires_grad=True),), {}, None


def check(run, ref, run_params=None):
    """run_params: the parameters the artifact trains; by default those of `run` itself."""
    mine = dict(run_params or run.named_parameters())
    theirs = dict(ref.named_parameters())
    for step in range(3):
        torch.manual_seed(step)
        x1 = torch.randn(4, 6, requires_grad=True)
        x2 = x1.detach().clone().requires_grad_()
        l1, l2 = run(x1).pow(2).mean(), ref(x2).pow(2).mean()
        if step == 1:  # another forward before backward
            run(x1.detach()), ref(x2.detach())
        l1.backward(), l2.backward()  # accumulates over steps
        torch.testing.assert_close(l1, l2)
        torch.testing.assert_close(x1.grad, x2.grad)
        for k in theirs:
            g1, g2 = mine[k].grad, theirs[k].grad
            assert (g1 is None) == (g2 is None), k
            if g2 is not None:
                torch.testing.assert_close(g1, g2)
    with torch.no_grad():
        assert not run(x1).requires_grad
