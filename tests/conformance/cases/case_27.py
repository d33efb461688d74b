"""27 - Python branch on tensor data.

Source: pytorch/torchdynamo#1767, pytorch/pytorch#173915 (export stops on `if` over tensor values),
pytorch/pytorch#180406 (better hints).
Must hold: the build either refuses, naming file and line and the way out (torch.where / torch.cond / leave
this submodule eager), or splits the graph there and still takes the right branch at run time. Baking the
example's branch is wrong.
"""

import torch

BUILD = "ok_or_error"
MORE = ["value", "value", "value"]


class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 3)

    def forward(self, x):
        h = self.fc(x)
        if x.sum() > 0:  # data-dependent
            return h.cos()
        if x.isnan().any():
            return torch.zeros_like(h)
        return h.sin() - 1


def make():
    torch.manual_seed(0)
    return Gate().eval(), (torch.ones(2, 3),), {}, None


def more_inputs():
    nan = torch.ones(2, 3)
    nan[0, 0] = float("nan")
    return [((torch.ones(2, 3) * 2,), {}), ((-torch.ones(2, 3),), {}), ((nan,), {})]
