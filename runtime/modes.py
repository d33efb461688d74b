"""What stands between a call in this thread and plain tensors; the private surface of torch for it."""

import torch
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

__all__ = ["count", "depth", "dispatch_modes", "forward_ad", "function_modes"]

dispatch_modes = torch._C._len_torch_dispatch_stack
depth = torch._C._len_torch_function_stack  # 0 where there is no function mode at all


def function_modes() -> int:
    """Return how many function modes are active, without a default device that is the CPU.

    That one says where new tensors are made for which nobody says it, and they are made there anyway.
    """
    modes = map(torch._C._get_function_stack_at, range(depth()))
    return sum(not (type(mode) is DeviceContext and mode.device.type == "cpu") for mode in modes)


def count() -> int:
    """Return how many modes, function transforms and levels of forward differentiation are active."""
    transforms = torch._C._functorch.get_interpreter_stack() or ()
    levels = forward_ad._current_level + 1
    return dispatch_modes() + function_modes() + len(transforms) + levels
