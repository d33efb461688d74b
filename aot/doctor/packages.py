"""Python, torch and the packages beside it."""

import importlib
import importlib.metadata
import importlib.util
import platform
import re
import sys
from collections.abc import Iterator
from typing import Final

from . import process
from .finding import Check, Finding, note, ok, problem

# As pyproject.toml has it: from the first, up to but without the second.
PYTHON: Final = (3, 10)
TORCH: Final = ((2, 11), (2, 15))
# By the name to import; each is installed under the same name.
PACKAGES: Final = ("safetensors", "xxhash", "zstandard", "click", "rich")
RANGE: Final = ">={}.{},<{}.{}".format(*TORCH[0], *TORCH[1])


def checks() -> Iterator[Check]:
    """Yield the checks."""
    yield Check(name="Python", run=python)
    yield Check(name="packages", run=packages)
    yield Check(name="torch", run=torch)
    yield Check(name="numpy", run=numpy)


def python() -> Finding:
    """Say which Python this is."""
    found = f"{platform.python_version()} at {sys.executable}"
    if sys.version_info[:2] >= PYTHON:
        return ok(found)
    wanted = ".".join(map(str, PYTHON))
    cure = f"install Python {wanted} or later and make a virtual environment with it"
    return problem(found, expected=f"{wanted} or later", cure=cure)


def packages() -> Finding:
    """Say whether the packages that a build imports are here."""
    wanted = [*PACKAGES, *(["tomli"] if sys.version_info < (3, 11) else [])]
    missing = [name for name in wanted if importlib.util.find_spec(name) is None]
    if missing:
        cure = f"{sys.executable} -m pip install {' '.join(missing)}"
        return problem(f"no {', '.join(missing)}", expected="all that a build imports", cure=cure)
    return ok(", ".join(f"{name} {version(name)}" for name in wanted))


def torch() -> Finding:
    """Say whether torch can be imported, in a fresh process, and is of a version that we support."""
    cure = f"{sys.executable} -m pip install 'torch{RANGE}'"
    done = process.python("import torch; print('version', torch.__version__)", lines=1)
    if done.failure:
        found = f"import torch: {done.failure}"
        return problem(found, expected=f"torch{RANGE}", cure=cure)
    found = done.output.rpartition("version ")[2].strip()
    numbers = tuple(map(int, re.findall(r"\d+", found)[:2]))
    if TORCH[0] <= numbers < TORCH[1]:
        return ok(found)
    return problem(found, expected=RANGE, cure=cure)


def numpy() -> Finding:
    """Say whether numpy, which nothing of ours needs, is in the way: torch imports one that is there."""
    if importlib.util.find_spec("numpy") is None:
        return ok("none, and none is needed")
    done = process.python("import numpy", lines=1)
    if done.failure:
        return note(
            f"import numpy: {done.failure}",
            expected="one that can be imported, or none: it is not needed",
            cure=f"{sys.executable} -m pip uninstall numpy",
        )
    return ok(f"{version('numpy')}, not needed")


def version(package: str) -> str:
    """Return the version of a package as its installer recorded it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"
