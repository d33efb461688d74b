"""29 - padding to a bucket must not change the answer.

Source: vllm-project/vllm#13418 and #23595 (padding to a captured size hangs or differs; a switch to turn it
off was added), #40734 (a size just outside the captured set fell to slow eager), sgl-project/sglang#23865.
Must hold: buckets n = 4, 8, 16. Of the three outputs the first is row-wise (pad and slice is right), the
other two reduce or normalise over n, where zero padding gives a wrong mean and a wrong softmax. The tool must
notice (numeric pad check at build) and use an exact-shape or masked path, or fall back; n = 17 is a miss.
"""

import torch
from torch.export import Dim

BUILD = "ok"
MORE = ["value", "value", "value", "value"]
BUCKETS = {"x": {0: [4, 8, 16]}}


class Mix(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 3)

    def forward(self, x):
        h = self.fc(x)
        return h.relu(), h.mean(0), torch.softmax(h, 0)


def make():
    torch.manual_seed(0)
    return Mix().eval(), (torch.randn(8, 3),), {}, {"x": {0: Dim("n", min=2, max=16)}}


def more_inputs():
    torch.manual_seed(1)
    return [((torch.randn(n, 3),), {}) for n in (4, 5, 16, 17)]
