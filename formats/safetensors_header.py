"""The head of a safetensors section: which tensor is where. The format is safetensors' own.

The library reads whole files; a section lies inside one and must be mapped, not copied, so its
header is read here, and every number in it bounded. Tests hold the bytes against the library.
"""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from . import strict_json
from .errors import TooLargeError, WeightsError
from .layout import MAX_RANK
from .strict_json import show

MAX_HEADER: Final = 100_000_000  # the limit of the safetensors library
METADATA: Final = "__metadata__"  # an entry of the header that is no tensor

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


def write_header(tensors: Mapping[str, tuple[str, tuple[int, ...]]], align: int) -> bytes:
    """Return the header for tensors stored one behind the other in this order.

    Args:
        tensors: dtype and shape by name.
        align: a multiple of 8, in bytes. The header is padded with spaces, as the format allows, so
            that the data starts at a multiple of it.

    Raises:
        WeightsError: a dtype has no name in safetensors, or a name is not one for a tensor.
        TooLargeError: the header is longer than MAX_HEADER.
    """
    head: dict[str, Any] = {}
    offset = 0
    for name, (dtype, shape) in tensors.items():
        if dtype not in NAMES:
            raise WeightsError(name, found=dtype, expected=f"one of {', '.join(NAMES)}")
        if name == METADATA:
            raise WeightsError(name, found="a tensor of that name", expected="another name")
        end = offset + math.prod(shape) * ITEM_SIZES[dtype]
        head[name] = {"dtype": NAMES[dtype], "shape": shape, "data_offsets": [offset, end]}
        offset = end
    try:
        body = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise WeightsError("weights", found=str(error), expected="names in Unicode") from None
    length = len(body) + -(8 + len(body)) % align
    if length > MAX_HEADER:
        found, expected = f"a header of {length} bytes", f"at most {MAX_HEADER}"
        raise TooLargeError("weights", found=found, expected=expected)
    return struct.pack("<Q", length) + body.ljust(length)


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
        found, expected = f"a header of {length} bytes", f"at most {MAX_HEADER}"
        raise TooLargeError(where, found=found, expected=expected)
    if 8 + length > len(section):
        found = f"a header of {length} bytes in a section of {len(section)}"
        raise WeightsError(where, found=found, expected="a header inside the section")
    try:
        head = strict_json.read(bytes(section[8 : 8 + length]))
    except ValueError as error:
        raise WeightsError(where, found=str(error), expected="a safetensors header") from None
    if not isinstance(head, dict):
        raise WeightsError(where, found=show(head), expected="a safetensors header")
    entries = {
        name: _entry(value, 8 + length, f"{where}: tensor {show(name)}")
        for name, value in head.items()
        if name != METADATA
    }
    end = 8 + length
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].end)):
        size = math.prod(entry.shape) * ITEM_SIZES[entry.dtype]
        if entry.start != end or entry.end - entry.start != size:
            found = f"bytes {entry.start}..{entry.end}"
            expected = f"{end}..{end + size} for {entry.dtype} {list(entry.shape)}"
            raise WeightsError(f"{where}: tensor {show(name)}", found=found, expected=expected)
        end = entry.end
    if end != len(section):
        found = f"tensors up to byte {end}"
        raise WeightsError(where, found=found, expected=f"up to the end at {len(section)}")
    return entries


def _entry(value: object, base: int, where: str) -> Entry:
    fields = value if isinstance(value, dict) else {}
    code: Any = fields.get("dtype")
    shape: Any = fields.get("shape")
    offsets: Any = fields.get("data_offsets")
    if not isinstance(code, str) or code not in DTYPES:
        expected = f"one of {', '.join(DTYPES)}"
        raise WeightsError(where, found=f"dtype {show(code)}", expected=expected)
    if not _are_sizes(shape) or len(shape) > MAX_RANK:
        expected = f"at most {MAX_RANK} sizes of at least 0"
        raise WeightsError(where, found=f"shape {show(shape)}", expected=expected)
    # An empty tensor's other sizes count too: strides are made of them.
    if math.prod(max(size, 1) for size in shape) > strict_json.MAX_INT:
        raise WeightsError(where, found=f"shape {show(shape)}", expected="a product below 2**63")
    if not _are_sizes(offsets) or len(offsets) != 2:
        found = f"data_offsets {show(offsets)}"
        raise WeightsError(where, found=found, expected="where the tensor begins and ends")
    dtype, _ = DTYPES[code]
    return Entry(dtype=dtype, shape=tuple(shape), start=base + offsets[0], end=base + offsets[1])


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(size) is int and size >= 0 for size in value)
