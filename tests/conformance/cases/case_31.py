"""31 - eval artifact and train mode are different programs.

Source: pytorch/pytorch#103681 (exported dropout kept dropping after eval()), #151726 (maintainer: the graph is
specialised at export; export train and eval separately).
Must hold: built in eval mode: dropout is the identity and batch norm uses running statistics, which do not
change. If the host module is switched to train(), the eval artifact must not answer (guard on `training`).
"""

import torch

BUILD = "ok"
MORE = ["hit"]


class Reg(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)
        self.bn = torch.nn.BatchNorm1d(4)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.bn(self.fc(x)))


def make():
    torch.manual_seed(0)
    m = Reg()
    m.bn.running_mean.fill_(0.3)
    m.bn.running_var.fill_(2.0)
    return m.eval(), (torch.randn(5, 4),), {}, None


def more_inputs():
    torch.manual_seed(1)
    return [((torch.randn(5, 4),), {})]


def check(run, ref):
    x = torch.randn(5, 4)
    torch.testing.assert_close(run(x), run(x))
    torch.testing.assert_close(run(x), ref(x))
