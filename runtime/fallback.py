"""The module that answers misses must be the same model: other weights would be a wrong answer."""

from collections.abc import Mapping
from typing import Any

import torch

from ..formats import code_values
from ..formats.manifest import Manifest
from ..formats.signature import describe_value
from .errors import StateError
from .weights import describe


def check(module: Any, manifest: Manifest, weights: Mapping[str, torch.Tensor]) -> None:
    """Refuse a module whose parameters or buffers differ from the artifact's weights.

    What the module does not have by name (constants that capture lifted out of the code) is left
    alone, and so is a callable that is no module.

    Raises:
        StateError: naming the first weight, or the first plain Python value (an attribute, or a global
            that its code reads), that differs: both are constants of the compiled programs; or that is
            on another device.
    """
    if not isinstance(module, torch.nn.Module):
        return
    check_frozen(module, manifest)
    own = named_tensors(module)
    for name, weight in weights.items():
        mine = own.get(name)
        if mine is not None and mine.device != weight.device:
            raise StateError(
                f"fallback module of {manifest.name}: {name}",
                found=f"on {mine.device}",
                expected=f"on {weight.device}, the device that the artifact is loaded for",
                tip=f"move the module there: module.to({str(weight.device)!r})",
            )
        if mine is not None and not _equal(mine.detach(), weight):
            raise StateError(
                f"fallback module of {manifest.name}: {name}",
                found=describe(mine) if mine.shape != weight.shape else "other values",
                expected=f"the artifact's {describe(weight)}",
                tip="load the checkpoint that the artifact was built from into the fallback module",
            )


def check_methods(module: Any, manifest: Manifest) -> None:
    """Refuse a module that lacks one of the methods that the artifact is for.

    Raises:
        StateError: naming it.
    """
    for name in filter(None, manifest.entries):
        if not callable(getattr(module, name, None)):
            raise StateError(
                f"fallback module of {manifest.name}",
                found=f"a {type(module).__name__} without a method {name!r}",
                expected=f"the methods {', '.join(manifest.entries)}",
                tip="make the fallback module as the artifact's spec does, or rebuild",
            )


def named_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return a module's parameters and buffers by name, tied ones under each of their names."""
    own: dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
    own.update(module.named_buffers(remove_duplicate=False))
    return own


def check_frozen(module: torch.nn.Module, manifest: Manifest) -> None:
    """Refuse a module with other plain Python values than the artifact was built with.

    Raises:
        StateError: naming the first.
    """
    read = code_values.find(code_values.functions(module, manifest.entries))
    for path, expected in manifest.frozen.items():
        found = read[path] if path in read else _attribute(module, path)
        if found is not None and found != expected:
            raise StateError(
                f"fallback module of {manifest.name}: {path}",
                found=found,
                expected=f"{expected}, as when the artifact was built",
                tip="make the fallback module as the artifact's spec does, or rebuild",
            )


def _attribute(module: torch.nn.Module, path: str) -> str | None:
    """Return the plain value of a submodule's attribute as text; None where there is none."""
    owner, _, name = path.rpartition(".")
    try:
        return describe_value(getattr(module.get_submodule(owner), name))
    except AttributeError:
        return None


def _equal(mine: torch.Tensor, weight: torch.Tensor) -> bool:
    if mine.shape != weight.shape or mine.dtype != weight.dtype:
        return False
    return torch.equal(mine, weight) or torch.allclose(mine, weight, rtol=0, atol=0, equal_nan=True)
