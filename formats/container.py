"""The `.tcb` file: header, manifest, sections. SPEC.md describes the bytes."""

import hashlib
import mmap
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final

from . import section as sections
from .errors import (
    DigestError,
    NotAnArtifactError,
    SectionError,
    TooLargeError,
    TruncatedError,
    VersionError,
)
from .manifest import Manifest
from .section import RAW, ZSTD, Section
from .version import CURRENT, OLDEST

MAGIC: Final = b"\x89TCB\r\n\x1a\n"
# magic, version, reserved (0), length of the manifest, length of the file, sha256 of the manifest
HEADER: Final = struct.Struct("<8sIIQQ32s")
PAGE: Final = 4096  # the data starts at a multiple of it, and so do the weights
ALIGN: Final = 64  # what every other section starts at a multiple of
MAX_MANIFEST: Final = 64 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Content:
    """The bytes of a section to be written.

    Attributes:
        name: of the section.
        parts: the decoded bytes, in pieces, so that large weights need not be joined in memory.
        encoding: "raw" or "zstd".
    """

    name: str
    parts: Sequence[bytes | memoryview]
    encoding: str = ZSTD


class Artifact:
    """A `.tcb` file that is open for reading; the file stays mapped until `close`.

    Attributes:
        path: of the file.
        manifest: its table of contents, checked.
        data: offset in the file at which section offsets start to count.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open the file and check header, manifest and section table; no section is read.

        Raises:
            FormatError: the file is malformed.
            OSError: it cannot be opened or mapped.
        """
        self.path = Path(path)
        where = str(self.path)
        with self.path.open("rb") as file:
            length = os.fstat(file.fileno()).st_size
            if length < HEADER.size:
                head = file.read(len(MAGIC))
                if not MAGIC.startswith(head) or not head:
                    raise NotAnArtifactError(where, found=f"{head!r}", expected=f"{MAGIC!r}")
                expected = f"at least {HEADER.size} bytes"
                raise TruncatedError(where, found=f"{length} bytes", expected=expected)
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._view = memoryview(self._map)
        try:
            end = _read_header(self._view, length, where)
            self.manifest = Manifest.from_bytes(bytes(self._view[HEADER.size : end]), where)
            self.data = _align(end, PAGE)
            sections.check_table(self.manifest.sections, length - self.data, where)
        except BaseException:
            self.close()
            raise

    def stored(self, name: str) -> memoryview:
        """Return the stored bytes of a section, as a view of the mapped file."""
        section = self.manifest.section(name)
        start = self.data + section.offset
        return self._view[start : start + section.length]

    def read(self, name: str) -> bytes | memoryview:
        """Return the decoded bytes of a section, checked against what the manifest says of them.

        Raises:
            SectionError: they do not decode.
            DigestError: they are not the bytes that were recorded.
        """
        return sections.unpack(self.manifest.section(name), self.stored(name), str(self.path))

    def text(self, name: str) -> str:
        """Return a section of text.

        Raises:
            FormatError: as `read`, or the bytes are not UTF-8.
        """
        try:
            return bytes(self.read(name)).decode("utf-8")
        except UnicodeDecodeError as error:
            where = f"{self.path}: section {name!r}"
            raise SectionError(where, found=str(error), expected="UTF-8") from None

    def check(self) -> None:
        """Read every section and check its digest, the slow one too.

        Raises:
            FormatError: naming the first section that is not what was recorded.
        """
        for section in self.manifest.sections:
            sections.check_bytes(
                replace(section, checksum=None), self.read(section.name), str(self.path)
            )

    def close(self) -> None:
        """Unmap the file."""
        self._view.release()
        self._map.close()

    def __enter__(self) -> "Artifact":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def write(path: str | os.PathLike[str], manifest: Manifest, contents: Sequence[Content]) -> None:
    """Write an artifact to `path`, which must not be its final name: see aot/package.py.

    `manifest.sections` is ignored and replaced by what `contents` come to. Raw sections are the
    weights: they start at a page and carry a checksum.
    """
    table: list[Section] = []
    stored: list[Sequence[bytes | memoryview]] = []
    offset = 0
    for content in contents:
        offset = _align(offset, PAGE if content.encoding == RAW else ALIGN)
        section, parts = _store(content, offset)
        table.append(section)
        stored.append(parts)
        offset += section.length
    body = replace(manifest, sections=tuple(table)).to_bytes()
    if len(body) > MAX_MANIFEST:
        raise TooLargeError(path, found=f"a manifest of {len(body)} bytes", expected=MAX_MANIFEST)
    data = _align(HEADER.size + len(body), PAGE)
    digest = hashlib.sha256(body).digest()
    with open(path, "wb") as file:
        file.write(HEADER.pack(MAGIC, CURRENT, 0, len(body), data + offset, digest))
        file.write(body)
        for section, parts in zip(table, stored, strict=True):
            file.write(b"\0" * (data + section.offset - file.tell()))
            file.writelines(parts)
        file.write(b"\0" * (data + offset - file.tell()))
        file.flush()
        os.fsync(file.fileno())


def _store(content: Content, offset: int) -> tuple[Section, Sequence[bytes | memoryview]]:
    sha, quick, size = hashlib.sha256(), sections.xxhash.xxh3_128(), 0
    for part in content.parts:
        sha.update(part)
        quick.update(part)
        size += len(part)
    parts: Sequence[bytes | memoryview] = content.parts
    if content.encoding == ZSTD:
        parts = [sections.pack(b"".join(content.parts))]
    return Section(
        name=content.name,
        offset=offset,
        length=sum(map(len, parts)),
        encoding=content.encoding,
        size=size,
        digest=f"sha256:{sha.hexdigest()}",
        checksum=f"xxh3_128:{quick.hexdigest()}" if content.encoding == RAW else None,
    ), parts


def _read_header(view: memoryview, length: int, where: str) -> int:
    """Check the header and the manifest's digest; return where the manifest ends."""
    magic, version, reserved, manifest, stated, digest = HEADER.unpack_from(view)
    if magic != MAGIC:
        raise NotAnArtifactError(where, found=f"{magic!r}", expected=f"{MAGIC!r}")
    if not OLDEST <= version <= CURRENT or reserved:
        found = f"version {version}" + (f" with reserved bits {reserved:#x}" if reserved else "")
        raise VersionError(where, found=found, expected=f"{OLDEST} to {CURRENT}")
    if manifest > MAX_MANIFEST:
        found = f"a manifest of {manifest} bytes"
        raise TooLargeError(where, found=found, expected=f"at most {MAX_MANIFEST}")
    end = HEADER.size + int(manifest)
    if stated != length or _align(end, PAGE) > length:
        raise TruncatedError(where, found=f"{length} bytes", expected=f"{max(stated, end)} bytes")
    found = hashlib.sha256(view[HEADER.size : end]).digest()
    if found != digest:
        raise DigestError(f"{where}: manifest", found=found.hex(), expected=digest.hex())
    return end


def _align(offset: int, step: int) -> int:
    return -(-offset // step) * step
