"""A named range of an artifact."""

import hashlib
from dataclasses import dataclass
from typing import Final

import xxhash
import zstandard

from .errors import DigestError, SectionError, TooLargeError

RAW: Final = "raw"
ZSTD: Final = "zstd"

MAX_UNPACKED: Final = 1 << 31  # of a zstd section: libraries and source, never weights


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """Where some bytes of the artifact are, and what they must be.

    Attributes:
        name: how variants refer to it.
        offset: of the first byte, from the start of the data (see container.py).
        length: of the stored bytes.
        encoding: "raw", or "zstd" where the stored bytes are one zstd frame.
        size: of the bytes once decoded.
        digest: `sha256:` and the hex digest of the decoded bytes.
        checksum: `xxh3_128:` and the hex digest of the decoded bytes: quick enough to be checked over
            all weights at each load. Sections without one have their digest checked instead.
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
    """Refuse decoded bytes that have not the section's checksum or, where it has none, its digest."""
    expected = section.checksum or section.digest
    found = xxh3(data) if section.checksum else sha256(data)
    if found != expected:
        raise DigestError(f"{where}: section {section.name!r}", found=found, expected=expected)


def check_table(sections: tuple[Section, ...], data_length: int, where: str) -> None:
    """Refuse a section table that points outside the file, overlaps, or states impossible sizes.

    Raises:
        SectionError: naming the section.
        TooLargeError: a zstd section unpacks to more than MAX_UNPACKED bytes.
    """
    end = 0
    for section in sorted(sections, key=lambda section: section.offset):
        place = f"{where}: section {section.name!r}"
        if section.offset < end or section.length < 0:
            found = f"bytes {section.offset}..{section.offset + section.length}"
            raise SectionError(place, found=found, expected=f"to start at {end} or later")
        end = section.offset + section.length
        if end > data_length:
            expected = f"to end within {data_length} bytes of data"
            raise SectionError(place, found=f"an end at {end}", expected=expected)
        if section.encoding == RAW:
            if section.size != section.length:
                raise SectionError(
                    place, found=f"size {section.size}", expected=f"the length {section.length}"
                )
        elif section.encoding != ZSTD:
            raise SectionError(
                place, found=f"encoding {section.encoding!r}", expected=f"{RAW!r} or {ZSTD!r}"
            )
        elif not 0 <= section.size <= MAX_UNPACKED:
            raise TooLargeError(
                place, found=f"size {section.size}", expected=f"at most {MAX_UNPACKED}"
            )
        for name, value in (("sha256:", section.digest), ("xxh3_128:", section.checksum or "")):
            if value and not value.startswith(name):
                raise SectionError(place, found=f"digest {value[:40]!r}", expected=f"{name}...")


def _decompress(section: Section, stored: bytes | memoryview, where: str) -> bytes:
    place = f"{where}: section {section.name!r}"
    try:
        size = zstandard.get_frame_parameters(stored).content_size
        if size != section.size:
            raise SectionError(
                place, found=f"a zstd frame of {size} bytes", expected=f"{section.size}"
            )
        return zstandard.ZstdDecompressor().decompress(stored, max_output_size=section.size)
    except zstandard.ZstdError as error:
        raise SectionError(place, found=str(error), expected="one zstd frame") from None
