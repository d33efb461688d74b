"""A build that is killed, or meets a full disk: nothing half-made, and what was finished is kept."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tcbuild.aot.errors import OutputError
from tcbuild.aot.package import aside
from tcbuild.formats import Artifact

from ..conftest import ROOT

# Two jobs whose libraries are made up, so that no time goes into compiling them. It stops in the second
# compilation, or once the artifact is written and has not got its name yet.
BUILD = """
import os, sys, time
from dataclasses import replace
from tcbuild import aot
from tcbuild.aot import compile as stage
from tcbuild.aot.dims import Specialize
from tcbuild.aot.inductor import LibraryFiles
from tests.models import FOURS

out, stop, weights = sys.argv[1:]

def hang():
    print("stopped", flush=True)
    time.sleep(600)

def compile_graph(*arguments, rewrite):
    where = arguments[-1]
    print(where.partition("@")[0], flush=True)
    if stop == "compile" and where.startswith("n=16"):
        hang()
    return LibraryFiles(files={"model.so": where.encode()}, constants=("c0",))

stage.inductor.compile_graph = compile_graph
if stop == "package":
    os.fsync = lambda descriptor: hang()
spec = replace(FOURS, dims={"n": Specialize(values=(8, 16))}, verify=False, weights=weights)
aot.build(spec, out)
"""


def run(out: Path, stop: str = "", weights: str = "embedded") -> list[str]:
    """Build, and kill the process where it stops, if it does; return the jobs that it compiled."""
    (out.parent / "tmp").mkdir(exist_ok=True)
    compiled = []
    with subprocess.Popen(
        [sys.executable, "-c", BUILD, str(out), stop, weights],
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
            "TCBUILD_CACHE": str(out.parent / "cache"),
            "TMPDIR": str(out.parent / "tmp"),
            "TCBUILD_PROCESSORS": "1",  # it compiles itself
        },
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line == "stopped\n":
                process.kill()
            else:
                compiled.append(line.strip())
    assert process.returncode == (-signal.SIGKILL if stop else 0)
    return compiled


def beside(out: Path) -> list[str]:
    """Return the names of what lies beside an artifact, other than the folders of `run`."""
    return sorted(set(os.listdir(out.parent)) - {"cache", "tmp"})


def test_killed_builds_leave_no_artifact_and_keep_what_was_finished(tmp_path: Path) -> None:
    out = tmp_path / "out.tcb"
    assert run(out, "compile") == ["n=8", "n=16"]
    assert beside(out) == []
    out.write_text("the old one", encoding="utf-8")
    assert run(out, "package") == ["n=16"]  # the first job was kept
    assert out.read_text(encoding="utf-8") == "the old one"
    assert len(beside(out)) == 2  # what was written lies under another name
    assert run(out) == []
    assert beside(out) == ["out.tcb"]  # and was removed
    with Artifact(out) as artifact:
        artifact.check()
    # Weights in a file of their own get their name with the artifact.
    out, file = tmp_path / "two.tcb", tmp_path / "two.weights.safetensors"
    for old in (out, file):
        old.write_text("the old one", encoding="utf-8")
    run(out, "package", "external")
    assert [path.read_text(encoding="utf-8") for path in (out, file)] == ["the old one"] * 2
    assert len(beside(out)) == 5
    run(out, "", "external")
    assert beside(out) == ["out.tcb", out.name, file.name]
    with Artifact(out) as artifact:
        artifact.check()


@pytest.mark.parametrize("name", ["out.tcb", "out[1].tcb", "*.tcb"])
def test_only_what_dead_builds_of_this_artifact_left_is_removed(tmp_path: Path, name: str) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        dead = process.pid
        process.wait()
    keep = [f".{name}.{os.getpid()}.a.new", f".other{name}.{dead}.a.new", f".{name}.x.a.new"]
    for left in (*keep, f".{name}.{dead}.a.new"):
        (tmp_path / left).touch()
    with aside(tmp_path / name) as path:
        path.write_text("whole", encoding="utf-8")
        assert not (tmp_path / name).exists()
    assert (tmp_path / name).read_text(encoding="utf-8") == "whole"
    assert sorted(os.listdir(tmp_path)) == sorted([*keep, name])


def test_what_fails_leaves_the_old_artifact(tmp_path: Path) -> None:
    out = tmp_path / "out.tcb"
    out.write_text("the old one", encoding="utf-8")
    with pytest.raises(ZeroDivisionError), aside(out) as path:
        path.write_text(f"half {1 // 0}", encoding="utf-8")
    assert out.read_text(encoding="utf-8") == "the old one"
    assert os.listdir(tmp_path) == ["out.tcb"]


def test_an_error_of_the_system_elsewhere_is_not_about_the_output(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), aside(tmp_path / "out.tcb"):
        (tmp_path / "no" / "such").read_text(encoding="utf-8")


def test_an_output_that_is_a_folder(tmp_path: Path) -> None:
    out = tmp_path / "out.tcb"
    (out / "in").mkdir(parents=True)
    says = r"/out\.tcb: cannot be written: found Is a directory"
    with pytest.raises(OutputError, match=says), aside(out) as path:
        path.touch()
    assert os.listdir(tmp_path) == ["out.tcb"]
