"""Integer expressions over dimension names, as text: `seq`, `2*batch + 1`, `batch*seq <= 4096`.

The grammar is a small part of Python's: integers, names, `+ - * // %`, unary minus, `min` and `max`
of two or more, comparisons of integers, `and`, `or` and `not` of comparisons, True and False.
Nothing else parses, so text from a file is safe to evaluate.
"""

import ast
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .errors import ManifestError, TooLargeError
from .strict_json import show

MAX_LENGTH: Final = 4096  # characters
MAX_DEPTH: Final = 100  # operators inside operators

# Each run of letters and digits is one token, so the pattern matches in one way only.
_TOKENS = re.compile(
    r"(?:(?:[A-Za-z_][A-Za-z0-9_]*|[0-9]+)(?![A-Za-z0-9_])|[<>=!]=|[-+*/%<>(), ])*"
)
_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {"min": min, "max": max}
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def evaluate(text: str, dims: Mapping[str, int]) -> int | bool:
    """Return the value of the expression for these sizes.

    Raises:
        ManifestError: the text is not in the grammar, names a dimension that is not in `dims`, or
            divides by zero.
        TooLargeError: the text is too long.
    """
    parsed = _parse(text)
    missing = parsed.names - dims.keys()
    if missing:
        raise ManifestError(
            f"expression {text!r}", found=f"unknown names {sorted(missing)}", expected=sorted(dims)
        )
    try:
        value: int | bool = eval(parsed.code, {"__builtins__": {}, **_FUNCTIONS}, dict(dims))
    except ZeroDivisionError:
        raise ManifestError(
            f"expression {text!r}", found=f"a division by zero for {dict(dims)}", expected="a value"
        ) from None
    return value


def holds(text: str, dims: Mapping[str, int]) -> bool:
    """Return whether a relation is true for these sizes; one that has no value for them is not.

    It has none where it names a dimension that is not in `dims`, or divides by zero.
    """
    try:
        return evaluate(text, dims) is True
    except ManifestError:
        return False


def names(text: str) -> frozenset[str]:
    """Return the dimension names that the expression reads.

    Raises:
        ManifestError: the text is not in the grammar.
        TooLargeError: the text is too long.
    """
    return _parse(text).names


def check(text: str, kind: type[int], dims: frozenset[str], where: str) -> None:
    """Refuse an expression that has another kind of value, or reads other dimensions than `dims`.

    Raises:
        ManifestError: it does, or it is not in the grammar.
        TooLargeError: the text is too long.
    """
    try:
        parsed = _parse(text)
    except (ManifestError, TooLargeError) as error:
        raise error.at(where) from None
    if parsed.kind is not kind:
        expected = "true or false" if kind is bool else "a number"
        raise ManifestError(where, found=f"the expression {show(text)}", expected=expected)
    if parsed.names - dims:
        found = f"{show(text)}, which reads {sorted(parsed.names - dims)}"
        raise ManifestError(where, found=found, expected=f"dims {sorted(dims)}")


@dataclass(frozen=True, slots=True)
class _Parsed:
    code: Any
    kind: type[int]
    names: frozenset[str]


@functools.lru_cache(maxsize=4096)
def _parse(text: str) -> _Parsed:
    if len(text) > MAX_LENGTH:
        found = f"{len(text)} characters"
        raise TooLargeError("expression", found=found, expected=f"at most {MAX_LENGTH}")
    try:
        if not _TOKENS.fullmatch(text):
            raise SyntaxError
        tree = ast.parse(text.strip(), mode="eval")
        found_names: set[str] = set()
        kind = _kind(tree.body, found_names, 0)
        code = compile(tree, "<expression>", "eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        expected = "integers, names, + - * // %, min, max, comparisons, and, or, not"
        raise ManifestError("expression", found=show(text), expected=expected) from None
    return _Parsed(code, kind, frozenset(found_names))


def _kind(node: ast.expr, found: set[str], depth: int) -> type[int]:
    """Return what the expression comes to; the names it reads are added to `found`."""
    if depth > MAX_DEPTH:
        raise SyntaxError
    takes: type[int]
    gives: type[int]
    operands: list[ast.expr]
    match node:
        case ast.Constant(value=bool()):
            return bool
        case ast.Constant(value=int()):
            return int
        case ast.Name(id=name) if name not in _FUNCTIONS:
            found.add(name)
            return int
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            takes, gives, operands = int, int, [operand]
        case ast.BinOp(left=left, op=operator, right=right) if isinstance(operator, _ARITHMETIC):
            takes, gives, operands = int, int, [left, right]
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if (
            name in _FUNCTIONS and len(args) > 1
        ):
            takes, gives, operands = int, int, args
        case ast.Compare(left=left, ops=operators, comparators=rest) if all(
            isinstance(operator, _COMPARISONS) for operator in operators
        ):
            takes, gives, operands = int, bool, [left, *rest]
        case ast.BoolOp(values=values):
            takes, gives, operands = bool, bool, values
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            takes, gives, operands = bool, bool, [operand]
        case _:
            raise SyntaxError
    if any(_kind(operand, found, depth + 1) is not takes for operand in operands):
        raise SyntaxError
    return gives
