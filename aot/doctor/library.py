"""The link fault: a library that links, and crashes the process that loads it.

Linked without libstdc++ by name, a library binds C++ runtime symbols elsewhere, such as in another
library of the process that holds an older copy, and crashes when its container is made.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ..errors import CompileError
from . import process
from .finding import Check, Finding, brief, ok, problem

ELSEWHERE: Final = "the library binds C++ runtime symbols elsewhere"

_RUNTIME: Final = "libstdc++.so.6"
_CURE: Final = (
    "export CXX=/usr/bin/g++, the system's own compiler without a wrapper, after "
    "apt-get install --reinstall g++ libstdc++6 (dnf reinstall gcc-c++ libstdc++); "
    "and unset LD_PRELOAD and LD_LIBRARY_PATH"
)
# Of ten lines there is no second compilation that precompiled headers would help.
_EXTRA: Final = {"aot_inductor.precompile_headers": False}
# Run in a fresh process with the path of the library and the device.
_ANSWER: Final = """\
import sys
import torch
from tcbuild.runtime import devices
from tcbuild.runtime.aoti import Library
path, device = sys.argv[1], devices.indexed(sys.argv[2])
(made,) = Library(path, device).run([torch.tensor([1.0, 2.0], device=device)])
if made.tolist() != [3.0, 5.0]: sys.exit(f"a wrong answer: {made.tolist()}, not [3.0, 5.0]")
"""


def checks(device: str, folder: Path, needs: tuple[str, ...]) -> Iterator[Check]:
    """Yield the checks of a library for a device.

    Args:
        device: "cpu" or "cuda".
        folder: to work in.
        needs: what the device asks for beyond what every library needs.
    """
    made = folder / device / "model.so"
    name = f"{device} library"
    needs = ("torch", "packages", "shared library", "OpenMP", *needs)
    yield Check(name=name, run=lambda: build(device, made), needs=needs)
    yield Check(name=f"{name} links", run=lambda: links(made), needs=(name,))
    yield Check(name=f"{name} runs", run=lambda: runs(device, made), needs=(name,))


def build(device: str, path: Path) -> Finding:
    """Compile x * 2 + 1 for a device as a build does, with our compiler driver.

    Raises:
        ToolError: there is no compiler.
    """
    import torch

    from .. import inductor
    from ..targets import resolve

    class Tiny(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x * 2 + 1

    work = path.parent / "work"
    work.mkdir(parents=True)
    inputs = (torch.ones(2, device=device),)
    graph = torch.export.export(Tiny(), inputs).graph_module
    target, where = resolve(device), "x * 2 + 1"
    try:
        made = inductor.compile_graph(graph, inputs, target, work, path.parent, _EXTRA, where)
    except CompileError as error:
        cure = f"if all above is ok, report this line: torch {torch.__version__} is meant to compile it"
        return problem(brief(error.found), expected=error.expected, cure=cure)
    path.write_bytes(made.files["model.so"])
    path.chmod(0o755)
    return ok(f"x * 2 + 1 is compiled, {path.stat().st_size / 1e3:.0f} kB")


def links(path: Path) -> Finding:
    """Say whether a library names the C++ runtime among those that it needs, so far as readelf tells."""
    readelf = shutil.which("readelf")
    done = process.run([readelf, "-d", path]) if readelf else None
    if done is None or done.failure:
        return ok(
            f"not read: {done.failure if done else 'no readelf'}; whether it runs says enough"
        )
    needed = re.findall(r"\(NEEDED\)[^\[\n]*\[([^\]\n]+)\]", done.output)
    if _RUNTIME in needed or any(name.startswith("libc++.so") for name in needed):
        return ok(", ".join(needed))
    found = f"{', '.join(needed) or 'nothing'}: {ELSEWHERE}"
    return problem(found, expected=f"{_RUNTIME} among the NEEDED entries", cure=_CURE)


def runs(device: str, path: Path) -> Finding:
    """Load a library with the runtime, in a fresh process, and hold its answer against [3, 5]."""
    done = process.python(_ANSWER, path, device)
    if not done.failure:
        return ok("loads and answers in a fresh process")
    crash = f" when it is loaded: {ELSEWHERE}, or is not sound" if done.signal else ""
    return problem(done.failure + crash, expected="an answer in a fresh process", cure=_CURE)
