"""The C++ compiler: does what it makes run?"""

import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .. import toolchain
from . import process
from .finding import Check, Finding, note, ok, problem

PROGRAM: Final = """\
#include <iostream>
#include <optional>
#include <string>

std::optional<std::string> word(bool given) {
  if (given) return "ready";
  return std::nullopt;
}

int main() {
  if (const auto found = word(true); found) std::cout << *found << std::endl;
}
"""

OPENMP: Final = """\
#include <omp.h>

int main() {
  int sum = 0;
#pragma omp parallel for reduction(+ : sum) num_threads(2)
  for (int i = 1; i <= 100; ++i) sum += i;
  return sum == 5050 && omp_get_max_threads() > 0 ? 0 : 1;
}
"""

LIBRARY: Final = """\
#include <string>

extern "C" int length(const char* text) { return std::string(text).size(); }
"""

TINY_LIBRARY: Final = "tiny.so"  # what the check of shared libraries leaves

_AGAIN: Final = (
    "apt-get install --reinstall g++, dnf reinstall gcc-c++, or set CXX to another compiler"
)
_CURES: Final = {
    "compile": _AGAIN,
    "link": "apt-get install g++ binutils libc6-dev, dnf install gcc-c++ binutils glibc-devel, "
    "or set CXX to another compiler",
    "run": "apt-get install --reinstall g++ libstdc++6; where the system forbids it to run, "
    "export TMPDIR=DIR, a folder that is not mounted noexec",
}


def checks(folder: Path) -> Iterator[Check]:
    """Yield the checks; they work in `folder`."""
    works = ("compiler", "temporary files")
    program, sound = "C++17 program", "shared library"
    yield Check(name="compiler", run=compiler)
    yield Check(name=program, run=lambda: cpp17(folder), needs=works)
    yield Check(name=sound, run=lambda: shared(folder), needs=(program,))
    yield Check(name="OpenMP", run=lambda: openmp(folder), needs=(program,))
    yield Check(name="vector instructions", run=vectors, needs=("torch", sound))
    yield Check(name="Python.h", run=lambda: headers(Path(sysconfig.get_path("include"))))


def compiler() -> Finding:
    """Say which compiler a build uses."""
    version = toolchain.version()
    return ok(f"{version} at {toolchain.compiler()}")


def cpp17(folder: Path) -> Finding:
    """Compile, link and run a program."""
    failure = _make(folder, "program", PROGRAM, [])
    if failure:
        step, said = failure
        expected = "a C++17 program that compiles, links and runs"
        return problem(f"{step} failed: {said}", expected=expected, cure=_CURES[step])
    return ok("compiles, links and runs")


def shared(folder: Path) -> Finding:
    """Link a shared library, and load it in a fresh process."""
    source, made = folder / "tiny.cpp", folder / TINY_LIBRARY
    source.write_text(LIBRARY, encoding="utf-8")
    flags = ["-std=c++17", "-shared", "-fPIC"]
    done = process.run([toolchain.compiler(), *flags, source, "-o", made])
    expected = "a shared library that links and loads"
    if done.failure:
        return problem(f"link failed: {done.failure}", expected=expected, cure=_CURES["link"])
    done = process.python("import ctypes, sys; ctypes.CDLL(sys.argv[1]).length(b'one')", made)
    if done.failure:
        return problem(f"load failed: {done.failure}", expected=expected, cure=_CURES["run"])
    return ok("links and loads")


def openmp(folder: Path) -> Finding:
    """Compile, link and run a program of two threads."""
    failure = _make(folder, "threads", OPENMP, ["-fopenmp"])
    if failure:
        step, said = failure
        return problem(
            f"{step} with -fopenmp failed: {said}",
            expected="a loop that runs on two threads",
            cure="apt-get install g++ libgomp1 (for clang++: libomp-dev), dnf install libgomp",
        )
    return ok("a loop runs on two threads")


def vectors() -> Finding:
    """Say which vector instructions compiled code will use."""
    from ..inductor import vector_flags

    flags = vector_flags().strip()
    if flags:
        return ok(flags)
    return note(
        "none",
        expected="AVX2, AVX512 or the like, which this compiler and processor both know",
        cure=f"code runs, slower; if the processor has them: {_AGAIN}",
    )


def headers(folder: Path) -> Finding:
    """Say whether Python's headers are in `folder`: torch.compile needs them, and the tensor check
    that a build compiles; a build without them leaves it out.
    """
    if (folder / "Python.h").is_file():
        return ok(folder / "Python.h")
    return note(
        f"none in {folder}",
        expected="the headers of this Python: without them, calls of many tensors are slower",
        cure="apt-get install python3-dev, or dnf install python3-devel",
    )


def _make(folder: Path, name: str, source: str, flags: list[str]) -> tuple[str, str] | None:
    """Make a program and run it; return the step that failed and what was said, or None."""
    text, unit, program = folder / f"{name}.cpp", folder / f"{name}.o", folder / name
    text.write_text(source, encoding="utf-8")
    steps: dict[str, list[str | Path]] = {
        "compile": [toolchain.compiler(), "-std=c++17", *flags, "-c", text, "-o", unit],
        "link": [toolchain.compiler(), *flags, unit, "-o", program],
        "run": [program],
    }
    for step, command in steps.items():
        done = process.run(command)
        if done.failure:
            return step, done.failure
    return None
