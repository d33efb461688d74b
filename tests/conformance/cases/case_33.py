"""33 - Python custom op.

Source: pytorch/pytorch#134581 (only "Could not find schema" was said), #186305 (message improved), #143786
(custom op could not be run from C++).
Must hold: with the op registered the artifact equals eager; the manifest lists the op and its library; when
the op is missing, LOADING fails with the op name and what to import - not the first request.
"""

import torch

BUILD = "ok"
MORE = ["hit"]

try:

    @torch.library.custom_op("tcbuild_case33::gain", mutates_args=())
    def gain(x: torch.Tensor, k: float) -> torch.Tensor:
        return x * k + 1

    @gain.register_fake
    def _(x, k):
        return torch.empty_like(x)
except RuntimeError:
    pass  # registered by an earlier import


class UsesOp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.ops.tcbuild_case33.gain(self.fc(x), 2.5).relu()


def make():
    torch.manual_seed(0)
    return UsesOp().eval(), (torch.randn(3, 4),), {}, None


def more_inputs():
    torch.manual_seed(1)
    return [((torch.randn(3, 4),), {})]
