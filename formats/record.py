"""Records to JSON and back: frozen dataclasses, checked by field, with the path in each error."""

import dataclasses
import functools
import types
import typing
from typing import Any, Final, TypeVar

from .errors import ManifestError, TooLargeError
from .strict_json import show

T = TypeVar("T")

# A union of records is told apart by a field of this name, a ClassVar on each of its members.
TAG: Final = "kind"

MAX_DEPTH: Final = 64  # records inside records


def encode(value: object) -> Any:
    """Turn a record into plain JSON values; fields that have their default value are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        out = {TAG: getattr(value, TAG)} if hasattr(type(value), TAG) else {}
        for field in dataclasses.fields(value):
            item = getattr(value, field.name)
            if item != _default(field):
                out[field.name] = encode(item)
        return out
    if isinstance(value, dict):
        return {key: encode(item) for key, item in sorted(value.items())}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    return value


def decode(kind: type[T], data: object, where: str) -> T:
    """Build a record of type `kind` from plain JSON values.

    Fields without a default are required; fields that `kind` does not have are ignored.

    Raises:
        ManifestError: a field is missing or has another type; the message has its path.
        TooLargeError: records are nested deeper than MAX_DEPTH.
    """
    return typing.cast(T, _decode(kind, data, where, 0))


def _decode(kind: Any, data: object, where: str, depth: int) -> Any:
    if kind is Any or type(data) is kind:
        return data
    origin = typing.get_origin(kind)
    if origin is typing.Union or origin is types.UnionType:
        return _decode_union(typing.get_args(kind), data, where, depth)
    if origin is tuple:
        inner = typing.get_args(kind)[0]
        items = _require(list, data, where, "a list")
        return tuple(_decode(inner, item, f"{where}[{i}]", depth) for i, item in enumerate(items))
    if origin is dict:
        inner = typing.get_args(kind)[1]
        pairs = _require(dict, data, where, "an object").items()
        return {k: _decode(inner, item, f"{where}[{k[:80]!r}]", depth) for k, item in pairs}
    if dataclasses.is_dataclass(kind):
        return _decode_record(typing.cast("type[Any]", kind), data, where, depth + 1)
    return _require(kind, data, where, _name(kind))


def _decode_union(kinds: tuple[Any, ...], data: object, where: str, depth: int) -> Any:
    tag = data.get(TAG) if isinstance(data, dict) else None
    for kind in kinds:
        if dataclasses.is_dataclass(kind):
            if isinstance(data, dict) and tag == getattr(kind, TAG, None):
                return _decode(kind, data, where, depth)
        elif type(data) is (typing.get_origin(kind) or kind):
            return _decode(kind, data, where, depth)
    found = show(data) if tag is None else f"an object of kind {show(tag)}"
    raise ManifestError(where, found=found, expected=" or ".join(map(_name, kinds)))


def _decode_record(kind: type[Any], data: object, where: str, depth: int) -> Any:
    if depth > MAX_DEPTH:
        expected = f"at most {MAX_DEPTH}"
        raise TooLargeError(where, found=f"{depth} records inside each other", expected=expected)
    given = _require(dict, data, where, f"an object ({kind.__name__})")
    values = {}
    for name, hint, required in _fields(typing.cast("typing.Hashable", kind)):
        if name in given:
            values[name] = _decode(hint, given[name], f"{where}.{name}", depth)
        elif required:
            found = f"no field {name!r}"
            raise ManifestError(where, found=found, expected=f"{kind.__name__}.{name}")
    return kind(**values)


def _require(kind: type[T], data: object, where: str, expected: str) -> T:
    # bool is an int to Python and never one to us.
    if type(data) is not kind:
        raise ManifestError(where, found=show(data), expected=expected)
    return data


def _name(kind: Any) -> str:
    tag = getattr(kind, TAG, None)
    return f"an object of kind {tag!r}" if tag else getattr(kind, "__name__", str(kind))


def _default(field: "dataclasses.Field[Any]") -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


@functools.cache
def _fields(kind: type[Any]) -> tuple[tuple[str, Any, bool], ...]:
    """Return name and type of each field, and whether it is required."""
    hints = typing.get_type_hints(kind)
    return tuple(
        (field.name, hints[field.name], _default(field) is dataclasses.MISSING)
        for field in dataclasses.fields(kind)
    )
