"""Containers of a call's arguments and results: recognised, taken apart and built again."""

import dataclasses
import functools
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from .errors import TcbuildError
from .signature import Branch, Node, Signature, ValueLeaf, read_key, step


class StructureError(Exception):
    """A call does not have the structure of a signature; `str` says where and how it differs."""


class ContainerTypeError(TcbuildError):
    """A container's own class, which the model takes or returns, cannot be imported here."""

    exit_code = 15
    problem = "a class that the model takes or returns is not here"
    default_tip = "install the package that the class comes from"


_PLAIN: Final[dict[str, type[Any]]] = {"list": list, "tuple": tuple, "dict": dict}


def container_type(branch: Branch) -> type[Any]:
    """Return the class of a container.

    Raises:
        ContainerTypeError: it cannot be imported, or is not built like the container.
    """
    if branch.type in _PLAIN:
        return _PLAIN[branch.type]
    module, _, path = branch.type.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ContainerTypeError(branch.type, found=error, expected="an importable class") from None
    if not isinstance(found, type):
        raise ContainerTypeError(branch.type, found=f"a {type(found).__name__}", expected="a class")
    _check_class(found, branch.form, branch.keys)
    return found


def flatten(value: object, node: Node, path: str) -> Iterator[tuple[str, object]]:
    """Yield the leaves of `value` with their paths, where it has the structure of `node`.

    Raises:
        StructureError: another container, length or key; the message has the path and both sides.
    """
    if not isinstance(node, Branch):
        yield path, value
        return
    expected = container_type(node)
    if type(value) is not expected:
        message = f"{path}: expected a {expected.__name__}, found a {type(value).__name__}"
        raise StructureError(message)
    for i, item in enumerate(_items(value, node, path)):
        yield from flatten(item, node.children[i], path + step(node, i))


def assemble(node: Node, leaf: Callable[[Any], object]) -> Any:
    """Build a value of the structure of `node`, with each leaf made by `leaf`."""
    if not isinstance(node, Branch):
        return leaf(node)
    items = [assemble(child, leaf) for child in node.children]
    kind = container_type(node)
    match node.form:
        case "dict":
            return kind(zip(map(read_key, node.keys), items, strict=True))
        case "dataclass":
            return kind(**dict(zip(node.keys, items, strict=True)))
        case "namedtuple":
            return kind(*items)
    return kind(items)


def arguments(
    signature: Signature, tensors: Sequence[Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return `args` and `kwargs` of a call with these tensors and the signature's own values.

    Parameters go by name wherever Python allows it.
    """

    def leaf(node: Any) -> object:
        return node.value if isinstance(node, ValueLeaf) else tensors[node.index]

    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    by_position = any(
        p.form == "var_positional" and isinstance(p.node, Branch) and p.node.children
        for p in signature.parameters
    )
    for parameter in signature.parameters:
        if parameter.node is None:
            continue
        value = assemble(parameter.node, leaf)
        match parameter.form:
            case "var_positional":
                args.extend(value)
            case "var_keyword":
                kwargs.update(value)
            case "positional_only":
                args.append(value)
            case "positional_or_keyword" if by_position:
                args.append(value)
            case _:
                kwargs[parameter.name] = value
    return tuple(args), kwargs


def _items(value: Any, node: Branch, path: str) -> list[object]:
    if node.form == "dict":
        return _keyed(value, [read_key(key) for key in node.keys], path)
    if node.form == "dataclass":
        fields = {
            field.name: getattr(value, field.name)
            for field in dataclasses.fields(value)
            if getattr(value, field.name) is not None or field.name in node.keys
        }
        return _keyed(fields, list(node.keys), path)
    if len(value) != len(node.children):
        message = f"{path}: expected {len(node.children)} items, found {len(value)}"
        raise StructureError(message)
    return list(value)


def _keyed(value: Mapping[Any, object], keys: list[Any], path: str) -> list[object]:
    if value.keys() != set(keys):
        message = (
            f"{path}: expected keys {sorted(map(repr, keys))}, found {sorted(map(repr, value))}"
        )
        raise StructureError(message)
    return [value[key] for key in keys]


@functools.lru_cache(maxsize=1024)
def _check_class(kind: type[Any], form: str, keys: tuple[str, ...]) -> None:
    """Refuse a class that has changed since a container of it was recorded."""
    match form:
        case "dataclass":
            fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
            fits = {field.name for field in fields}.issuperset(keys)
        case "namedtuple":
            fits = issubclass(kind, tuple) and getattr(kind, "_fields", None) == keys
        case _:
            fits = issubclass(kind, Mapping if form == "dict" else _PLAIN[form])
    if not fits:
        where = f"{kind.__module__}:{kind.__qualname__}"
        found = f"a class with {', '.join(inspect.get_annotations(kind)) or 'no fields'}"
        expected = f"a {form} with {', '.join(keys)}" if keys else f"a {form}"
        raise ContainerTypeError(where, found=found, expected=expected)
