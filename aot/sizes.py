"""Torch's symbolic sizes, in the words of the spec: dimension names instead of `s27`."""

import ast
import itertools
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.printers import PythonPrinter

from ..formats import expression
from ..formats.bucket import Bucket, Range
from ..formats.errors import FormatError, ManifestError
from ..formats.expression import holds
from ..formats.expression import names as names_in
from .capture import Captured
from .errors import CaptureError

MAX_CHECKED = 20_000  # combinations of sizes that a relation is tried on


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
        symbols: dict[str, str] = {}
        env = shape_env(captured.program.graph)
        variables = env.source_to_var if env is not None else {}
        ranges = captured.bucket.ranges()
        for (path, leaf), node in zip(
            captured.signature.tensors(), user_inputs(captured), strict=True
        ):
            for axis, name in enumerate(leaf.shape):
                if isinstance(name, str) and name in ranges:
                    size = node.meta["val"].shape[axis]
                    if not isinstance(size, torch.SymInt):
                        raise CaptureError(
                            f"{where}: {path}.size({axis})",
                            found=f"dim {name!r} fixed to {int(size)} by the model's code",
                            expected=f"a graph for {name} in {ranges[name]}",
                            tip=f"use policy = 'specialize' for {name}, "
                            "or change the code to take any size",
                        )
                    source = f"L['inputs'][{leaf.index}].size()[{axis}]"
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
    env = shape_env(graph)
    found: dict[str, None] = {}
    for guard in env.guards if env is not None else ():
        found.setdefault(names.write(guard.expr))
    needed = []
    ranges = bucket.ranges()
    fixed = bucket.fixed()
    for text in found:
        left, _, right = text.partition(" == ")
        if left == right:
            continue  # two axes of the same dim, each of which has a guard of its own
        share = _share(text, ranges, fixed, where)
        if share == 1.0:
            continue
        if whole and share is not None and share < 0.5 and not _is_divisibility(text):
            raise CaptureError(
                where,
                found=f"the model's code needs {text}, so {1 - share:.0%} of the declared sizes fail",
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
