"""An exact check of many tensors at once: compiled code that the artifact carries, else the private
C++ check that Dynamo's own guards use.

Both compare type, dtype, device, size, stride, `requires_grad` and dispatch keys; through the keys also
negative and conjugate views, subclasses, inference tensors, and what is active in the calling thread:
autocast, inference mode, dispatch modes, function transforms. So "accepted" means that nothing the
guards look at has changed, and "refused" means: look again.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter

import torch

from . import modes

TensorCheck = Callable[..., bool]

# Makes a check of a tuple of tensors; None where it cannot. See formats/SPEC.md.
Compiled = Callable[[tuple[torch.Tensor, ...]], TensorCheck | None]

_IS_NESTED = attrgetter("is_nested")
_STANDS_IN = torch.empty(
    0, device="cpu"
)  # for the settings of the thread, where a call has no tensor


def exact_check(tensors: Sequence[torch.Tensor], compiled: Compiled | None = None) -> TensorCheck:
    """Return a function of as many tensors that tells whether they look the same as these.

    A tensor that is among them twice must be twice in the same places; two tensors must be two.

    The tensors are not kept alive. Thread settings are taken from the thread that makes the check.

    Args:
        tensors: of a call that was accepted.
        compiled: what to use instead of Dynamo's check; not where it refuses these very tensors.
    """
    if not tensors:
        check = exact_check([_STANDS_IN], compiled)
        return lambda: check(_STANDS_IN)
    if compiled is not None:
        made = compiled(tuple(tensors))
        if made is not None and made(*tensors):
            return made
    return _dynamo(tensors)


def _dynamo(tensors: Sequence[torch.Tensor]) -> TensorCheck:
    place = {id(tensor): i for i, tensor in reversed(list(enumerate(tensors)))}
    once = sorted(place.values())
    guards = torch._C._dynamo.guards.TensorGuards(
        *(tensors[i] for i in once), dynamic_dims_sizes=None, dynamic_dims_strides=None
    )
    alike: TensorCheck = guards.check
    again = [(i, place[id(tensor)]) for i, tensor in enumerate(tensors) if i not in once]
    active = modes.dispatch_modes()

    def check(*given: torch.Tensor) -> bool:
        # Dynamo overlooks modes that ask torch.compile not to see them, and ends the process where a
        # nested tensor has no strides.
        if modes.dispatch_modes() != active or not _none_is_nested(given):
            return False
        if not again:
            return alike(*given)
        # It refuses a tensor that it is given twice.
        return all(given[i] is given[j] for i, j in again) and alike(*[given[i] for i in once])

    return check


def _none_is_nested(given: tuple[object, ...]) -> bool:
    try:
        return not any(map(_IS_NESTED, given))
    except AttributeError:  # not a tensor
        return False
