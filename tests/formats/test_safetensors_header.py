"""Our reading and writing of safetensors, held against the library."""

import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy
import pytest
import safetensors
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from tcbuild.formats.errors import TooLargeError, WeightsError
from tcbuild.formats.safetensors_header import (
    DTYPES,
    ITEM_SIZES,
    MAX_HEADER,
    METADATA,
    Entry,
    read_header,
    write_header,
)

Tensors = dict[str, tuple[str, tuple[int, ...]]]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
tables: st.SearchStrategy[Tensors] = st.dictionaries(
    texts.filter(lambda name: name != METADATA),
    st.tuples(
        st.sampled_from(sorted(ITEM_SIZES)),
        st.lists(st.integers(0, 4), max_size=3).map(tuple),
    ),
    max_size=5,
)


def deserialize(section: bytes) -> dict[str, dict[str, Any]]:
    """Return what the library makes of a section."""
    return dict(safetensors.deserialize(section))  # type: ignore[no-untyped-call]


def section_of(tensors: Tensors, align: int = 64) -> bytes:
    """Return a section in which the bytes of each tensor count up."""
    sizes = [math.prod(shape) * ITEM_SIZES[dtype] for dtype, shape in tensors.values()]
    data = [bytes(i % 256 for i in range(size)) for size in sizes]
    return write_header(tensors, align) + b"".join(data)


@settings(deadline=None)
@given(tables, st.sampled_from([8, 64, 4096]))
def test_round_trip(tensors: Tensors, align: int) -> None:
    section = section_of(tensors, align)
    (length,) = struct.unpack_from("<Q", section)
    assert (8 + length) % align == 0
    entries = read_header(memoryview(section), "here")
    assert {name: (entry.dtype, entry.shape) for name, entry in entries.items()} == tensors
    for entry in entries.values():
        assert section[entry.start : entry.end] == bytes(
            i % 256 for i in range(entry.end - entry.start)
        )


@settings(deadline=None)
@given(tables)
def test_the_library_reads_ours(tensors: Tensors) -> None:
    section = section_of(tensors)
    found = deserialize(section)
    entries = read_header(memoryview(section), "here")
    assert found.keys() == tensors.keys()
    for name, tensor in found.items():
        dtype, shape = tensors[name]
        assert DTYPES[tensor["dtype"]][0] == dtype
        assert tuple(tensor["shape"]) == shape
        assert bytes(tensor["data"]) == section[entries[name].start : entries[name].end]


def test_safe_open_reads_ours(tmp_path: Path) -> None:
    values = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
    head = write_header({"a": ("float32", (2, 3)), "b": ("bool", (1,))}, 64)
    path = tmp_path / "ours.safetensors"
    path.write_bytes(head + values.tobytes() + b"\1")
    with safetensors.safe_open(path, framework="np") as file:
        assert sorted(file.keys()) == ["a", "b"]
        assert (file.get_tensor("a") == values).all()
        assert file.get_tensor("b").tolist() == [True]


def test_we_read_the_librarys(tmp_path: Path) -> None:
    kinds = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
    kinds += ["float16", "float32", "float64", "complex64"]
    arrays = {kind: numpy.arange(6).reshape(2, 3).astype(kind) for kind in kinds}
    arrays["nothing"] = numpy.zeros((0, 7), "float32")
    arrays["scalar"] = numpy.array(3.5, "float64")
    path = tmp_path / "theirs.safetensors"
    save_file(arrays, path, metadata={"made": "elsewhere"})
    section = path.read_bytes()
    entries = read_header(memoryview(section), "here")
    assert entries.keys() == arrays.keys()
    for name, array in arrays.items():
        entry = entries[name]
        assert (entry.dtype, entry.shape) == (str(array.dtype), array.shape)
        assert section[entry.start : entry.end] == array.tobytes()


def test_the_same_bytes_as_the_librarys(tmp_path: Path) -> None:
    """With the same order and alignment, the two write the same file."""
    array = numpy.arange(4, dtype=numpy.int64)
    save_file({"a": array}, tmp_path / "theirs.safetensors")
    ours = write_header({"a": ("int64", (4,))}, 8) + array.tobytes()
    assert ours == (tmp_path / "theirs.safetensors").read_bytes()


@pytest.mark.parametrize("code", DTYPES)
def test_dtype_is_known_to_the_library(code: str) -> None:
    name, size = DTYPES[code]
    section = section_of({"a": (name, (3,))})
    tensor = deserialize(section)["a"]
    assert tensor["dtype"] == code
    assert len(tensor["data"]) == 3 * size


def test_not_written() -> None:
    with pytest.raises(WeightsError, match="complex128"):
        write_header({"a": ("complex128", ())}, 64)
    with pytest.raises(WeightsError, match=METADATA):
        write_header({METADATA: ("int8", ())}, 64)
    with pytest.raises(WeightsError, match="surrogates not allowed"):
        write_header({"\ud800": ("int8", ())}, 64)
    with pytest.raises(TooLargeError, match=f"at most {MAX_HEADER}"):
        write_header({"a": ("int8", ())}, 1 << 28)


@settings(deadline=None, max_examples=150)
@given(st.binary(max_size=200), st.sampled_from([0, 1, 8]))
def test_any_bytes_for_a_header(body: bytes, behind: int) -> None:
    section = struct.pack("<Q", len(body)) + body + bytes(behind)
    try:
        entries = read_header(memoryview(section), "here")
    except WeightsError:
        return
    assert len(entries) <= 8


values = st.recursive(
    st.sampled_from(["F32", "I8", "NOPE", "", None, True, -1, 0, 1, 2, 8, 2**62, 2**63 - 1, 0.5]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["dtype", "shape", "data_offsets", "__metadata__", "a"]), inner
        )
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=150)
@given(st.dictionaries(st.sampled_from(["a", "b", "__metadata__"]), values))
def test_any_json_for_a_header(head: dict[str, object]) -> None:
    body = json.dumps(head).encode()
    section = struct.pack("<Q", len(body)) + body + bytes(8)
    try:
        entries = read_header(memoryview(section), "here")
    except WeightsError:
        return
    assert all(isinstance(entry, Entry) for entry in entries.values())
