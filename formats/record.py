"""Records to JSON and back: frozen dataclasses, checked field by field, with the path in every error."""

import dataclasses
import functools
import types
import typing
from typing import Any, ClassVar, TypeVar

from .errors import ManifestError

T = TypeVar("T")

# A union of records is told apart by a field of this name, a ClassVar on each of its members.
TAG = "kind"


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
    """
    return typing.cast(T, _decode(kind, data, where))


def _decode(kind: Any, data: object, where: str) -> Any:
    if kind is Any:
        return data
    origin = typing.get_origin(kind)
    if origin is typing.Union or origin is types.UnionType:
        return _decode_union(typing.get_args(kind), data, where)
    if origin is tuple:
        _require(isinstance(data, list), where, data, "a list")
        inner = typing.get_args(kind)[0]
        return tuple(
            _decode(inner, item, f"{where}[{i}]")
            for i, item in enumerate(typing.cast("list[object]", data))
        )
    if origin is dict:
        _require(isinstance(data, dict), where, data, "an object")
        inner = typing.get_args(kind)[1]
        return {
            key: _decode(inner, item, f"{where}.{key}")
            for key, item in typing.cast("dict[str, object]", data).items()
        }
    if dataclasses.is_dataclass(kind):
        return _decode_record(typing.cast("type[Any]", kind), data, where)
    # bool is an int to Python and never one to us.
    _require(type(data) is kind, where, data, _name(kind))
    return data


def _decode_union(kinds: tuple[Any, ...], data: object, where: str) -> Any:
    for kind in kinds:
        if dataclasses.is_dataclass(kind):
            if isinstance(data, dict) and data.get(TAG, getattr(kind, TAG, None)) == getattr(
                kind, TAG, None
            ):
                return _decode(kind, data, where)
        elif type(data) is (typing.get_origin(kind) or kind):
            return _decode(kind, data, where)
    raise ManifestError(where, found=_show(data), expected=" or ".join(map(_name, kinds)))


def _decode_record(kind: type[Any], data: object, where: str) -> Any:
    _require(isinstance(data, dict), where, data, f"an object ({kind.__name__})")
    fields = typing.cast("dict[str, object]", data)
    hints = _hints(kind)
    values = {}
    for field in dataclasses.fields(kind):
        if field.name in fields:
            path = f"{where}.{field.name}"
            values[field.name] = _decode(hints[field.name], fields[field.name], path)
        elif _default(field) is dataclasses.MISSING:
            found = f"no field {field.name!r}"
            raise ManifestError(where, found=found, expected=f"{kind.__name__}.{field.name}")
    return kind(**values)


def _require(holds: bool, where: str, found: object, expected: str) -> None:
    if not holds:
        raise ManifestError(where, found=_show(found), expected=expected)


def _show(data: object) -> str:
    text = repr(data)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _name(kind: Any) -> str:
    tag = getattr(kind, TAG, None)
    return f"an object of kind {tag!r}" if tag else getattr(kind, "__name__", str(kind))


def _default(field: "dataclasses.Field[Any]") -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


@functools.cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {name: hint for name, hint in hints.items() if typing.get_origin(hint) is not ClassVar}
