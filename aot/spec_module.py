"""A spec from a live module and torch's own `dynamic_shapes`."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from .dims import Dim, Dynamic, Specialize
from .errors import SpecError
from .examples import resized
from .spec import Spec

UNBOUNDED = 1 << 40  # torch's Dim has such a maximum where none was given


def from_module(
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    buckets: Mapping[str, Any] | None,
    name: str | None,
    options: Mapping[str, Any],
) -> Spec:
    """Make the spec; see Spec.from_module."""
    args, kwargs = tuple(args), dict(kwargs or {})
    try:
        bound = inspect.signature(model.forward).bind(*args, **kwargs).arguments
    except TypeError as error:
        expected = f"arguments of {type(model).__name__}.forward"
        raise SpecError("args, kwargs", found=error, expected=expected) from None
    if isinstance(dynamic_shapes, tuple | list):
        dynamic_shapes = dict(zip(bound, dynamic_shapes, strict=False))
    dims: dict[str, Dim] = {}
    shapes: dict[str, tuple[str | None, ...]] = {}
    for parameter, declared in (dynamic_shapes or {}).items():
        if parameter not in bound:
            expected = f"one of {', '.join(bound)}"
            raise SpecError("dynamic_shapes", found=repr(parameter), expected=expected)
        for path, axes in _axes(bound[parameter], declared, parameter):
            shapes[path] = tuple(_declare(dims, path, i, dim) for i, dim in enumerate(axes))
    _specialize(dims, shapes, buckets or {})
    return Spec(
        name=name or type(model).__name__,
        model=lambda: model,
        inputs=resized(model.forward, (args, kwargs), shapes),
        dims=dims,
        shapes=shapes,
        source=f"{type(model).__module__}:{type(model).__qualname__}",
        **options,
    )


def _axes(value: Any, declared: Any, path: str) -> Iterator[tuple[str, list[Any]]]:
    """Yield what is declared for each axis of each tensor under `value`."""
    if declared is None:
        return
    if isinstance(value, torch.Tensor):
        if isinstance(declared, Mapping):
            yield path, [declared.get(axis) for axis in range(value.dim())]
        else:
            yield path, list(declared)
    elif isinstance(value, Mapping):
        for key, item in declared.items():
            yield from _axes(value.get(key), item, f"{path}[{key!r}]")
    elif isinstance(value, Sequence):
        for i, item in enumerate(declared):
            yield from _axes(value[i], item, f"{path}[{i}]")
    else:
        for key, item in declared.items() if isinstance(declared, Mapping) else ():
            yield from _axes(getattr(value, key), item, f"{path}.{key}")


def _declare(dims: dict[str, Dim], path: str, axis: int, dim: Any) -> str | None:
    """Record a torch `Dim`; return its name, one of ours where it has none that is a name."""
    hint = getattr(getattr(dim, "type", None), "name", "")  # of Dim.STATIC and the like
    if dim is None or isinstance(dim, int) or hint == "STATIC":
        return None
    name = getattr(dim, "__name__", "")
    if not str(name).isidentifier() or str(name).isupper():
        name = "".join(c if c.isalnum() else "_" for c in path).strip("_") + f"_{axis}"
    low, high = getattr(dim, "min", None), getattr(dim, "max", None)
    top = None if high is None or not high < UNBOUNDED else int(high)
    dims[name] = Dynamic(min=2 if low is None else int(low), max=top)
    return str(name)


def _specialize(
    dims: dict[str, Dim], shapes: dict[str, tuple[str | None, ...]], buckets: Mapping[str, Any]
) -> None:
    """Replace the policy of the dims that `buckets` lists sizes for."""
    for key, sizes in buckets.items():
        if isinstance(sizes, Mapping):  # {input: {axis: sizes}}
            for axis, listed in sizes.items():
                axes = shapes.get(key, ())
                name = axes[axis] if axis < len(axes) else None
                if name is None:
                    found = f"axis {axis} of {key!r}"
                    expected = "an axis with a dim in dynamic_shapes"
                    raise SpecError("buckets", found=found, expected=expected)
                dims[name] = Specialize(values=tuple(listed))
        elif key in dims:
            dims[key] = Specialize(values=tuple(sizes))
        else:
            expected = f"one of {', '.join(dims) or 'no dims at all'}"
            raise SpecError("buckets", found=repr(key), expected=expected)
