"""21 - a result outlives the next call.

Source: pytorch/pytorch#148439, #144386, #170604 (CUDA-graph outputs overwritten by the next run; the error's
advice was wrong: only a clone helps), vllm-project/vllm#9724.
Must hold: with or without CUDA graphs and static buffers, what call 1 returned is unchanged after call 2
(other values, same bucket) and call 3 (other bucket), unless the user opted into borrowed outputs.
"""

import torch
from torch.export import Dim

BUILD = "ok"
MORE = ["hit", "hit"]


class MLP(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)
        )

    def forward(self, x):
        return self.net(x)


def make():
    torch.manual_seed(0)
    return MLP().eval(), (torch.randn(4, 8),), {}, {"x": {0: Dim("b", min=2, max=16)}}


def more_inputs():
    torch.manual_seed(1)
    return [((torch.randn(4, 8),), {}), ((torch.randn(9, 8),), {})]


def check(run, ref):
    torch.manual_seed(2)
    xs = [torch.randn(4, 8), torch.randn(4, 8), torch.randn(9, 8)]
    outs = [run(x) for x in xs]
    for x, o in zip(xs, outs):
        torch.testing.assert_close(o, ref(x))
