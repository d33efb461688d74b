"""Plain Python values that a model's code reads from around it: globals, and variables of closures.

Like the attributes of a module they are constants of a traced graph. The builder records them and the
runtime compares them, with this one reading of the code.
"""

import dis
import functools
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from .signature import describe_value

MAX_VALUES: Final = 1_000
MAX_WRAPPERS: Final = 100  # around one function; an object may say that it wraps itself
MAX_TEXT: Final = 1_000  # characters of one value; a longer text is data, not a setting

# A module that was imported from its file, under another name, holds here what it is called.
CALLED: Final = "__tcbuild_called__"

_READS: Final = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_READS_OF: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD"})


def find(forwards: Mapping[str, object]) -> dict[str, str]:
    """Return the plain values that functions take from outside, as text, sorted by name.

    A global is `globals package.module.NAME`, also where it is reached through an imported module
    (`config.NAME`); a variable of a closure is `closure PATH.NAME`. What the code itself assigns, and
    names with two underscores at both ends, are left out. So is what other functions read that the
    code calls.

    Args:
        forwards: the function or bound method of each part of the model, by the part's path.
    """
    found: dict[str, str] = {}
    for path, forward in forwards.items():
        for name, value in outside(forward, path):
            text = describe_value(value)
            if text is not None and len(text) <= MAX_TEXT and len(found) < MAX_VALUES:
                found.setdefault(name, text)
    return dict(sorted(found.items()))


def outside(
    forward: object, path: str = "", *, assigned: bool = False
) -> Iterator[tuple[str, object]]:
    """Yield what a function takes from outside, of whatever type, by the names of `find`.

    Args:
        forward: the function or bound method, with what it wraps.
        path: of the part of the model that it belongs to.
        assigned: whether to yield what the code itself assigns, too.
    """
    for function in _functions(forward):
        yield from _globals(function, assigned=assigned)
        yield from _closure(function, path, assigned=assigned)


def functions(module: Any, entries: Iterable[str] = ()) -> dict[str, object]:
    """Return the `forward` of each part of a model by the part's path, and the methods that are entries."""
    found: dict[str, object] = {path: part.forward for path, part in module.named_modules()}
    return found | {name: getattr(module, name, None) for name in entries if name}


def _functions(forward: Any) -> Iterator[FunctionType]:
    """Yield a function and the ones that it wraps, the innermost first."""
    chain: list[FunctionType] = []
    for _ in range(MAX_WRAPPERS):
        forward = getattr(forward, "__func__", forward)
        if isinstance(forward, FunctionType):
            chain.append(forward)
        forward = getattr(forward, "__wrapped__", None)
    yield from reversed(chain)


def _globals(function: FunctionType, *, assigned: bool) -> Iterator[tuple[str, object]]:
    reads, written = _names(function.__code__)
    for first, *rest in reads:
        if (assigned or first not in written) and first in function.__globals__:
            owner, value = function.__globals__, function.__globals__[first]
            name = first
            for attribute in rest:
                if not isinstance(value, ModuleType) or attribute not in vars(value):
                    break
                owner, value, name = vars(value), vars(value)[attribute], attribute
            if not (name.startswith("__") and name.endswith("__")):
                yield f"globals {owner.get(CALLED, owner.get('__name__', ''))}.{name}", value


def _closure(function: FunctionType, path: str, *, assigned: bool) -> Iterator[tuple[str, object]]:
    _, written = _names(function.__code__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # it has none yet
            continue
        if assigned or name not in written:
            yield f"closure {path}.{name}" if path else f"closure {name}", value


@functools.lru_cache(maxsize=4096)
def _names(code: CodeType) -> tuple[tuple[tuple[str, ...], ...], frozenset[str]]:
    """Return which names outside of it a code object reads, and which it assigns.

    A read is the name of a global, followed by the attributes that are taken of it.
    """
    reads: dict[tuple[str, ...], None] = {}
    written: set[str] = set()
    chain: tuple[str, ...] = ()
    for instruction in dis.get_instructions(code):
        if instruction.opname in _READS:
            chain = (instruction.argval,)
        elif instruction.opname in _READS_OF and chain:
            chain = (*chain, instruction.argval)
        else:
            chain = () if instruction.opname not in ("CACHE", "PUSH_NULL") else chain
        if chain:
            reads[chain] = None
        if instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF"):
            written.add(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner, stored = _names(constant)
            reads.update(dict.fromkeys(inner))
            written |= stored
    return tuple(reads), frozenset(written)
