"""The C++ compiler, and the driver of ours that Inductor calls in its place."""

import functools
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from .errors import ToolError

DEVICE_NAMES: Final = Path(__file__).with_name("device_names.hpp")
# How torch's headers use <regex>.
_DEVICE_NAMES: Final = (
    "#include <regex>",
    'std::regex re("(cpu|cuda|xpu|mps)(:([0-9]+))?");',
    "std::smatch sm;",
    "bool matched = std::regex_match(device_str, sm, re);",
)
_HOW: Final = "install one: apt-get install g++, dnf install gcc-c++, or set CXX to its path"


@functools.cache
def compiler() -> str:
    """Return the path of the C++ compiler: $CXX, else g++, else clang++.

    Raises:
        ToolError: there is none.
    """
    wanted = os.environ.get("CXX")
    for name in [wanted] if wanted else ["g++", "clang++"]:
        path = shutil.which(name)
        if path:
            return path
    raise ToolError(
        "C++ compiler", found=f"no {wanted or 'g++ or clang++'} on PATH", expected="one", tip=_HOW
    )


@functools.cache
def version() -> str:
    """Return the first line of the compiler's own version text."""
    expected = "a working compiler"
    try:
        done = subprocess.run(
            [compiler(), "--version"], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise ToolError(compiler(), found=error.strerror, expected=expected, tip=_HOW) from error
    if done.returncode or not done.stdout:
        found = done.stderr.strip() or f"exit code {done.returncode}"
        raise ToolError(compiler(), found=found, expected=expected, tip=_HOW)
    return done.stdout.splitlines()[0]


def driver(folder: Path, march: str) -> Path:
    """Return the path of a compiler driver that Inductor calls in the compiler's place.

    It leaves the path in $TCBUILD_PREFIX out of what the compiler writes, and those of the headers of
    torch and of Python, so that the same graph gives the same bytes in any folder and with any virtual
    environment; and it links libstdc++ by name, since a library that leaves it to be found later may bind
    to another copy. Where Inductor asks for the processor of this machine, it asks for `march` instead. It
    always lies at the same place in `folder`, since Inductor keeps precompiled headers by the compiler's
    path. Into these it puts what spares each library most of its compilation: see device_names.hpp.
    """
    # Under their own paths as well, which the compiler says instead where they are shorter.
    paths = dict.fromkeys(f(path) for path in header_folders() for f in (str, os.path.realpath))
    headers = (shlex.quote(f"-ffile-prefix-map={path}=include") for path in paths)
    kind = "clang++" if "clang" in Path(compiler()).name else "g++"
    names = DEVICE_NAMES.read_text(encoding="utf-8") if _reads_device_names() else ""
    text = f"""#!/bin/sh
# {hashlib.sha256(names.encode()).hexdigest()}
link= names=
for argument in "$@"; do
    shift
    case $argument in
        -shared) link={shlex.quote(f"-Wl,--no-as-needed {_runtime_library()} -Wl,--as-needed")} ;;
        -march=native) argument={shlex.quote(f"-march={march}")} ;;
        c++-header) names={DEVICE_NAMES.name if names else ""} ;;
    esac
    set -- "$@" "$argument"
done
[ -z "$names" ] || set -- -include "${{0%/*}}/$names" "$@"
exec {shlex.quote(compiler())} "$@" "-ffile-prefix-map=${{TCBUILD_PREFIX:-/nowhere}}=." \\
    {" ".join(headers)} $link
"""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = folder / "toolchain" / digest / f"tcbuild-{kind}"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        for name, content, mode in ((DEVICE_NAMES.name, names, 0o644), (path.name, text, 0o755)):
            aside = path.with_name(f".{name}.{os.getpid()}")
            aside.write_text(content, encoding="utf-8")
            aside.chmod(mode)
            aside.replace(path.with_name(name))
    return path


def _reads_device_names() -> bool:
    """Return whether torch's headers use <regex> as device_names.hpp takes it, and in no other way."""
    runtime = Path(header_folders()[0]) / "torch" / "csrc" / "inductor" / "aoti_runtime"
    used = [
        line.strip()
        for path in sorted(runtime.glob("*.h"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"\b(regex|smatch|cmatch)", line)
    ]
    return used == list(_DEVICE_NAMES)


def header_folders() -> tuple[str, str]:
    """Return the folders with the headers of torch and of Python."""
    torch = importlib.util.find_spec("torch")
    assert torch is not None
    assert torch.origin is not None
    return str(Path(torch.origin).parent / "include"), sysconfig.get_path("include")


def _runtime_library() -> str:
    """Return the C++ runtime library to link: by the path of the one that torch has loaded.

    `-lstdc++` finds another one where the compiler brings a static library.
    """
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    except OSError:
        return "-lstdc++"
    paths = (line.split()[-1] for line in maps.splitlines() if "/libstdc++.so" in line)
    return next((path for path in paths if " " not in path and Path(path).exists()), "-lstdc++")


@contextmanager
def prefix(folder: Path) -> Iterator[None]:
    """Have the driver leave the path of `folder` out of what it writes, within the block."""
    before = os.environ.get("TCBUILD_PREFIX")
    os.environ["TCBUILD_PREFIX"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["TCBUILD_PREFIX"]
        else:
            os.environ["TCBUILD_PREFIX"] = before
