"""JSON read strictly: what two readers could take for different things is refused."""

import json
import math
import reprlib
from typing import Any, Final

MAX_INT: Final = (1 << 63) - 1  # numbers are signed 64-bit integers, or finite floats


def read(data: bytes) -> Any:
    """Read one JSON text.

    Raises:
        ValueError: the bytes are not JSON in UTF-8, nest too deep, state a key twice, or hold a
            number or a string that JSON's readers disagree on (NaN, 1e999, half of a
            surrogate pair).
    """
    text = data.decode("utf-8")
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_number,
        )
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        message = "values nested too deep"
        raise ValueError(message) from None
    return value


def write(value: object) -> bytes:
    """Write JSON: the same bytes for the same value.

    Raises:
        ValueError: a float is not finite, or a string holds half of a surrogate pair.
    """
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def show(value: object) -> str:
    """Return a value as a message shows it: in little room, and without walking all of it."""
    text = _short.repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


_short = reprlib.Repr()
_short.maxlevel = 2
_short.maxstring = 60


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for i, key in enumerate(keys) if key in keys[:i])
        message = f"the key {show(twice)} twice in one object"
        raise ValueError(message)
    return made


def _integer(text: str) -> int:
    if len(text) > 20 or not -MAX_INT - 1 <= int(text) <= MAX_INT:
        message = f"the number {show(text)}, which does not fit into 64 bits"
        raise ValueError(message)
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        message = f"the number {show(text)}, which is not finite"
        raise ValueError(message)
    return value
