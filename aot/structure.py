"""Python values to the trees and leaves of a signature."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..formats.layout import CONTIGUOUS, layout_of
from ..formats.signature import (
    Branch,
    Node,
    Parameter,
    Sample,
    TensorLeaf,
    ValueLeaf,
    step,
    write_key,
)
from .errors import CaptureError
from .spec import Call

Leaf = Callable[[str, Any], Node]


def describe(value: Any, path: str, leaf: Leaf) -> Node:
    """Return the tree of a value; `leaf` makes each leaf from its path and value.

    Raises:
        CaptureError: a container of a kind that cannot be recorded; the message has its path.
    """
    form, keys, items = _open(value, path)
    if form is None:
        return leaf(path, value)
    kind = type(value)
    name = form if kind in (list, tuple, dict) else f"{kind.__module__}:{kind.__qualname__}"
    if "<locals>" in name:
        expected = "a class at the top level of a module"
        raise CaptureError(path, found=f"a container of class {name}", expected=expected)
    branch = Branch(type=name, form=form, keys=keys)
    children = [describe(item, path + step(branch, i), leaf) for i, item in enumerate(items)]
    return dataclasses.replace(branch, children=tuple(children))


def parameters(forward: Callable[..., Any], call: Call, leaf: Leaf) -> tuple[Parameter, ...]:
    """Return the parameters of `forward` with what the call holds for each, defaults included."""
    args, kwargs = call
    signature = inspect.signature(forward)
    given = signature.bind(*args, **kwargs).arguments
    made = []
    for name, parameter in signature.parameters.items():
        has_default = parameter.default is not inspect.Parameter.empty
        default = _value(parameter.default) if has_default else None
        node = None
        if name in given:
            node = describe(given[name], name, leaf)
        elif default is not None:
            node = default
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            node = Branch(type="tuple", form="tuple")
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            node = Branch(type="dict", form="dict")
        form = parameter.kind.name.lower()
        made.append(Parameter(name=name, form=form, default=default, node=node))
    return tuple(made)


def leaves(forward: Callable[..., Any], call: Call) -> list[Any]:
    """Return what a call passes for each leaf, defaults included, in the order of a signature."""
    found: list[Any] = []

    def leaf(path: str, value: Any) -> Node:
        found.append(value)
        return TensorLeaf(dtype="", shape=(), index=len(found) - 1)

    parameters(forward, call, leaf)
    return found


def dtype_name(dtype: torch.dtype) -> str:
    """Return the dtype as the formats write it: "float32"."""
    return str(dtype).removeprefix("torch.")


def form(tensor: torch.Tensor) -> str:
    """Return dtype and shape: `float32[4, 8]`."""
    return f"{dtype_name(tensor.dtype)}[{', '.join(str(int(size)) for size in tensor.shape)}]"


def tensor_layout(tensor: torch.Tensor) -> str:
    """Return the layout to compile for: the tensor's own where it is dense, else contiguous."""
    return layout_of(tuple(tensor.shape), tensor.stride()) or CONTIGUOUS


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor in the layout to compile for, no lazy view; itself where it is that."""
    tensor = tensor.resolve_conj().resolve_neg()
    if layout_of(tuple(tensor.shape), tensor.stride()) is None:
        return tensor.contiguous()
    return tensor


def sample(tensor: torch.Tensor) -> Sample:
    """Return how to draw values like those of an example."""
    if tensor.numel() == 0:
        return Sample()
    if tensor.dtype.is_floating_point:
        values = tensor.detach().double()
        std = float(values.std(correction=0))
        return Sample(mean=_round(float(values.mean())), std=_round(std) if std > 0 else 0.0)
    if tensor.dtype.is_complex:
        return Sample()
    return Sample(low=int(tensor.min()), high=int(tensor.max()))


def _round(value: float) -> float:
    """To three digits, and finite: it is a hint for drawing values, not a measurement."""
    return float(f"{value:.3g}") if abs(value) < 1e30 else 0.0


def _value(value: object) -> ValueLeaf | None:
    try:
        return ValueLeaf.of(value)
    except TypeError:
        return None


def _open(value: Any, path: str) -> tuple[str | None, tuple[str, ...], list[Any]]:
    """Return form, keys and items of a container; a form of None for a leaf."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        # A field that is None is left out, as transformers' outputs do; None in a tree is a value.
        present = {name: item for name, item in fields.items() if item is not None}
        return "dataclass", tuple(present), list(present.values())
    if isinstance(value, Mapping):
        try:
            return "dict", tuple(write_key(key) for key in value), list(value.values())
        except TypeError as error:
            expected = "str or int keys"
            raise CaptureError(path, found=f"a key of type {error}", expected=expected) from None
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return "namedtuple", tuple(value._fields), list(value)
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        return ("list" if isinstance(value, list) else "tuple"), (), list(value)
    return None, (), []
