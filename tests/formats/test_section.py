"""Sections: encodings, digests and the table."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tcbuild.formats.errors import DigestError, SectionError, TooLargeError
from tcbuild.formats.section import (
    ALIGN,
    MAX_UNPACKED,
    PAGE,
    RAW,
    ZSTD,
    Section,
    check_bytes,
    check_table,
    in_order,
    pack,
    sha256,
    unpack,
    xxh3,
)


def section_of(data: bytes, encoding: str = ZSTD, offset: int = 0) -> tuple[Section, bytes]:
    stored = pack(data) if encoding == ZSTD else data
    return Section(
        name="s",
        offset=offset,
        length=len(stored),
        encoding=encoding,
        size=len(data),
        digest=sha256(data),
        checksum=xxh3(data) if encoding == RAW else None,
    ), stored


@settings(deadline=None)
@given(st.binary(max_size=300), st.sampled_from([RAW, ZSTD]))
def test_round_trip(data: bytes, encoding: str) -> None:
    section, stored = section_of(data, encoding)
    check_table((section,), len(stored), "here")
    assert unpack(section, stored, "here") == data
    assert unpack(section, memoryview(stored), "here") == data
    assert section_of(data, encoding)[1] == stored


@settings(deadline=None)
@given(st.binary(max_size=100))
def test_any_bytes_for_a_frame(stored: bytes) -> None:
    section, _ = section_of(b"some text")
    with pytest.raises((SectionError, DigestError)):
        unpack(section, stored, "here")


def test_known_digests() -> None:
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert sha256(b"") == f"sha256:{empty}"
    assert xxh3(b"") == "xxh3_128:99aa06d3014798d86001c324468d497f"


def test_raw_is_held_against_its_checksum() -> None:
    section, data = section_of(b"weights", RAW)
    wrong = dataclasses.replace(section, digest=sha256(b"other"))
    check_bytes(wrong, data, "here")
    with pytest.raises(DigestError, match="sha256:"):
        check_bytes(dataclasses.replace(wrong, checksum=None), data, "here")
    with pytest.raises(DigestError, match="xxh3_128:"):
        check_bytes(section, b"Weights", "here")


def test_more_than_the_limit() -> None:
    section, stored = section_of(b"text")
    at_limit = dataclasses.replace(section, size=MAX_UNPACKED)
    check_table((at_limit,), len(stored), "here")
    with pytest.raises(SectionError, match="a zstd frame of 4 bytes"):
        unpack(at_limit, stored, "here")
    with pytest.raises(TooLargeError, match=f"at most {MAX_UNPACKED}"):
        check_table((dataclasses.replace(section, size=MAX_UNPACKED + 1),), len(stored), "here")


def at(offset: int, length: int, encoding: str = ZSTD) -> Section:
    raw = encoding == RAW
    return Section(
        name=f"{offset}",
        offset=offset,
        length=length,
        encoding=encoding,
        size=length if raw else 1,
        digest=sha256(b""),
        checksum=xxh3(b"") if raw else None,
    )


def test_table() -> None:
    check_table((), 0, "here")
    table = (at(PAGE, 5, RAW), at(0, 10), at(ALIGN, 0), at(ALIGN, 7))
    check_table(table, PAGE + 5, "here")
    assert [section.offset for section in in_order(table)] == [0, ALIGN, ALIGN, PAGE]
    assert [section.length for section in in_order(table)] == [10, 0, 7, 5]


@pytest.mark.parametrize(
    ("table", "length", "message"),
    [
        ((at(0, 10), at(0, 10)), 10, "to start at 10 or later"),
        ((at(0, 65), at(64, 10)), 74, "to start at 65 or later"),
        ((at(-64, 10),), 10, "to start at 0 or later"),
        ((at(0, -1),), 0, "to start at 0 or later"),
        ((at(1, 10),), 11, "a multiple of 64"),
        ((at(64, 10, RAW),), 74, "a multiple of 4096"),
        ((at(0, 11),), 10, "within 10 bytes"),
        ((at(0, 2**63 - 1),), 10, "within 10 bytes"),
        ((at(0, 10),), 11, "1 bytes behind the last section"),
        ((), 1, "1 bytes behind the last section"),
    ],
)
def test_impossible_table(table: tuple[Section, ...], length: int, message: str) -> None:
    with pytest.raises(SectionError, match=message):
        check_table(table, length, "here")
