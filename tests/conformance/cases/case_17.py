"""17 - buffer written in forward (counter and cache).

Source: pytorch/pytorch#120424 and #122824 (AOTI must support module-buffer mutation; aliased buffers stay
unsupported), pytorch/executorch#14783, pytorch/TensorRT#4251 (constant folding would bake the KV cache in).
Must hold: state carries over between calls exactly as in eager; two independently loaded runtimes do not
share it; a reload starts from the packaged state.
"""

import torch

BUILD = "ok"
MORE = []


class Cache(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kv", torch.zeros(8, 2))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x, pos):
        self.kv.index_copy_(0, pos, x)
        self.steps.add_(1)
        return self.kv.sum(0) + self.steps


def make():
    return Cache().eval(), (torch.ones(1, 2), torch.tensor([0])), {}, None


def check(run, ref):
    for i in (0, 3, 3, 5):
        x, p = torch.full((1, 2), float(i + 1)), torch.tensor([i])
        torch.testing.assert_close(run(x.clone(), p.clone()), ref(x.clone(), p.clone()))
