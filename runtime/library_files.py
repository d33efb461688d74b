"""Where a compiled library lies when it is loaded: a cache that processes share, else memory.

The cache is addressed by content and every file in it is checked before it is used, so a cache that
was cut short, tampered with or written by two processes at once does no harm. Where nothing can be
written, the library is put into an anonymous file in memory.
"""

import os
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from ..formats import section as sections
from ..formats.cache import cache_folder
from ..formats.container import Artifact
from .errors import LibraryError

# Never closed: the loader tells libraries apart by path, and a path under /proc/self/fd must not
# come to mean another library while the process lives.
_in_memory: dict[str, int] = {}


def place(artifact: Artifact, files: Mapping[str, str]) -> dict[str, Path]:
    """Make the files of a library available under their own names in one folder.

    Args:
        artifact: where they come from.
        files: the name of each file, with the name of the section that holds it.

    Returns:
        The path of each file by its name.

    Raises:
        FormatError: a section is malformed.
        LibraryError: they can be put nowhere.
    """
    digests = [f"{name} {artifact.section(files[name]).digest}" for name in sorted(files)]
    key = sha256("\n".join(digests).encode()).hexdigest()
    folder = cache_folder() / "libraries" / key
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return {name: _place(artifact, section, folder / name) for name, section in files.items()}
    except OSError as error:
        return _place_elsewhere(artifact, files, error)


def _place(artifact: Artifact, section: str, path: Path) -> Path:
    expected = artifact.section(section).digest
    try:
        if sections.sha256(path.read_bytes()) == expected:
            return path
    except FileNotFoundError:
        pass
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(artifact.read(section))
        os.chmod(temporary, 0o700)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return path


def _place_elsewhere(
    artifact: Artifact, files: Mapping[str, str], reason: OSError
) -> dict[str, Path]:
    """Use memory; a library of several files needs a folder, so it gets a private temporary one."""
    if len(files) == 1 and hasattr(os, "memfd_create"):
        ((name, section),) = files.items()
        return {name: Path(f"/proc/self/fd/{_memory_file(artifact, section)}")}
    for base in ("/dev/shm", tempfile.gettempdir()):
        try:
            folder = Path(tempfile.mkdtemp(dir=base, prefix="tcbuild-"))
            return {
                name: _place(artifact, section, folder / name) for name, section in files.items()
            }
        except OSError:
            continue
    raise LibraryError(
        artifact.path,
        found=f"no folder to unpack to ({reason})",
        expected="a cache that can be written",
        tip="set TCBUILD_CACHE to a folder that this process may write to",
    )


def _memory_file(artifact: Artifact, section: str) -> int:
    digest = artifact.section(section).digest
    if digest not in _in_memory:
        descriptor = os.memfd_create("tcbuild-library", os.MFD_CLOEXEC)
        with open(descriptor, "wb", closefd=False) as file:
            file.write(artifact.read(section))
        _in_memory[digest] = descriptor
    return _in_memory[digest]
