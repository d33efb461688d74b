"""What a model holds, or reads from around it, that is not the same at each call."""

import ast
import inspect
import textwrap
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch

from ...formats import code_values
from ...formats.signature import describe_value
from .. import source_line
from ..call_mode import CallMode
from ..capture import quiet
from ..source_line import Line
from ..spec import Call
from ..structure import form
from .hazard import Hazard

_TORCHS_OWN: Final = frozenset(vars(torch.nn.Module()))
_CONTAINERS: Final = (list, dict, set, bytearray)
_GROW: Final = ("append", "appendleft", "extend", "insert", "add", "update", "setdefault")
_SHRINK: Final = ("pop", "popleft", "popitem", "remove", "discard", "clear")
_ABSENT: Final = "nothing"


@dataclass(frozen=True, kw_only=True)
class _Held:
    """What a name stands for at one time: a text that differs where the value does."""

    text: str
    mark: object
    where: tuple[object, str]
    shared: bool = False  # a container that other code may write to


def find(
    module: torch.nn.Module, call: Call, mode: CallMode, frozen: Collection[str]
) -> Iterator[Hazard]:
    """Call a model twice; yield what has changed, and the globals that it reads and other code may change.

    Args:
        module: to call, or one of its methods.
        call: the arguments.
        mode: of the calls.
        frozen: the names of the constants of the artifact; they are told already.
    """
    owner = getattr(module.forward, "__self__", module)  # of a method's view: what it works on
    states = [_state(owner, module.forward)]
    try:
        with quiet(), mode.on(module):
            for _ in range(2):
                module(*call[0], **call[1])
                states.append(_state(owner, module.forward))
    except Exception:
        return  # a model that does not run is what its capture stops with
    for name in dict.fromkeys(name for state in states for name in state):
        held = [state.get(name) for state in states]
        marks = [one and one.mark for one in held]
        last = next(one for one in reversed(held) if one is not None)
        if marks[1] != marks[0] or marks[2] != marks[1]:
            texts = [one.text if one else _ABSENT for one in held]
            yield _changing(name, texts, _line(*last.where), again=marks[2] != marks[1])
        elif last.shared and name not in frozen:
            yield _mutable(name, last.text, _line(*last.where))


def _state(module: torch.nn.Module, called: object) -> dict[str, _Held]:
    """Return what the parts of a model hold by attribute, and what their code reads from outside.

    Args:
        module: the model.
        called: the method of it that is called, its `forward` or another.
    """
    found: dict[str, _Held] = {}
    for path, part in module.named_modules():
        prefix = f"{path}." if path else ""
        for name, value in vars(part).items():
            if name not in _TORCHS_OWN:
                found[f"{prefix}{name}"] = _held(value, (part, name), identity=True)
        for name, buffer in part._buffers.items():
            found[f"{prefix}{name}"] = _held(buffer, (part, name), identity=False)
        if not source_line.is_users(inspect.getfile(type(part))):
            continue
        code = part.forward if path else called
        for name, value in code_values.outside(code, path, assigned=True):
            if isinstance(value, _CONTAINERS) or describe_value(value) is not None:
                place = (part, name.rpartition(".")[2])
                shared = isinstance(value, _CONTAINERS)
                found.setdefault(name, _held(value, place, identity=False, shared=shared))
    return found


def _held(value: Any, where: tuple[object, str], *, identity: bool, shared: bool = False) -> _Held:
    if isinstance(value, torch.Tensor):
        text = form(value)
        return _Held(text=text, mark=(text, id(value) if identity else 0), where=where)
    plain = describe_value(value)
    if plain is not None:
        return _Held(text=plain, mark=plain, where=where, shared=shared)
    if isinstance(value, (*_CONTAINERS, tuple)) or hasattr(value, "maxlen"):
        count = f"{len(value)} item{'' if len(value) == 1 else 's'}"
        text = f"a {type(value).__name__} of {count}"
        return _Held(text=text, mark=(text, _items(value)), where=where, shared=shared)
    return _Held(text=f"a {type(value).__name__}", mark=type(value), where=where)


def _items(value: Any) -> list[str]:
    """Return the plain items of a container as text; of the others the type."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    return [f"{key!s:.40}: {describe_value(one) or type(one).__name__}" for key, one in pairs]


def _changing(name: str, texts: list[str], line: Line | None, *, again: bool) -> Hazard:
    said = f"it is {texts[0]} before the first call, {texts[1]} behind it and {texts[2]} behind the second"
    if len(set(texts)) == 1:
        said = f"it is another {texts[0]} behind each call"
    if again:
        return Hazard(
            place=name,
            kind="state that changes",
            words=f"{said}: torch.compile has a guard on it where the code reads it, and compiles again; "
            "the artifact has what it was at the build, and never changes it",
            ways_out=(
                "hold it in a buffer of a fixed size, written in place: a build carries it over",
                "take it as an argument of forward, and return the new one",
                "keep it outside the model, where only its caller needs it",
            ),
            line=line,
        )
    return Hazard(
        place=name,
        kind="state set by the first call",
        words=f"{said}: torch.compile compiles again for the second call where the code reads it; the "
        "artifact is the program of the first",
        ways_out=(
            "set it in __init__",
            "call the model once in the function that model.source names, before it returns it",
        ),
        line=line,
    )


def _mutable(name: str, text: str, line: Line | None) -> Hazard:
    return Hazard(
        place=name,
        kind="global that may change",
        words=f"the code reads {text} that other code may change: torch.compile has a guard on what it "
        "reads of it, and compiles again; the artifact has what was in it at the build, and does not notice",
        ways_out=(
            "give the value to the model: an attribute that __init__ sets is among the constants, and "
            "is compared",
            "make it immutable: a tuple, or types.MappingProxyType over a dict",
        ),
        line=line,
    )


def _line(part: object, name: str) -> Line | None:
    """Return the first line of a module's class that changes a name, else that reads it."""
    read = None
    for kind in type(part).__mro__:
        for method, function in vars(kind).items():
            if method == "__init__" or not inspect.isfunction(function):
                continue
            file = inspect.getfile(function)
            if not source_line.is_users(file):
                continue
            try:
                lines, first = inspect.getsourcelines(function)
                tree = ast.parse(textwrap.dedent("".join(lines)))
            except (OSError, SyntaxError):
                continue
            for node in ast.walk(tree):
                if not _is_of(node, name) and not _changes(node, name):
                    continue
                number = node.lineno  # type: ignore[attr-defined]
                found = Line(
                    file=file,
                    number=first + number - 1,
                    function=method,
                    code=lines[number - 1].strip(),
                )
                if _changes(node, name):
                    return found
                read = read or found
    return read


def _is_of(node: ast.AST, name: str) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr == name) or (
        isinstance(node, ast.Name) and node.id == name
    )


def _changes(node: ast.AST, name: str) -> bool:
    """Return whether code assigns to a name or an attribute, or to an item of it, or grows it."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in (*_GROW, *_SHRINK) and _is_of(node.func.value, name)
    writes = isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
    if isinstance(node, ast.Subscript):
        return writes and _is_of(node.value, name)
    return writes and _is_of(node, name)
