"""The head of a safetensors section: which tensor is where. The format is safetensors' own.

The library reads whole files; a section lies inside one and must be mapped, not copied, so its header
is read here, and every number in it bounded. Tests hold the bytes against the library.
"""

import json
import math
import struct
from dataclasses import dataclass
from typing import Any, Final

from .errors import TooLargeError, WeightsError

MAX_HEADER: Final = 100_000_000  # the limit of the safetensors library

# safetensors' names of dtypes: torch's name, bytes of one element
DTYPES: Final = {
    "BOOL": ("bool", 1),
    "U8": ("uint8", 1),
    "I8": ("int8", 1),
    "F8_E4M3": ("float8_e4m3fn", 1),
    "F8_E5M2": ("float8_e5m2", 1),
    "I16": ("int16", 2),
    "U16": ("uint16", 2),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "I32": ("int32", 4),
    "U32": ("uint32", 4),
    "F32": ("float32", 4),
    "C64": ("complex64", 8),
    "F64": ("float64", 8),
    "I64": ("int64", 8),
    "U64": ("uint64", 8),
}
NAMES: Final = {name: code for code, (name, _) in DTYPES.items()}
ITEM_SIZES: Final = dict(DTYPES.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One stored tensor: torch's name of its dtype, its shape, and its bytes in the section."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def write_header(tensors: dict[str, tuple[str, tuple[int, ...]]], align: int) -> bytes:
    """Return the header for tensors stored one behind the other in this order.

    The header is padded with spaces, as the format allows, so that the data starts at a multiple of
    `align`.

    Raises:
        WeightsError: a dtype has no name in safetensors.
    """
    head: dict[str, Any] = {}
    offset = 0
    for name, (dtype, shape) in tensors.items():
        if dtype not in NAMES:
            raise WeightsError(name, found=dtype, expected=f"one of {', '.join(NAMES)}")
        end = offset + math.prod(shape) * ITEM_SIZES[dtype]
        head[name] = {"dtype": NAMES[dtype], "shape": shape, "data_offsets": [offset, end]}
        offset = end
    body = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    padding = -(8 + len(body)) % align
    return struct.pack("<Q", len(body) + padding) + body + b" " * padding


def read_header(section: memoryview, where: str) -> dict[str, Entry]:
    """Return the tensors of a section by name; offsets count from the section's start.

    Raises:
        WeightsError: the header is malformed, or its tensors do not fill the section exactly.
        TooLargeError: the header states a length over the limit.
    """
    if len(section) < 8:
        raise WeightsError(where, found=f"{len(section)} bytes", expected="at least 8")
    (length,) = struct.unpack_from("<Q", section)
    if length > MAX_HEADER:
        raise TooLargeError(where, found=f"header of {length} bytes", expected=MAX_HEADER)
    if 8 + length > len(section):
        found = f"a header of {length} bytes in a section of {len(section)}"
        raise WeightsError(where, found=found, expected="a header inside the section")
    try:
        head = json.loads(bytes(section[8 : 8 + length]).decode("utf-8"))
        head.pop("__metadata__", None)
        entries = {name: _entry(value, 8 + length) for name, value in head.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        found = f"{type(error).__name__}: {error}"
        raise WeightsError(where, found=found, expected="a safetensors header") from None
    end = 8 + length
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].end)):
        size = math.prod(entry.shape) * ITEM_SIZES[entry.dtype]
        if entry.start != end or entry.end - entry.start != size:
            found = f"bytes {entry.start}..{entry.end}"
            expected = f"{end}..{end + size} for {entry.dtype} {list(entry.shape)}"
            raise WeightsError(f"{where}: tensor {name!r}", found=found, expected=expected)
        end = entry.end
    if end != len(section):
        found = f"tensors up to byte {end}"
        raise WeightsError(where, found=found, expected=f"up to the end at {len(section)}")
    return entries


def _entry(value: dict[str, Any], base: int) -> Entry:
    shape = tuple(value["shape"])
    start, end = value["data_offsets"]
    if any(type(size) is not int or size < 0 for size in (*shape, start, end)):
        raise ValueError("negative or fractional size")
    dtype, _ = DTYPES[value["dtype"]]
    return Entry(dtype=dtype, shape=shape, start=base + start, end=base + end)
