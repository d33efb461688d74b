"""How the model that an artifact stands for is set when a call comes: part of what the call asks for."""

from collections.abc import Callable
from typing import NamedTuple

import torch

from ..formats.guard import MODULE, Guard
from ..formats.manifest import Manifest
from ..formats.training import ALL, NONE, describe
from ..formats.variant import Variant
from .miss import Refusal

_EVAL_MODE = Guard(subject=MODULE, fact="training", expected=NONE)


class Setting(NamedTuple):
    """What guards on the module are held against.

    Attributes:
        training: which of its parts are in training mode.
        trainable: whether gradients are recorded and one of its weights asks for one.
    """

    training: str = NONE
    trainable: bool = False


Read = Callable[[], Setting]


def reader(manifest: Manifest, module: object, *, training: bool) -> Read:
    """Return a function that reads the setting of the module that answers misses.

    Of a model that is built for one mode only, its own mode is read and not that of each part.

    Args:
        manifest: says what the variants ask for; the rest need not be read.
        module: the fallback module; where it is none, the setting stays as it is.
        training: whether that is training mode.
    """
    asked = {
        guard.fact: guard.expected
        for variant in manifest.variants
        for guard in variant.guards
        if guard.subject == MODULE and guard.expected != NONE
    }
    evaluating, train = Setting(), Setting(training=asked.get("training", ALL))
    if not isinstance(module, torch.nn.Module):
        constant = train if training else evaluating
        return lambda: constant
    if not asked:
        return lambda: train if module.training else evaluating
    parts = tuple(module.named_modules())

    def read() -> Setting:
        mode = evaluating.training if not module.training else train.training
        if "training" in asked:
            mode = describe((name, part.training) for name, part in parts)
        if not torch.is_grad_enabled():
            return Setting(mode)
        return Setting(mode, any(_is_trainable(part) for _, part in parts))

    return read


def _is_trainable(part: torch.nn.Module) -> bool:
    """Return whether a parameter or buffer that a module itself holds asks for a gradient."""
    held = (*part._parameters.values(), *part._buffers.values())
    return any(tensor is not None and tensor.requires_grad for tensor in held)


def guards(variant: Variant) -> tuple[Guard, ...]:
    """Return a variant's guards on the module; one that says nothing of its mode is for eval mode."""
    found = tuple(guard for guard in variant.guards if guard.subject == MODULE)
    return found if any(guard.fact == "training" for guard in found) else (*found, _EVAL_MODE)


def refusals(asked: tuple[Guard, ...], setting: Setting) -> list[Refusal]:
    """Return each guard on the module that does not hold, with both values."""
    actual = setting._asdict()
    return [
        Refusal(guard.name, guard.refusal(actual[guard.fact], {}))
        for guard in asked
        if not guard.accepts(actual[guard.fact], {})
    ]
