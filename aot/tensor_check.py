"""The tensor check of an artifact, compiled from tensor_check.cpp: a call is recognised without it too,
only slower."""

import hashlib
import json
import platform
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from ..formats import python_abi
from ..formats.guard import HOST, Guard
from . import targets, toolchain
from .inductor import LibraryFiles
from .job_cache import FinishedJob, JobCache
from .writing import writing

SOURCE: Final = Path(__file__).with_name("tensor_check.cpp")
LIBRARY: Final = "tcbuild_tensor_check.so"

_TORCH: Final = Path(torch.__file__).parent

_FLAGS: Final = (
    "-std=c++20",
    *("-O2", "-DNDEBUG", "-w"),
    *("-shared", "-s", "-fPIC", "-fvisibility=hidden"),
)
_BASE: Final = {"x86_64": ("-march=x86-64",), "aarch64": ("-march=armv8-a",)}


@dataclass(frozen=True, kw_only=True)
class TensorCheck:
    """The compiled check.

    Attributes:
        library: its bytes.
        guards: what it needs of a host.
    """

    library: bytes
    guards: tuple[Guard, ...]


def compiled(cache: JobCache) -> tuple[TensorCheck | None, list[str]]:
    """Return the check, or None with a note that says why there is none.

    Raises:
        OutputError: the cache or the folder for temporary files cannot be written to.
    """
    key = _key()
    with writing(cache.path):
        found = cache.get(key)
        if found is None:
            with tempfile.TemporaryDirectory(prefix="tcbuild-") as folder:
                library, error = _compile(Path(folder), cache.path)
            if library is None:
                return None, [f"no compiled tensor check: calls take longer to recognise ({error})"]
            files = LibraryFiles(files={LIBRARY: library}, constants=())
            found = FinishedJob(library=files, relations=())
            cache.put(key, found)
    library = found.library.files[LIBRARY]
    return TensorCheck(library=library, guards=_guards(library)), []


def _guards(library: bytes) -> tuple[Guard, ...]:
    return (
        Guard(subject=HOST, fact="python", expected=python_abi.name()),
        *targets.base_guards(platform.machine(), library),
    )


def _key() -> str:
    """Return what names the library in the cache: a digest of all that it depends on."""
    depends = {
        "source": SOURCE.read_text(encoding="utf-8"),
        "flags": [*_FLAGS, *_BASE.get(platform.machine(), ())],
        "compiler": toolchain.version(),
        "torch": torch.__version__.split("+")[0],
        "python": python_abi.name(),
    }
    return hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()


def _compile(folder: Path, cache: Path) -> tuple[bytes | None, str]:
    """Compile in an empty folder; return the library, or None and the first error."""
    headers, base = toolchain.header_folders(), _BASE.get(platform.machine(), ())
    made = folder / LIBRARY
    command = [
        str(toolchain.driver(cache, "native")),
        *(*_FLAGS, *base),
        *(f"-isystem{path}" for path in headers),
        *(str(SOURCE), "-o", str(made)),
        *(f"-L{_TORCH / 'lib'}", "-lc10"),
    ]
    with toolchain.prefix(SOURCE.parent):
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line]
        return None, next(iter(lines), f"the compiler's exit code is {done.returncode}")
    return made.read_bytes(), ""
