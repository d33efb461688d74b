"""The operators of a graph one by one, by their eager kernels: which one is wrong by itself.

Before each operator its index is written down, so that one which ends the process or never returns is known.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from .. import operators, structure
from .answers import Wide, copy_of, double, grad_of, overflows
from .kinds import OVERFLOWS, WRONG_BACKWARD, WRONG_FAKE
from .subject import Graph, evaluate

Value = Callable[[Any], Any]

_STEP: Final = 1e-5  # how far numbers are moved for a difference, in float64
_ALLOWED: Final = 1e-3  # how far a gradient may be from it, as a part of its size
_FLAT: Final = 1e-12  # an operator that changes less is one that rounds, whose gradient is a choice


@dataclass(frozen=True, kw_only=True)
class Stop:
    """An operator that is wrong: its index, and what is wrong with it, in words."""

    index: int
    problem: str
    kind: str


def overflow(graph: Graph, at: Path) -> Stop | None:
    """Find the first operator whose result is inf or nan where float64, from the start on, is finite."""
    wide: dict[torch.fx.Node, Any] = {}
    found: list[Stop] = []

    def see(i: int, node: torch.fx.Node, value: Value) -> Any:
        _note(at, i)
        made = evaluate(i, node, value)
        given = torch.fx.map_arg(
            (node.args, node.kwargs), lambda n: wide[n] if n in wide else _double(value(n))
        )
        target: Any = node.target
        try:
            with Wide():  # type: ignore[no-untyped-call]
                wide[node] = target(*given[0], **given[1])
        except Exception:  # it has no float64
            wide[node] = _double(made)
        if not found and isinstance(made, torch.Tensor) and isinstance(wide[node], torch.Tensor):
            problem = overflows(made, wide[node])
            if problem:
                found.append(Stop(index=i, problem=problem, kind=OVERFLOWS))
        return made

    graph.run(see)
    return found[0] if found else None


def fakes(graph: Graph, at: Path) -> Stop | None:
    """Find the first operator whose result has another form than the trace was told."""
    found: list[Stop] = []

    def see(i: int, node: torch.fx.Node, value: Value) -> Any:
        _note(at, i)
        made = evaluate(i, node, value)
        if not found:
            strides = operators.is_custom(node)
            problem = "; ".join(_unlike(made, node.meta.get("val"), strides=strides))
            if problem:
                found.append(Stop(index=i, problem=problem, kind=WRONG_FAKE))
                return made
        return made

    try:
        graph.run(see)
    except Exception:
        if not found:  # else it is what comes of the wrong form
            raise
    return found[0] if found else None


def backwards(graph: Graph, at: Path) -> Stop | None:
    """Find the first custom operator whose own gradient is not what differences say.

    Those of torch are not looked at, nor is an operator without float64, or one that is flat: the gradient
    of what rounds is a choice.
    """
    found: list[Stop] = []

    def see(i: int, node: torch.fx.Node, value: Value) -> Any:
        _note(at, i)
        if not found and operators.is_custom(node):
            args, kwargs = value(node.args), value(node.kwargs)
            problem = _slope(node.target, args, kwargs)
            if problem:
                found.append(Stop(index=i, problem=problem, kind=WRONG_BACKWARD))
        return evaluate(i, node, value)

    graph.run(see)
    return found[0] if found else None


def eager(graph: Graph, at: Path) -> None:
    """Run every operator, forward and, where gradients are recorded, backward."""

    def see(i: int, node: torch.fx.Node, value: Value) -> Any:
        _note(at, i)
        made = evaluate(i, node, value)
        if graph.mode.step and isinstance(made, torch.Tensor) and made.requires_grad:
            args = torch.utils._pytree.tree_map_only(torch.Tensor, copy_of, value(node.args))
            kwargs = torch.utils._pytree.tree_map_only(torch.Tensor, copy_of, value(node.kwargs))
            target: Any = node.target
            alone = target(*args, **kwargs)
            alone.backward(torch.ones_like(alone))
        return made

    graph.run(see)


def _note(at: Path, index: int) -> None:
    at.write_text(str(index), encoding="utf-8")


def _double(value: Any) -> Any:
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda one: double(one.detach()), value)


def form(tensor: torch.Tensor) -> str:
    """Return dtype, shape and strides: `float32[4, 8] strides (8, 1)`."""
    return f"{structure.form(tensor)} strides {tuple(int(step) for step in tensor.stride())}"


def _unlike(made: Any, told: Any, *, strides: bool) -> Iterator[str]:
    """Yield where values are not what a trace was told, `strides` included for axes of several elements."""
    results = torch.utils._pytree.tree_leaves(made)
    for i, (one, other) in enumerate(
        zip(results, torch.utils._pytree.tree_leaves(told), strict=False)
    ):
        if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
            continue
        alike = one.shape == other.shape and one.dtype == other.dtype
        if alike and strides:
            axes = [axis for axis, size in enumerate(one.shape) if size > 1]
            alike = all(one.stride(axis) == other.stride(axis) for axis in axes)
        if not alike:
            which = f"result {i}: " if len(results) > 1 else ""
            yield f"{which}its fake says {form(other)}, its kernel makes {form(one)}"


def _slope(target: Any, args: Any, kwargs: Any) -> str:
    """Hold an operator's gradient against central differences, at a point near the given one."""
    noise = torch.Generator().manual_seed(0)
    wanted: list[torch.Tensor] = []

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        own = double(copy_of(tensor.detach()))
        if own.is_floating_point():
            shift = torch.randn(own.shape, generator=noise, dtype=torch.float64).to(own.device)
            own = (own + 1e-3 * shift * own.abs().mean().clamp(min=1e-3)).requires_grad_(
                tensor.requires_grad
            )
            if tensor.requires_grad:
                wanted.append(own)
        return own

    args, kwargs = torch.utils._pytree.tree_map_only(torch.Tensor, moved, (args, kwargs))
    if not wanted:
        return ""
    try:
        with torch.enable_grad():
            made = target(*args, **kwargs)
        tensors = [
            one
            for one in torch.utils._pytree.tree_leaves(made)
            if isinstance(one, torch.Tensor) and one.requires_grad
        ]
        weights = [
            torch.randn(one.shape, generator=noise, dtype=torch.float64).to(one) for one in tensors
        ]
        torch.autograd.backward(tensors, weights)
    except (NotImplementedError, RuntimeError):  # it has no float64, or no gradient
        return ""
    grads = [grad_of(one) for one in wanted]
    for i, one in enumerate(wanted):
        direction = torch.randn(one.shape, generator=noise, dtype=torch.float64).to(one)
        sides = []
        for sign in (1, -1):
            with torch.no_grad():
                one += sign * _STEP * direction
                again = target(*args, **kwargs)
                one -= sign * _STEP * direction
            results = torch.utils._pytree.tree_leaves(again)
            outputs = [r for r in results if isinstance(r, torch.Tensor) and r.is_floating_point()]
            sides.append(
                sum(float((o.double() * w).sum()) for o, w in zip(outputs, weights, strict=False))
            )
        change = (sides[0] - sides[1]) / (2 * _STEP)
        said = float((grads[i] * direction).sum())
        size = float((grads[i] * direction).square().sum().sqrt())
        if abs(change) > _FLAT and abs(change - said) > _ALLOWED * max(abs(change), size):
            return (
                f"along a drawn direction of argument {i} it changes by {change:.6g}, "
                f"and its backward says {said:.6g}"
            )
    return ""
