"""Torch's symbolic sizes, in the words of the spec: dimension names instead of `s27`."""

import ast
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.printers import PythonPrinter

from ..formats import expression
from ..formats.bucket import Bucket, Range
from ..formats.errors import FormatError, ManifestError
from ..formats.expression import holds
from ..formats.expression import names as names_in
from . import source_line
from .capture import Captured
from .errors import CaptureError
from .source_line import Line

MAX_CHECKED = 20_000  # combinations of sizes that a relation is tried on
CODE = "the model's code"  # where no line of it is known


class Names:
    """The dimension each of torch's symbols stands for, in one captured graph.

    Attributes:
        symbols: the dimension by the symbol's own name; an axis that turned out equal to another keeps
            a symbol of its own.
    """

    def __init__(self, symbols: Mapping[str, str], where: str) -> None:
        self.symbols = dict(symbols)
        self._where = where

    @classmethod
    def of(cls, captured: Captured, where: str) -> "Names":
        """Read the symbols off the graph's inputs.

        Raises:
            CaptureError: a dimension that was declared to vary came out fixed.
        """
        for one in fixed(captured):
            raise CaptureError(
                f"{where}: {one.path}.size({one.axis})",
                found=f"dim {one.name!r} fixed to {one.size} by {one.line or CODE}",
                expected=f"a graph for {one.name} in {captured.bucket.ranges()[one.name]}",
                tip=f"use policy = 'specialize' for {one.name}, "
                "or change the code to take any size",
            )
        env = shape_env(captured.program.graph)
        variables = env.source_to_var if env is not None else {}
        symbols: dict[str, str] = {}
        for _, _, name, size, source in _open_axes(captured):
            symbols[str(variables.get(source, size.node.expr))] = name
        return cls(symbols, where)

    def write(self, expression: Any) -> str:
        """Return a sympy expression as text over dimension names.

        Raises:
            CaptureError: it depends on something that is no dimension of an input.
        """
        unknown = {str(symbol) for symbol in expression.free_symbols} - self.symbols.keys()
        if unknown:
            raise CaptureError(
                self._where,
                found=f"a size that depends on data or on no declared dim: {expression}",
                expected=f"sizes that follow from {sorted(set(self.symbols.values()))}",
            )
        text = PythonPrinter().doprint(expression)
        names = ast.parse(text, mode="eval")
        for node in ast.walk(names):
            if isinstance(node, ast.Name):
                node.id = self.symbols.get(node.id, node.id)
        text = ast.unparse(names)
        try:
            names_in(text)
        except ManifestError as error:
            expected = "sizes that can be computed at run time"
            raise CaptureError(self._where, found=text, expected=expected) from error
        return text


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """An axis that was declared to vary, and came out with one size.

    Attributes:
        path, axis: of the input.
        name: of the dimension.
        size: that it came out with.
        line: of the user's that has fixed it; None where torch has not noted one.
    """

    path: str
    axis: int
    name: str
    size: int
    line: Line | None


def fixed(captured: Captured) -> list[Fixed]:
    """Return every axis that the model's code has fixed against the declaration."""
    env = shape_env(captured.program.graph)
    variables = env.source_to_var if env is not None else {}
    fixed_by = env.replacements_slocs if env is not None else {}
    return [
        Fixed(
            path=path,
            axis=axis,
            name=name,
            size=int(size),
            line=source_line.of_guard(fixed_by.get(variables.get(source))),
        )
        for path, axis, name, size, source in _open_axes(captured)
        if not isinstance(size, torch.SymInt)
    ]


def _open_axes(captured: Captured) -> Iterator[tuple[str, int, str, Any, str]]:
    """Yield the path, axis, dimension, size and torch's source of each axis that is declared to vary."""
    ranges = captured.bucket.ranges()
    inputs = zip(captured.signature.tensors(), user_inputs(captured), strict=True)
    for (path, leaf), node in inputs:
        for axis, name in enumerate(leaf.shape):
            if isinstance(name, str) and name in ranges:
                source = f"L['inputs'][{leaf.index}].size()[{axis}]"
                yield path, axis, name, node.meta["val"].shape[axis], source


def user_inputs(captured: Captured) -> list[torch.fx.Node]:
    """Return the graph's placeholders of the call's tensors, in order."""
    names = set(captured.program.graph_signature.user_inputs)
    return [n for n in captured.program.graph.nodes if n.op == "placeholder" and n.name in names]


def shape_env(graph: torch.fx.Graph) -> ShapeEnv | None:
    """Return what torch knows of a graph's symbols; None where all sizes are fixed."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and hasattr(value, "fake_mode"):
            env: ShapeEnv | None = value.fake_mode.shape_env
            return env
    return None


def lines(graph: torch.fx.Graph, names: Names) -> dict[str, Line | None]:
    """Return every guard of torch's on the sizes, over dimension names, with the user's line that asks.

    Raises:
        CaptureError: one cannot be expressed.
    """
    env = shape_env(graph)
    found: dict[str, Line | None] = {}
    for guard in env.guards if env is not None else ():
        found.setdefault(names.write(guard.expr), source_line.of_guard(guard.sloc))
    return found


def relations(
    graph: torch.fx.Graph, bucket: Bucket, names: Names, where: str, *, whole: bool = True
) -> tuple[str, ...]:
    """Return what the sizes must satisfy beyond their ranges for the graph to be right.

    Every guard of torch's is written over dimension names; those that hold for all declared sizes are
    left out. Call it after compilation, too: the compiler adds guards of its own.

    Args:
        graph: whose sizes are meant.
        bucket: the declared sizes.
        names: the dimensions of its symbols.
        where: the job's identifier, for messages.
        whole: refuse a graph that is right for less than half of its bucket.

    Raises:
        CaptureError: a relation refuses most declared sizes, or cannot be expressed.
    """
    needed = []
    ranges = bucket.ranges()
    fixed = bucket.fixed()
    for text, line in lines(graph, names).items():
        left, _, right = text.partition(" == ")
        if left == right:
            continue  # two axes of the same dim, each of which has a guard of its own
        share = _share(text, ranges, fixed, where)
        if share == 1.0:
            continue
        if whole and share is not None and share < 0.5 and not _is_divisibility(text):
            raise CaptureError(
                where,
                found=f"{line or CODE} needs {text}, so {1 - share:.0%} of the declared sizes fail",
                expected=f"a graph for {', '.join(f'{n} in {r}' for n, r in ranges.items())}",
                tip=_way_out(text),
            )
        needed.append(text)
    return tuple(needed)


def _share(
    text: str, ranges: Mapping[str, Range], fixed: Mapping[str, int], where: str
) -> float | None:
    """Return the share of the declared sizes for which the relation holds.

    None where it held for all that were tried, and they were too many to try all.
    """
    spans = []
    complete = True
    for size in ranges.values():
        top = size.max if size.max is not None else size.min + 4096
        step = max(1, (top - size.min + 1) // 512)
        complete = complete and step == 1 and size.max is not None
        spans.append(sorted({*range(size.min, top + 1, step), top}))
    tried = list(itertools.islice(itertools.product(*spans), MAX_CHECKED))
    complete = complete and len(tried) < MAX_CHECKED
    try:
        expression.check(text, bool, frozenset({*fixed, *ranges}), where)
    except FormatError as error:
        expected = "a relation between sizes that can be checked at run time"
        raise CaptureError(where, found=error.found, expected=expected) from None
    held = sum(holds(text, {**fixed, **dict(zip(ranges, sizes, strict=True))}) for sizes in tried)
    if held == len(tried):
        return 1.0 if complete else None  # tried on some sizes only: keep the guard
    return held / len(tried)


def _way_out(text: str) -> str:
    """Return what to do about a relation that refuses most sizes."""
    name, _, size = text.partition(" == ")
    if name.isidentifier() and size.isdecimal():
        return f"use policy = 'specialize' for {name}, or change the code to take any size"
    return "narrow the range to what the code takes, or declare equal sizes as one dim"


def _is_divisibility(text: str) -> bool:
    return "%" in text or "//" in text
