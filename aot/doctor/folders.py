"""Where writing goes: temporary files and the cache."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ...formats.cache import cache_folder
from . import process
from .compiler import TINY_LIBRARY
from .finding import Check, Finding, note, ok, problem

ROOM: Final = 2 * 10**9  # bytes; a build of one large model fills about as much

_WRITABLE: Final = "a folder that can be written to"
_DLOPEN: Final = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"


def checks() -> Iterator[Check]:
    """Yield the checks that need no compiler."""
    yield Check(name="temporary files", run=temporary)
    yield Check(name="cache folder", run=cache)


def loading_checks(folder: Path) -> Iterator[Check]:
    """Yield the check that needs the library which the compiler's checks leave in `folder`."""
    yield Check(
        name="loading from the cache",
        run=lambda: loading(folder / TINY_LIBRARY, cache_folder()),
        needs=("cache folder", "shared library"),
    )


def temporary() -> Finding:
    """Say where temporary files go."""
    wanted = os.environ.get("TMPDIR")
    cure = "export TMPDIR=DIR, a folder that can be written to"
    try:
        used = tempfile.gettempdir()
        with tempfile.TemporaryFile(dir=used) as file:
            file.write(bytes(4096))
    except OSError as error:
        return problem(error.strerror or str(error), expected=_WRITABLE, cure=cure)
    if wanted and Path(wanted).absolute() != Path(used).absolute():
        found = f"TMPDIR={wanted} cannot be written to; {used} is used in its place"
        return note(found, expected=_WRITABLE, cure=cure)
    return _room(Path(used), "TMPDIR")


def cache() -> Finding:
    """Say where finished work is kept."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            file.write(bytes(4096))
    except OSError as error:
        found = f"{folder}: {error.strerror or error}"
        cure = "export TCBUILD_CACHE=DIR, a folder that can be written to"
        return problem(found, expected=_WRITABLE, cure=cure)
    return _room(folder, "TCBUILD_CACHE")


def loading(library: Path, folder: Path) -> Finding:
    """Say whether a library that lies in `folder` can be loaded."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".doctor-") as aside:
        copy = shutil.copy(library, aside)
        done = process.python(_DLOPEN, copy, lines=1)
        noexec = os.statvfs(aside).f_flag & getattr(os, "ST_NOEXEC", 0)
    if not done.failure:
        return ok(f"a library in {folder} is loaded")
    return problem(
        f"{folder}: {'mounted noexec' if noexec else done.failure}",
        expected="a folder from which a library can be loaded",
        cure="export TCBUILD_CACHE=DIR, a folder on a file system that is not mounted noexec",
    )


def _room(folder: Path, variable: str) -> Finding:
    free = shutil.disk_usage(folder).free
    found = f"{folder}, {free / 1e9:.1f} GB free"
    if free >= ROOM:
        return ok(found)
    cure = f"free some space, or export {variable}=DIR, a folder with more"
    return note(found, expected=f"{ROOM / 1e9:.0f} GB free", cure=cure)
