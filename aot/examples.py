"""Example calls of given sizes, made of one example call: values are repeated or cut, never invented."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..formats.signature import Node, Signature, TensorLeaf
from ..formats.tree import arguments
from . import structure
from .errors import SpecError
from .spec import Call


def resized(
    forward: Callable[..., Any], call: Call, shapes: Mapping[str, tuple[str | None, ...]]
) -> Callable[[Mapping[str, int]], Call]:
    """Return a function from sizes to a call like the example, its axes repeated or cut to size.

    Args:
        forward: the model's, for the names of its parameters.
        call: the example.
        shapes: the dimension of each axis, by the input's path.
    """

    def resize(sizes: Mapping[str, int]) -> Call:
        leaves: list[Any] = []

        def leaf(path: str, value: Any) -> Node:
            if isinstance(value, torch.Tensor):
                for axis, dim in enumerate(shapes.get(path, ())):
                    if dim is not None and dim in sizes:
                        value = _fit(value, axis, sizes[dim])
            leaves.append(value)
            return TensorLeaf(dtype="", shape=(), index=len(leaves) - 1)

        return arguments(Signature(parameters=structure.parameters(forward, call, leaf)), leaves)

    return resize


def chosen(forward: Callable[..., Any], call: Call, choices: Mapping[str, object]) -> Call:
    """Return the call with the chosen value for each parameter that has one.

    What the call gives by name stays by name: a wrapper around the model may look for it there.

    Raises:
        SpecError: the model has no parameter of that name.
    """
    args, kwargs = call
    parameters = inspect.signature(forward).parameters
    bound = inspect.signature(forward).bind_partial(*args)
    named = dict(kwargs)
    for name, value in choices.items():
        if name not in parameters:
            expected = f"one of {', '.join(parameters)}"
            raise SpecError("values, optional", found=repr(name), expected=expected)
        positional = parameters[name].kind is inspect.Parameter.POSITIONAL_ONLY
        (bound.arguments if positional or name in bound.arguments else named)[name] = value
    bound.arguments = {
        name: bound.arguments[name] for name in parameters if name in bound.arguments
    }
    return bound.args, {**bound.kwargs, **named}


def _fit(tensor: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    if tensor.size(axis) == size:
        return tensor
    if tensor.size(axis) == 0:
        shape = [*tensor.shape]
        shape[axis] = size
        return tensor.new_zeros(shape)
    index = torch.arange(size, device=tensor.device) % tensor.size(axis)
    return tensor.detach().index_select(axis, index)
