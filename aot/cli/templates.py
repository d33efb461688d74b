"""What `tcbuild init` writes: a spec and a model that build as they are."""

from collections.abc import Mapping
from typing import Final

SPEC: Final = """\
# What to build: tcbuild build tcbuild.toml -o model.tcb

[model]
source = "model:build"            # module:callable beside this file; returns the module, in eval mode
inputs = "model:example_inputs"   # called with the size of each dim by name -> (args, kwargs)
# optional = ["mask"]             # inputs that may be None: one variant with, one without
# training = [false, true]        # variants for the model in train() mode, too
# grad = ["off", "on"]            # variants for calls while gradients are recorded, too
# name = "my-model"               # in plans and logs; the name of this folder where left out

# One table for each size that varies; the others are as in the example inputs.
[dims.batch]
policy = "dynamic"                # one variant for the range; sizes 0 and 1 become their own
min = 1
max = 64
tune = 8                          # the size to optimise for
# Or one variant for each size of a list:
# policy = "specialize"
# values = [1, 8]
# Or pad a call up to the next of these sizes and cut the results back, where the build can prove
# that the padding changes nothing; fill says what the padding of an input must hold:
# policy = "pad"
# sizes = [16, 32, 64]
# fill = { mask = 0 }

[shapes]                          # for each tensor input, the dim of each axis; "_" does not vary
x = ["batch", "_"]

# [values]                        # Python arguments that decide what is computed
# flag = [true, false]            # one variant for each value

[build]
targets = ["cpu"]
mode = "default"                  # or "reduce-overhead", "max-autotune": see [tune]
# emulate_precision_casts = true  # in 16 bits, round after every operator as eager does; slower
# fp32_precision = "bf16"         # CPU: products of float32 in bfloat16: faster, and 3 digits
# pack_weights = false            # CPU: keep weights as they are, not in the order oneDNN reads them
# weights = "external"            # in model.weights.safetensors beside model.tcb, not in it

# [tune]                          # with max-autotune: how long to look for the fastest code
# minutes = 30                    # for all variants together
# candidates = 16                 # ways to compile a variant, at most

# [training]                      # training steps, too: forward and backward, for the model in training mode
# inference = true                # and the variants above; false leaves them out
# partition = "min_cut"           # the backward computes anew what is cheap; or "default"
# activation_memory_budget = 1.0  # the part of what min_cut saves that it may

[fallback]
embed = true                      # carry the captured graph, for calls that no variant accepts

[verify]
enabled = true                    # hold every variant against the model before the file is written
tolerance = 2.0                   # how many times eager's own error against float64 is allowed
"""

MODEL: Final = '''\
"""The model that tcbuild.toml names. Put your own here."""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    """One linear layer and a GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Map float32 [batch, 4] to float32 [batch, 4]."""
        return nn.functional.gelu(self.linear(x))


def build() -> nn.Module:
    """Return the model with its weights, in eval mode."""
    torch.manual_seed(0)
    return Model().eval()


def example_inputs(batch: int) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Return `(args, kwargs)` of one call; values as in real calls, as the checks use them."""
    return (torch.randn(batch, 4, generator=torch.Generator().manual_seed(1)),), {}
'''

FILES: Final[Mapping[str, str]] = {"tcbuild.toml": SPEC, "model.py": MODEL}
