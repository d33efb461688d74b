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

# A class with a ClassVar of this name that is true: equal records of it are read once, and are one object.
SHARED: Final = "shared"

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
    return typing.cast(T, _Reader().read(kind, data, where, 0))


def _words(place: Any) -> str:
    """Return in words where something is: a text, or a pair of such a place and a field, index or key."""
    steps = []
    while isinstance(place, tuple):
        place, step = place
        if isinstance(step, tuple):
            steps.append(f"[{step[0][:80]!r}]")
        else:
            steps.append(f"[{step}]" if isinstance(step, int) else f".{step}")
    return "".join([place, *reversed(steps)])


class _Reader:
    """One reading; keeps the records that are shared."""

    def __init__(self) -> None:
        self._shared: dict[tuple[type[Any], str], Any] = {}

    def read(self, kind: Any, data: object, where: Any, depth: int) -> Any:
        """Return `data` as a value of the type `kind`."""
        if kind is Any or type(data) is kind:
            return data
        match _shape(kind):
            case "union", kinds:
                return self._union(kinds, data, where, depth)
            case "list", inner:
                items = _require(list, data, where, "a list")
                return tuple(
                    [self.read(inner, item, (where, i), depth) for i, item in enumerate(items)]
                )
            case "object", inner:
                pairs = _require(dict, data, where, "an object").items()
                return {k: self.read(inner, item, (where, (k,)), depth) for k, item in pairs}
            case "record", _:
                return self._record(kind, data, where, depth + 1)
        return _require(kind, data, where, _name(kind))

    def _union(self, kinds: tuple[Any, ...], data: object, where: Any, depth: int) -> Any:
        tag = data.get(TAG) if isinstance(data, dict) else None
        for kind in kinds:
            if _shape(kind)[0] == "record":
                if isinstance(data, dict) and tag == getattr(kind, TAG, None):
                    return self.read(kind, data, where, depth)
            elif type(data) is (typing.get_origin(kind) or kind):
                return self.read(kind, data, where, depth)
        found = show(data) if tag is None else f"an object of kind {show(tag)}"
        raise ManifestError(_words(where), found=found, expected=" or ".join(map(_name, kinds)))

    def _record(self, kind: type[Any], data: object, where: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            expected = f"at most {MAX_DEPTH}"
            raise TooLargeError(
                _words(where), found=f"{depth} records inside each other", expected=expected
            )
        given = _require(dict, data, where, f"an object ({kind.__name__})")
        if not getattr(kind, SHARED, False):
            return self._fields(kind, given, where, depth)
        key = kind, repr(given)
        if key not in self._shared:
            self._shared[key] = self._fields(kind, given, where, depth)
        return self._shared[key]

    def _fields(self, kind: type[Any], given: dict[str, Any], where: Any, depth: int) -> Any:
        values = {}
        for name, hint, required in _fields(typing.cast("typing.Hashable", kind)):
            if name in given:
                values[name] = self.read(hint, given[name], (where, name), depth)
            elif required:
                found = f"no field {name!r}"
                raise ManifestError(_words(where), found=found, expected=f"{kind.__name__}.{name}")
        return kind(**values)


def _require(kind: type[T], data: object, where: Any, expected: str) -> T:
    # bool is an int to Python and never one to us.
    if type(data) is not kind:
        raise ManifestError(_words(where), found=show(data), expected=expected)
    return data


def _name(kind: Any) -> str:
    tag = getattr(kind, TAG, None)
    return f"an object of kind {tag!r}" if tag else getattr(kind, "__name__", str(kind))


def _default(field: "dataclasses.Field[Any]") -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


@functools.cache
def _shape(kind: Any) -> tuple[str, Any]:
    """Return what JSON a type other than a plain one has, and of what."""
    origin = typing.get_origin(kind)
    if origin is typing.Union or origin is types.UnionType:
        return "union", typing.get_args(kind)
    if origin is tuple:
        return "list", typing.get_args(kind)[0]
    if origin is dict:
        return "object", typing.get_args(kind)[1]
    return ("record" if dataclasses.is_dataclass(kind) else "plain"), None


@functools.cache
def _fields(kind: type[Any]) -> tuple[tuple[str, Any, bool], ...]:
    """Return name and type of each field, and whether it is required."""
    hints = typing.get_type_hints(kind)
    return tuple(
        (field.name, hints[field.name], _default(field) is dataclasses.MISSING)
        for field in dataclasses.fields(kind)
    )
