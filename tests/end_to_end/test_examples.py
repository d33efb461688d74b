"""The examples do what their README says, by the very commands that stand there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tcbuild.formats import Artifact

from ..conftest import ROOT

EXAMPLES = sorted(path.parent.name for path in (ROOT / "examples").glob("*/README.md"))
SERVING = [name for name in EXAMPLES if (ROOT / "examples" / name / "serve.py").exists()]


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Return a PATH where `python` is this one and `tcbuild` the command line."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, command in (("python", ""), ("tcbuild", "-m tcbuild.aot.cli")):
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {command} "$@"\n')
        (folder / name).chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def commands(readme: Path) -> str:
    """Return the shell commands of a README."""
    return "\n".join(
        re.findall(r"^```sh\n(.*?)^```", readme.read_text(encoding="utf-8"), re.M | re.S)
    )


def ran(name: str, path: str, tmp_path: Path) -> "subprocess.CompletedProcess[str]":
    """Run the commands of an example's README in a copy of it."""
    folder = shutil.copytree(ROOT / "examples" / name, tmp_path / "examples" / name)
    done = subprocess.run(
        ["sh", "-e", "-c", commands(folder / "README.md")],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_training(path: str, tmp_path: Path) -> None:
    done = ran("train_lm", path, tmp_path)
    assert "200 calls, 0.0% missed" in done.stdout
    losses = [float(loss) for loss in re.findall(r"^step +\d+  loss ([0-9.]+)", done.stdout, re.M)]
    assert len(losses) == 5
    assert losses[0] > 5.5 > 4 > losses[-1]


def test_decoding(path: str, tmp_path: Path) -> None:
    done = ran("decoder", path, tmp_path)
    assert "answered by prefill:prompt=32@" in done.stdout
    assert "answered by prefill:prompt=128@" in done.stdout
    assert "no variant accepts this call" in done.stdout
    assert done.stdout.count("... as eager's") == 4
    assert "96 calls, 1.0% missed" in done.stdout
    assert "hit decode:static@" in done.stdout
    assert "miss prefill: dims.prompt: 1" in done.stdout
    (line,) = re.findall(r"WARNING tcbuild.runtime: (.*)", done.stderr)
    assert line.startswith("decoder.prefill: miss, served by fallback module: dims.prompt: ")


@pytest.mark.parametrize("name", SERVING)
def test_example(name: str, path: str, tmp_path: Path) -> None:
    done = ran(name, path, tmp_path)
    (artifact,) = (tmp_path / "examples" / name).glob("*.tcb")
    with Artifact(artifact) as opened:
        opened.check()
        variants = [v.id for v in opened.manifest.variants if v.form == "library"]
    for variant in variants:
        assert f"answered by {variant}" in done.stdout
    assert "no variant accepts this call" in done.stdout
    assert "15 calls, 20.0% missed" in done.stdout
    assert "  served by fallback module: 3" in done.stdout
    assert "WARNING tcbuild.runtime: " in done.stderr


@pytest.mark.parametrize("name", EXAMPLES)
def test_files_of_an_example(name: str) -> None:
    folder = ROOT / "examples" / name
    readme = (folder / "README.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `([^`]+)` \|", readme, re.M))
    assert listed == {p.name for p in folder.iterdir() if p.is_file()} - {"README.md"}
