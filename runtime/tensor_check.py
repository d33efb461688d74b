"""An exact check of many tensors at once: the private C++ check that Dynamo's own guards use.

It compares type, dtype, device, size, stride, `requires_grad` and dispatch keys; through the keys also
negative and conjugate views, subclasses, inference tensors, and what is active in the calling thread:
autocast, inference mode, dispatch modes, function transforms. It refuses one tensor passed twice.
So "accepted" means that nothing the guards look at has changed, and "refused" means: look again.
"""

from collections.abc import Callable, Sequence

import torch

TensorCheck = Callable[..., bool]


def exact_check(tensors: Sequence[torch.Tensor]) -> TensorCheck:
    """Return a function of as many tensors that tells whether they look the same as these.

    The tensors are not kept alive. Thread settings are taken from the thread that makes the check.
    """
    if not tensors:
        return lambda: True
    guards = torch._C._dynamo.guards.TensorGuards(
        *tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None
    )
    check: TensorCheck = guards.check
    return check
