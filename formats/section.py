"""A named range of an artifact."""

import hashlib
import re
from dataclasses import dataclass
from typing import Final

import xxhash
import zstandard

from .errors import DigestError, SectionError, TooLargeError
from .strict_json import show

RAW: Final = "raw"
ZSTD: Final = "zstd"

PAGE: Final = 4096  # the data starts at a multiple of it, and so do raw sections
ALIGN: Final = 64  # what every other section starts at a multiple of
MAX_UNPACKED: Final = 1 << 31  # of a zstd section: libraries and source, never weights

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_CHECKSUM = re.compile(r"xxh3_128:[0-9a-f]{32}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """Where some bytes of the artifact are, and what they must be.

    Attributes:
        name: how variants refer to it.
        offset: of the first byte, from the start of the data.
        length: of the stored bytes.
        encoding: "raw", or "zstd" where the stored bytes are one zstd frame.
        size: of the bytes once decoded.
        digest: `sha256:` and the hex digest of the decoded bytes.
        checksum: `xxh3_128:` and the hex digest of the decoded bytes, of raw sections and no
            others: quick enough to be checked over all weights at each load.
    """

    name: str
    offset: int
    length: int
    encoding: str
    size: int
    digest: str
    checksum: str | None = None


def sha256(data: bytes | memoryview) -> str:
    """Return the digest as a section records it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def xxh3(data: bytes | memoryview) -> str:
    """Return the checksum as a section records it."""
    return f"xxh3_128:{xxhash.xxh3_128_hexdigest(data)}"


def is_digest(text: str) -> bool:
    """Return whether the text is what `sha256` returns."""
    return _DIGEST.fullmatch(text) is not None


def is_checksum(text: str) -> bool:
    """Return whether the text is what `xxh3` returns."""
    return _CHECKSUM.fullmatch(text) is not None


def pack(data: bytes) -> bytes:
    """Compress to one zstd frame that states its size; the same bytes for the same data."""
    compressor = zstandard.ZstdCompressor(level=10, write_content_size=True, write_checksum=False)
    return compressor.compress(data)


def unpack(section: Section, stored: bytes | memoryview, where: str) -> bytes | memoryview:
    """Return the decoded bytes of a section, checked against its size and digest.

    Raises:
        SectionError: the stored bytes are not a zstd frame of the stated size.
        DigestError: the decoded bytes are not the ones that were recorded.
    """
    data = stored if section.encoding == RAW else _decompress(section, stored, where)
    check_bytes(section, data, where)
    return data


def check_bytes(section: Section, data: bytes | memoryview, where: str) -> None:
    """Refuse decoded bytes that have not the section's checksum or, where it has none, its digest.

    Raises:
        DigestError: they have another.
    """
    expected = section.checksum or section.digest
    found = xxh3(data) if section.checksum else sha256(data)
    if found != expected:
        raise DigestError(f"{where}: section {show(section.name)}", found=found, expected=expected)


def check_table(sections: tuple[Section, ...], data_length: int, where: str) -> None:
    """Refuse a section table that points outside the file, overlaps, or states impossible sizes.

    Args:
        sections: the table.
        data_length: bytes from the start of the data to the end of the file.
        where: for messages.

    Raises:
        SectionError: naming the section.
        TooLargeError: a zstd section unpacks to more than MAX_UNPACKED bytes.
    """
    end = 0
    for section in in_order(sections):
        place = f"{where}: section {show(section.name)}"
        _check_encoding(section, place)
        if section.offset < end or section.length < 0:
            found = f"bytes {section.offset}..{section.offset + section.length}"
            raise SectionError(place, found=found, expected=f"to start at {end} or later")
        step = alignment(section.encoding)
        if section.offset % step:
            expected = f"a multiple of {step}"
            raise SectionError(place, found=f"offset {section.offset}", expected=expected)
        end = section.offset + section.length
        if end > data_length:
            expected = f"to end within {data_length} bytes of data"
            raise SectionError(place, found=f"an end at {end}", expected=expected)
    if end != data_length:
        found = f"{data_length - end} bytes behind the last section"
        raise SectionError(f"{where}: sections", found=found, expected="none")


def in_order(sections: tuple[Section, ...]) -> list[Section]:
    """Return the sections as they lie in the file."""
    return sorted(sections, key=lambda section: (section.offset, section.length))


def alignment(encoding: str) -> int:
    """Return what the offset of a section with this encoding is a multiple of, in bytes."""
    return PAGE if encoding == RAW else ALIGN


def _check_encoding(section: Section, where: str) -> None:
    if section.encoding not in (RAW, ZSTD):
        found, expected = f"encoding {show(section.encoding)}", f"{RAW!r} or {ZSTD!r}"
        raise SectionError(where, found=found, expected=expected)
    raw = section.encoding == RAW
    if raw and section.size != section.length:
        expected = f"the length {section.length}"
        raise SectionError(where, found=f"size {section.size}", expected=expected)
    if not raw and not 0 <= section.size <= MAX_UNPACKED:
        found, expected = f"size {section.size}", f"at most {MAX_UNPACKED}"
        raise TooLargeError(where, found=found, expected=expected)
    if not is_digest(section.digest):
        found, expected = f"digest {show(section.digest)}", "sha256: and 64 hex digits"
        raise SectionError(where, found=found, expected=expected)
    # A quick checksum would do in place of the digest: never for code.
    if (section.checksum is not None) != raw or not is_checksum(section.checksum or _NONE):
        found = f"checksum {show(section.checksum)}"
        expected = "xxh3_128: and 32 hex digits" if raw else f"none with encoding {ZSTD!r}"
        raise SectionError(where, found=found, expected=expected)


_NONE = f"xxh3_128:{0:032}"


def _decompress(section: Section, stored: bytes | memoryview, where: str) -> bytes:
    place = f"{where}: section {show(section.name)}"
    try:
        size = zstandard.get_frame_parameters(stored).content_size
        if size != section.size:
            raise SectionError(
                place, found=f"a zstd frame of {size} bytes", expected=f"{section.size}"
            )
        decompressor = zstandard.ZstdDecompressor()
        return decompressor.decompress(stored, max_output_size=section.size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise SectionError(place, found=str(error), expected="one zstd frame") from None
