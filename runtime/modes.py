"""What stands between a call in this thread and plain tensors; the private surface of torch for it."""

import torch
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

from . import devices

__all__ = ["count", "depth", "dispatch_modes", "forward_ad", "function_modes"]

dispatch_modes = torch._C._len_torch_dispatch_stack
depth = torch._C._len_torch_function_stack  # 0 where there is no function mode at all


def function_modes(place: torch.device) -> int:
    """Return how many function modes are active, without a default device that changes nothing.

    It says where new tensors are made for which nobody says it. On the CPU they are made anyway, and
    on the device where a model is, which "cuda" means while that GPU is the current one, it asks for no
    other program than the one for this device.

    Args:
        place: where the model runs, with its index.
    """
    modes = map(torch._C._get_function_stack_at, range(depth()))
    return sum(
        not (type(mode) is DeviceContext and _is_usual(mode.device, place)) for mode in modes
    )


def _is_usual(default: torch.device, place: torch.device) -> bool:
    return default.type == "cpu" or devices.indexed(default) == place


def count(place: torch.device) -> int:
    """Return how many modes, function transforms and levels of forward differentiation are active.

    Args:
        place: as for `function_modes`.
    """
    transforms = torch._C._functorch.get_interpreter_stack() or ()
    levels = forward_ad._current_level + 1
    return dispatch_modes() + function_modes(place) + len(transforms) + levels
