"""Integer expressions over dimension names, as text: `seq`, `2*batch + 1`, `batch*seq <= 4096`.

The grammar is a small part of Python's: integers, names, `+ - * // %`, unary minus, `min` and `max`,
comparisons, `and`, `or`, `not`. Nothing else parses, so text from a file is safe to evaluate.
"""

import ast
import functools
from collections.abc import Callable, Mapping
from typing import Any

from .errors import ManifestError, TooLargeError

MAX_LENGTH = 4096

_ALLOWED = (
    ast.Expression,
    ast.BinOp,
    ast.UnaryOp,
    ast.Compare,
    ast.BoolOp,
    ast.Name,
    ast.Load,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.FloorDiv,
    ast.Mod,
    ast.USub,
    ast.Not,
    ast.And,
    ast.Or,
    ast.Eq,
    ast.NotEq,
    ast.Lt,
    ast.LtE,
    ast.Gt,
    ast.GtE,
)
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max}


def evaluate(text: str, dims: Mapping[str, int]) -> int | bool:
    """Return the value of the expression for these sizes.

    Raises:
        ManifestError: the text is not in the grammar, or names a dimension that is not in `dims`.
    """
    code, names = _parse(text)
    missing = names - dims.keys()
    if missing:
        raise ManifestError(
            f"expression {text!r}", found=f"unknown names {sorted(missing)}", expected=sorted(dims)
        )
    try:
        value: int | bool = eval(code, {"__builtins__": {}, **_FUNCTIONS}, dict(dims))
    except ZeroDivisionError:
        raise ManifestError(
            f"expression {text!r}", found=f"a division by zero for {dict(dims)}", expected="a value"
        ) from None
    return value


def names(text: str) -> frozenset[str]:
    """Return the dimension names that the expression reads."""
    return _parse(text)[1]


@functools.lru_cache(maxsize=4096)
def _parse(text: str) -> tuple[Any, frozenset[str]]:
    if len(text) > MAX_LENGTH:
        found = f"{len(text)} characters"
        raise TooLargeError("expression", found=found, expected=f"at most {MAX_LENGTH}")
    try:
        tree = ast.parse(text, mode="eval")
        found = set()
        functions = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS:
                    raise SyntaxError
                if node.keywords:
                    raise SyntaxError
                functions.add(id(node.func))
            elif isinstance(node, ast.Constant):
                if type(node.value) is not int and type(node.value) is not bool:
                    raise SyntaxError
            elif not isinstance(node, _ALLOWED):
                raise SyntaxError
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and id(node) not in functions:
                found.add(node.id)
        return compile(tree, "<expression>", "eval"), frozenset(found)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        expected = "integers, names, + - * // %, min, max, comparisons, and, or, not"
        raise ManifestError("expression", found=repr(text[:80]), expected=expected) from None
