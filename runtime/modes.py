"""What stands between a call in this thread and plain tensors; the private surface of torch for it."""

import torch
from torch.autograd import forward_ad

__all__ = ["count", "dispatch_modes", "forward_ad", "function_modes"]

dispatch_modes = torch._C._len_torch_dispatch_stack
function_modes = torch._C._len_torch_function_stack


def count() -> int:
    """Return how many modes, function transforms and levels of forward differentiation are active."""
    transforms = torch._C._functorch.get_interpreter_stack() or ()
    levels = forward_ad._current_level + 1
    return dispatch_modes() + function_modes() + len(transforms) + levels
