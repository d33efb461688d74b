"""The `.tcb` file: header, manifest, sections. SPEC.md describes the bytes."""

import contextlib
import hashlib
import mmap
import os
import stat
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final

import xxhash

from . import section as sections
from . import weights
from .errors import (
    DigestError,
    NotAnArtifactError,
    SectionError,
    TooLargeError,
    TruncatedError,
    VersionError,
    WeightsError,
)
from .manifest import Manifest
from .private_map import map_private
from .safetensors_header import read_header
from .section import PAGE, RAW, ZSTD, Section
from .strict_json import show
from .version import CURRENT, OLDEST
from .weights_file import WeightsFile

MAGIC: Final = b"\x89TCB\r\n\x1a\n"
# magic, version, reserved (0), length of the manifest, length of the file, sha256 of the manifest
HEADER: Final = struct.Struct("<8sIIQQ32s")
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
    """A `.tcb` file that is open for reading.

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
        if not stat.S_ISREG(self.path.stat().st_mode):  # to open a pipe would wait for its writer
            raise NotAnArtifactError(where, found="no regular file", expected="a file")
        self._file = self.path.open("rb")
        self._view = memoryview(b"")
        try:
            length = os.fstat(self._file.fileno()).st_size
            if length < HEADER.size:
                _refuse_short(self._file.read(len(MAGIC)), length, where)
            self._map = mmap.mmap(self._file.fileno(), length, access=mmap.ACCESS_READ)
            self._view = memoryview(self._map)
            self._end = _read_header(self._view, where)
            body = bytes(self._view[HEADER.size : self._end])
            self.manifest = Manifest.from_bytes(body, where)
            self.data = _align(self._end, PAGE)
            sections.check_table(self.manifest.sections, length - self.data, where)
            self._sections = {section.name: section for section in self.manifest.sections}
        except BaseException:
            self.close()
            raise

    def section(self, name: str) -> Section:
        """Return the record of a section.

        Raises:
            SectionError: there is no such section.
        """
        try:
            return self._sections[name]
        except KeyError:
            where = f"{self.path}: sections"
            raise SectionError(
                where, found=f"none named {show(name)}", expected="its name"
            ) from None

    def stored(self, name: str) -> memoryview:
        """Return the stored bytes of a section, as a view of the mapped file.

        Raises:
            SectionError: there is no such section.
            ValueError: the artifact is closed.
        """
        section = self._section(name)
        start = self.data + section.offset
        return self._view[start : start + section.length]

    def read(self, name: str) -> bytes | memoryview:
        """Return the decoded bytes of a section, checked against what the manifest says of them.

        Raises:
            SectionError: there is no such section, or it does not decode.
            DigestError: the bytes are not the ones that were recorded.
            ValueError: the artifact is closed.
        """
        return sections.unpack(self._section(name), self.stored(name), str(self.path))

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

    def map_private(self, name: str) -> memoryview:
        """Return the stored bytes of a section as memory of their own that may be written to.

        Nothing is read or copied here: a page that is written to is copied by the system, and never
        reaches the file. The memory lives as long as the view or a tensor over it does, after
        `close` too, and whatever is renamed over the path. It is not checked:
        see `section.check_bytes`.

        Raises:
            SectionError: there is no such section.
            ValueError: the artifact is closed.
        """
        section = self._section(name)
        return map_private(self._file.fileno(), self.data + section.offset, section.length)

    def weights_file(self, given: str | os.PathLike[str] | None = None) -> WeightsFile | None:
        """Open the file that the weights are in, if they are in one of their own.

        Args:
            given: its path; where left out, it is beside the artifact under the name that the manifest
                has for it.

        Raises:
            WeightsError: a path is given, and the artifact has its weights in itself, or has none; or
                as WeightsFile.
            MissingWeightsError: there is no such file.
        """
        record = self.manifest.weights
        if record is None or record.external is None:
            if given is None:
                return None
            raise WeightsError(
                self.path,
                found=f"weights={str(given)!r} for an artifact with no weights in another file",
                expected="none",
                tip="leave it out; load_weights gives a model that is loaded other values",
            )
        path = self.path.parent / record.external.file if given is None else given
        return WeightsFile(path, record, record.external)

    def check(self, weights_file: str | os.PathLike[str] | None = None) -> None:
        """Read every byte: digests (slow ones too), padding, and the weights against the manifest.

        Args:
            weights_file: where the weights are, if in a file of their own and not beside this one.

        Raises:
            FormatError: naming the first part that is not what was recorded.
        """
        where = str(self.path)
        end = self._end
        for section in sections.in_order(self.manifest.sections):
            start = self.data + section.offset
            _check_padding(self._view[end:start], end, where)
            end = start + section.length
            data = self.read(section.name)
            sections.check_bytes(replace(section, checksum=None), data, where)
        _check_padding(self._view[end:], end, where)
        opened = self.weights_file(weights_file)
        if opened is not None:
            for name in opened.entries:
                opened.check(name, thorough=True)
        record = self.manifest.weights
        if record is not None and record.section is not None:
            place = f"{where}: section {record.section!r}"
            weights.check_stored(record, read_header(self.stored(record.section), place), place)

    def close(self) -> None:
        """Close the file: no section can be read any more, and closing again does nothing.

        Views that were handed out stay valid; the file is unmapped when the last of them goes.
        """
        self._view.release()
        self._file.close()
        if hasattr(self, "_map"):
            with contextlib.suppress(BufferError):  # views are out: they keep the map
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

    def _section(self, name: str) -> Section:
        if self._file.closed:
            message = f"{self.path} is closed"
            raise ValueError(message)
        return self.section(name)


def write(path: str | os.PathLike[str], manifest: Manifest, contents: Sequence[Content]) -> None:
    """Write an artifact to `path`, which must not be its final name: see aot/package.py.

    `manifest.sections` is ignored and replaced by what `contents` come to. Raw sections are the
    weights: they start at a page and carry a checksum. The manifest is checked as a reader will.

    Raises:
        FormatError: no reader would take it; nothing is written.
        OSError: the file cannot be written.
    """
    table: list[Section] = []
    stored: list[Sequence[bytes | memoryview]] = []
    offset = 0
    for content in contents:
        offset = _align(offset, sections.alignment(content.encoding))
        section, parts = _store(content, offset)
        table.append(section)
        stored.append(parts)
        offset += section.length
    body = replace(manifest, sections=tuple(table)).to_bytes()
    if len(body) > MAX_MANIFEST:
        found, expected = f"a manifest of {len(body)} bytes", f"at most {MAX_MANIFEST}"
        raise TooLargeError(path, found=found, expected=expected)
    sections.check_table(Manifest.from_bytes(body, str(path)).sections, offset, str(path))
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
    sha, quick, size = hashlib.sha256(), xxhash.xxh3_128(), 0
    parts: Sequence[bytes | memoryview] = [memoryview(part).cast("B") for part in content.parts]
    for part in parts:
        sha.update(part)
        quick.update(part)
        size += len(part)
    if content.encoding == ZSTD:
        parts = [sections.pack(b"".join(parts))]
    return Section(
        name=content.name,
        offset=offset,
        length=sum(map(len, parts)),
        encoding=content.encoding,
        size=size,
        digest=f"sha256:{sha.hexdigest()}",
        checksum=f"xxh3_128:{quick.hexdigest()}" if content.encoding == RAW else None,
    ), parts


def _refuse_short(head: bytes, length: int, where: str) -> None:
    if not head or not MAGIC.startswith(head):
        raise NotAnArtifactError(where, found=f"{head!r}", expected=f"{MAGIC!r}")
    expected = f"at least {HEADER.size} bytes"
    raise TruncatedError(where, found=f"{length} bytes", expected=expected)


def _read_header(view: memoryview, where: str) -> int:
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
    if stated != len(view):
        raise TruncatedError(where, found=f"{len(view)} bytes", expected=f"{stated} bytes")
    if _align(end, PAGE) > len(view):
        expected = f"at least {_align(end, PAGE)} bytes for a manifest of {manifest}"
        raise TruncatedError(where, found=f"{len(view)} bytes", expected=expected)
    actual = hashlib.sha256(view[HEADER.size : end]).digest()
    if actual != digest:
        raise DigestError(f"{where}: manifest", found=actual.hex(), expected=digest.hex())
    return end


def _check_padding(gap: memoryview, start: int, where: str) -> None:
    for offset in range(0, len(gap), 1 << 20):
        piece = bytes(gap[offset : offset + (1 << 20)])
        if piece.count(0) != len(piece):
            at = start + offset + len(piece) - len(piece.lstrip(b"\0"))
            found = f"byte {piece.lstrip(bytes(1))[0]:#04x} at {at}"
            raise SectionError(f"{where}: padding", found=found, expected="zeros")


def _align(offset: int, step: int) -> int:
    return -(-offset // step) * step
