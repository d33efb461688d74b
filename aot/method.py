"""The methods of a model that has several: each is captured as a model is, over the same weights."""

import copy
import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..formats import entries
from .errors import ModelError, SpecError

if TYPE_CHECKING:
    import torch

    from .spec import Call


@dataclass(frozen=True, kw_only=True)
class Method:
    """The calls that one method of a model must answer.

    Attributes:
        inputs, shapes, values, optional: as in Spec, for the parameters of the method.
    """

    inputs: "Callable[[Mapping[str, int]], Call]"
    shapes: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    values: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    optional: tuple[str, ...] = ()


def check_name(name: str) -> None:
    """Refuse a name that the method would not be served under.

    Raises:
        SpecError: it is none of a public method, or has another meaning for what `load` returns.
    """
    problem = entries.problem(name)
    if problem:
        raise SpecError(f"methods.{name}", found=repr(name), expected=problem)


def view(module: "torch.nn.Module", name: str) -> "torch.nn.Module":
    """Return a module whose `forward` is a method of another, over the same weights and submodules.

    Raises:
        ModelError: there is no such method.
    """
    method = getattr(module, name, None)
    if not inspect.ismethod(method):
        kind = type(module).__name__
        found = f"no method {name!r}" if method is None else f"a {type(method).__name__}"
        raise ModelError(f"{kind}.{name}", found=found, expected=f"a method of {kind}")
    seen: Any = copy.copy(module)
    seen._forward_hooks, seen._forward_pre_hooks = OrderedDict(), OrderedDict()  # not the method's
    seen.forward = method
    shown: torch.nn.Module = seen
    return shown
