"""Finished work that machines share: entries at any URL that fsspec knows, each whole or not there.

An entry is one object that begins with the digest of the rest. It is put under its name in one step, so
that writers do not meet; what is torn or foreign all the same is told, and never used. Whoever can
write there decides what code a build contains, as with any cache of a compiler.
"""

import hashlib
import json
import os
import uuid
from collections.abc import Mapping
from typing import Any, Final

from .errors import ToolError

VARIABLE: Final = "TCBUILD_SHARED_CACHE"
MAGIC: Final = b"tcbuild entry 1\n"
_DIGEST: Final = 32  # bytes
# Where an object is put as a whole or not at all; elsewhere it is written aside and moved.
_ATOMIC: Final = frozenset(
    ["memory", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci"]
)


class SharedCache:
    """Entries by name at a URL.

    A store that does not answer is no reason for a build to fail: it is told once, and left alone.

    Attributes:
        url: of the folder.
        notes: what was found wrong with entries or with the store.
    """

    def __init__(self, url: str) -> None:
        """Connect to a store.

        Raises:
            ToolError: fsspec is not installed, or does not know the URL, or lacks a package for it.
        """
        self.url = url.rstrip("/")
        self.notes: list[str] = []
        self._answers = True
        tip = "pip install 'tcbuild[cache]', and what fsspec asks for that kind of URL: s3fs, gcsfs"
        try:
            import fsspec

            self._store, self._root = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise ToolError(
                f"the shared cache {url}", found=str(error), expected="a store", tip=tip
            ) from error
        kinds = self._store.protocol
        names = {kinds} if isinstance(kinds, str) else set(kinds)
        self._atomic = bool(names & _ATOMIC)

    @classmethod
    def of_user(cls) -> "SharedCache | None":
        """Return the one that $TCBUILD_SHARED_CACHE names; None where it names none."""
        url = os.environ.get(VARIABLE)
        return cls(url) if url else None

    def get(self, name: str) -> bytes | None:
        """Return the bytes of an entry; None where there is none that is whole."""
        if not self._answers:
            return None
        try:
            data: bytes = self._store.cat_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return None
        except Exception as error:  # each kind of store has its own
            self._silent(error)
            return None
        body = data[len(MAGIC) + _DIGEST :]
        if not data.startswith(MAGIC) or len(data) < len(MAGIC) + _DIGEST:
            self._refuse(name, f"{data[:16]!r} at its start, which no entry has")
            return None
        if hashlib.sha256(body).digest() != data[len(MAGIC) : len(MAGIC) + _DIGEST]:
            self._refuse(name, "bytes that do not have the digest of the entry")
            return None
        return body

    def put(self, name: str, body: bytes) -> None:
        """Keep an entry; of several writers of one name, one is kept whole."""
        if not self._answers:
            return
        data = MAGIC + hashlib.sha256(body).digest() + body
        path = f"{self._root}/{name}"
        try:
            if self._atomic:
                self._store.pipe_file(path, data)
                return
            folder, _, last = path.rpartition("/")
            aside = f"{folder}/.new-{uuid.uuid4().hex}-{last}"
            self._store.makedirs(folder, exist_ok=True)
            try:
                self._store.pipe_file(aside, data)
                self._store.mv(aside, path)
            except BaseException:
                if self._store.exists(aside):
                    self._store.rm_file(aside)
                raise
        except Exception as error:
            self._silent(error)

    def _refuse(self, name: str, found: str) -> None:
        self.notes.append(f"{self.url}/{name}: not used: found {found}")

    def _silent(self, error: Exception) -> None:
        self._answers = False
        said = str(error).splitlines() or [""]
        self.notes.append(
            f"the shared cache {self.url} is not used: {type(error).__name__}: {said[0]}"
        )


def pack(record: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    """Return a record and files as the body of an entry: the same bytes for the same content."""
    head = {"record": dict(record), "files": [[name, len(files[name])] for name in sorted(files)]}
    text = json.dumps(head, sort_keys=True).encode()
    return b"".join([len(text).to_bytes(8, "little"), text, *(files[n] for n in sorted(files))])


def unpack(body: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return what `pack` was given.

    Raises:
        ValueError, KeyError, TypeError: it is the body of something else.
    """
    start = 8 + int.from_bytes(body[:8], "little")
    head = json.loads(body[8:start])
    files = {}
    for name, size in head["files"]:
        files[str(name)] = body[start : start + size]
        start += size
    if start != len(body):
        message = f"found {len(body)} bytes, expected {start}"
        raise ValueError(message)
    return dict(head["record"]), files
