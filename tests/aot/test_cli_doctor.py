"""`tcbuild doctor`: what it finds in an environment that lacks something, and in a whole one."""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tcbuild.aot import inductor, toolchain
from tcbuild.aot.doctor import NOTE, OK, PROBLEM, Check, Finding, compiler, cuda, folders, library
from tcbuild.aot.doctor import packages as versions
from tcbuild.aot.doctor.examine import perform
from tcbuild.formats import gpu

from ..conftest import ROOT, CommandLine

COMPILES_ONLY = '#!/bin/sh\n[ "$1" = --version ] && { echo broken 1.0; exit; }\n'
# Links, in place of a library of torch's, one that crashes at load and names no C++ runtime.
CRASHES = """#!/bin/sh
for argument in "$@"; do [ "$last" = -o ] && out=$argument; last=$argument; done
case "$*" in
  *-ltorch*-shared*|*-shared*-ltorch*) exec gcc -shared -fPIC {source} -o "$out" ;;
  *" -I"*"/torch/include "*) exec touch "$out" ;;
  *) exec g++ "$@" ;;
esac
"""


@pytest.fixture
def cxx(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Return a function that makes a script this process's compiler."""
    known = (toolchain.compiler, toolchain.version)

    def use(text: str) -> None:
        script = tmp_path / "g++"
        script.write_text(text, encoding="utf-8")
        script.chmod(0o755)
        monkeypatch.setenv("CXX", str(script))

    inductor.vector_flags()  # torch asks a compiler once in a process: not this one
    for function in known:
        function.cache_clear()
    yield use
    for function in known:
        function.cache_clear()


def found(checks: Iterable[Check]) -> dict[str, Finding]:
    """Run checks; return what each found."""
    return dict(perform(checks))


def rows(report: Path) -> dict[str, Any]:
    """Return the rows of a report by the name of the check."""
    made = json.loads(report.read_text(encoding="utf-8"))
    return {row["check"]: row for row in made["result"]["checks"]}


def test_a_whole_environment(tcbuild: CommandLine, tmp_path: Path) -> None:
    report = tmp_path / "doctor.json"
    done = tcbuild("doctor", "--target", "cpu", "--json", report)
    assert done.returncode == 0, done.stdout
    found = rows(report)
    assert {row["status"] for row in found.values()} <= {OK, NOTE}
    lines = [line for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert [line[9:].partition(": ")[0] for line in lines] == list(found)
    assert "libstdc++.so.6" in found["cpu library links"]["found"]
    assert found["cpu library runs"]["status"] == OK
    assert "GPU" not in found


def test_all_faults_are_told_and_the_exit_code_is_26(tcbuild: CommandLine, tmp_path: Path) -> None:
    report = tmp_path / "doctor.json"
    done = tcbuild(
        *("doctor", "--target", "cuda", "--report", report),
        CXX="/nonexistent",
        TCBUILD_CACHE="/proc/none",
        TMPDIR="/proc/none",
        CUDA_VISIBLE_DEVICES="",
    )
    assert done.returncode == 26, done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stderr.splitlines()[-2].startswith("error: doctor: the build environment is inc")
    found = rows(report)
    assert found["compiler"]["status"] == found["cache folder"]["status"] == PROBLEM
    assert "/nonexistent" in found["compiler"]["found"]
    assert "apt-get install g++" in found["compiler"]["cure"]
    assert "TCBUILD_CACHE" in found["cache folder"]["cure"]
    assert "TMPDIR=/proc/none cannot be written to" in found["temporary files"]["found"]
    assert found["cpu library runs"]["found"] == "not checked"
    assert PROBLEM in {found[name]["status"] for name in ("CUDA in torch", "GPU")}
    bad = [row for row in found.values() if row["status"] != OK]
    assert [row for row in bad if not (row["cure"] and row["expected"])] == []
    assert all(f"cure: {row['cure']}\n" in done.stdout for row in bad)
    written = json.loads(report.read_text(encoding="utf-8"))
    assert (written["exit_code"], written["error"]["class"]) == (26, "ToolError")


@pytest.mark.usefixtures("cxx")
def test_no_compiler_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    seen = found(compiler.checks(tmp_path))
    assert seen["compiler"].status == PROBLEM
    assert "no g++ or clang++ on PATH" in seen["compiler"].found
    assert seen["C++17 program"].found == seen["OpenMP"].found == "not checked"


@pytest.mark.parametrize(
    ("rest", "says"),
    [
        (
            "echo first; echo no space left >&2; exit 1",
            "compile failed: exit code 1: first | no sp",
        ),
        (
            'case "$*" in *" -c "*) exec g++ "$@";; esac; echo no crt1.o; exit 3',
            "link failed: exit",
        ),
        ("kill -9 $$", "compile failed: signal 9 (SIGKILL)"),
        (
            'case "$*" in *" -c "*) exec g++ "$@";; esac; for out; do :; done; '
            """printf '#!/bin/sh\\nkill -11 $$\\n' > "$out"; chmod +x "$out\"""",
            "run failed: signal 11 (SIGSEGV)",
        ),
    ],
)
def test_the_step_that_fails_is_named(cxx: Any, tmp_path: Path, rest: str, says: str) -> None:
    cxx(f"{COMPILES_ONLY}{rest}\n")
    seen = found(compiler.checks(tmp_path))
    assert seen["compiler"].found.startswith("broken 1.0 at ")
    assert seen["C++17 program"].status == PROBLEM
    assert seen["C++17 program"].found.startswith(says)
    assert seen["C++17 program"].cure
    assert seen["shared library"].found == "not checked"


def test_no_openmp(cxx: Any, tmp_path: Path) -> None:
    cxx('#!/bin/sh\ncase "$*" in *-fopenmp*) echo no omp.h; exit 1;; esac; exec g++ "$@"\n')
    names = ("compiler", "C++17 program", "OpenMP")
    seen = found(check for check in compiler.checks(tmp_path) if check.name in names)
    assert [seen[name].status for name in names] == [OK, OK, PROBLEM]
    assert seen["OpenMP"].found == "compile with -fopenmp failed: exit code 1: no omp.h"
    assert "libgomp1" in seen["OpenMP"].cure


def test_a_library_that_crashes_at_load(cxx: Any, tmp_path: Path) -> None:
    source = tmp_path / "crash.c"
    source.write_text("__attribute__((constructor)) void f(void) { *(volatile int *)0 = 1; }\n")
    cxx(CRASHES.format(source=source))
    seen = found(library.checks("cpu", tmp_path, needs=()))
    assert seen["cpu library"].status == OK, seen
    assert seen["cpu library links"].status == seen["cpu library runs"].status == PROBLEM
    assert library.ELSEWHERE in seen["cpu library links"].found
    assert "libstdc++.so.6" in seen["cpu library links"].expected
    assert seen["cpu library runs"].found.startswith("signal 11 (SIGSEGV) when it is loaded: ")
    assert "export CXX=" in seen["cpu library runs"].cure


def test_a_compiler_that_does_not_know_torch(cxx: Any, tmp_path: Path) -> None:
    cxx(
        '#!/bin/sh\ncase "$*" in *" -I"*"/torch/include "*) echo no ATen; exit 1;; esac; exec g++ "$@"\n'
    )
    seen = found(library.checks("cpu", tmp_path, needs=()))
    assert seen["cpu library"].status == PROBLEM
    assert "\n" not in seen["cpu library"].found
    assert "no ATen" in seen["cpu library"].found
    assert seen["cpu library runs"].status == NOTE


@pytest.mark.parametrize("place", ["/proc/none", "file/cache"])
def test_a_cache_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TCBUILD_CACHE", str(tmp_path / place))
    seen = folders.cache()
    assert seen.status == PROBLEM
    assert str(tmp_path / place) in seen.found
    assert "TCBUILD_CACHE" in seen.cure


def test_little_space_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "ROOM", 2**80)
    assert (folders.cache().status, folders.temporary().status) == (NOTE, NOTE)


def test_a_cache_from_which_nothing_loads(tmp_path: Path) -> None:
    (tmp_path / "tiny.so").write_bytes(b"no library")
    seen = folders.loading(tmp_path / "tiny.so", tmp_path)
    assert seen.status == PROBLEM
    assert "noexec" in seen.cure
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.so"]


def test_no_headers_are_a_note(tmp_path: Path) -> None:
    seen = compiler.headers(tmp_path)
    assert (seen.status, "python3-dev" in seen.cure) == (NOTE, True)


def test_what_a_check_raises_is_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    def surprise() -> Finding:
        print("aside")
        raise ZeroDivisionError("surprise\nof two lines")

    seen = found([Check(name="it", run=surprise), Check(name="next", run=surprise, needs=("it",))])
    assert (seen["it"].status, seen["next"].status) == (PROBLEM, NOTE)
    assert seen["it"].found == "ZeroDivisionError: surprise | of two lines"
    assert capsys.readouterr().out == ""


def test_the_versions_are_those_of_the_package() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'"torch{versions.RANGE}"' in text
    assert 'requires-python = ">={}.{}"'.format(*versions.PYTHON) in text
    named = set(re.findall(r'"([a-z]+)[>=]', text))
    assert set(versions.PACKAGES) <= named


def test_another_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("__version__ = '2.10.1+cpu'\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen = versions.torch()
    assert (seen.status, seen.found) == (PROBLEM, "2.10.1+cpu")
    assert seen.cure == f"{sys.executable} -m pip install 'torch>=2.11,<2.15'"
    (tmp_path / "torch.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)\n")
    assert versions.torch().found == "import torch: signal 11 (SIGSEGV)"


def test_torch_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    seen = cuda.built()
    assert (seen.status, "--index-url" in seen.cure) == (PROBLEM, True)


@pytest.mark.parametrize(
    ("version", "status"),
    [((0, 0), PROBLEM), ((12, 8), PROBLEM), ((13, 0), NOTE), ((13, 1), OK), ((14, 0), OK)],
)
def test_driver(monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], status: str) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.1")
    monkeypatch.setattr(gpu, "driver_version", lambda: version)
    seen = cuda.driver()
    assert seen.status == status
    assert ("13.1" in seen.expected) is (status != OK)


def test_ptxas(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "ptxas"
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(script))
    assert cuda.ptxas().found == f"{script}: No such file or directory"
    script.write_text("#!/bin/sh\necho ptxas: a tool\necho release 13.0\n")
    script.chmod(0o755)
    assert cuda.ptxas().found == f"release 13.0 at {script}"


def test_cuda_headers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert cuda.headers(cuda.header_folders()[:1]).status == PROBLEM
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "cuda.h").touch()
    assert cuda.headers(cuda.header_folders()).found == str(tmp_path / "include" / "cuda.h")


@pytest.mark.gpu
def test_a_whole_environment_with_a_gpu(tcbuild: CommandLine) -> None:
    done = tcbuild("doctor", "--target", "cuda")
    assert done.returncode == 0, done.stdout
    assert "ok       cuda library runs: " in done.stdout
