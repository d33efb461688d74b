"""What the tests share: a cache of their own, the command line, and one artifact that is built once."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from tcbuild.formats import Artifact, Content, Manifest, write

ROOT = Path(__file__).parent.parent

TINY_MODEL = '''
"""One linear layer and a GELU."""

import torch
from torch import Tensor, nn


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.gelu(self.linear(x))


def build() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Tiny().eval()


def example_inputs(batch: int) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    return (torch.randn(batch, 4, generator=torch.Generator().manual_seed(1)),), {}
'''

TINY_SPEC = """
[model]
source = "model:build"
inputs = "model:example_inputs"
name = "tiny"

[dims.batch]
policy = "dynamic"
min = 2
max = 64
tune = 8

[shapes]
x = ["batch", "_"]
"""


def python_path(*folders: Path) -> str:
    """Return PYTHONPATH with more folders in front."""
    return os.pathsep.join(filter(None, [*map(str, folders), os.environ.get("PYTHONPATH")]))


class CommandLine(Protocol):
    """Runs `tcbuild ARGUMENTS` in a process of its own, with more environment variables."""

    def __call__(
        self, *arguments: str | Path, cwd: Path | None = None, **environment: str
    ) -> "subprocess.CompletedProcess[str]": ...


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none."""
    import torch

    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no GPU that torch can use"))


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that the processes of this session have in common."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@contextmanager
def one_at_a_time(path: Path) -> Iterator[bool]:
    """Let one process at a time make a file; give whether it is not there yet."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield not path.exists()


@pytest.fixture(scope="session", autouse=True)
def cache_folder(shared_folder: Path) -> Iterator[Path]:
    """Give this session and the processes it starts a job cache of their own."""
    folder = shared_folder / "cache"
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TCBUILD_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="session")
def tcbuild() -> CommandLine:
    """Return a function that runs the command line."""

    def run(
        *arguments: str | Path, cwd: Path | None = None, **environment: str
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "tcbuild.aot.cli", *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": python_path(ROOT / "src"), **environment},
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def tiny_spec_dir(shared_folder: Path) -> Path:
    """Return a folder with the tcbuild.toml and model.py of a tiny model: read it, change a copy."""
    folder = shared_folder / "tiny"
    with one_at_a_time(folder) as first:
        if first:
            folder.mkdir()
            (folder / "model.py").write_text(TINY_MODEL, encoding="utf-8")
            (folder / "tcbuild.toml").write_text(TINY_SPEC, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def tiny_artifact(tiny_spec_dir: Path, tcbuild: CommandLine) -> Path:
    """Return the tiny model's artifact, built once in a session; `tiny.json` beside it is the report."""
    path = tiny_spec_dir / "tiny.tcb"
    report = tiny_spec_dir / "tiny.json"
    with one_at_a_time(path) as first:
        if first:
            done = tcbuild("build", tiny_spec_dir / "tcbuild.toml", "-o", path, "--report", report)
            assert done.returncode == 0, done.stderr
    return path


class Rewrite(Protocol):
    """Writes an artifact again, valid, with another manifest or other bytes; returns the new path."""

    def __call__(
        self,
        path: Path,
        change: Callable[[Manifest], Manifest] = ...,
        sections: dict[str, bytes] | None = None,
    ) -> Path: ...


@pytest.fixture
def rewrite(tmp_path: Path) -> Rewrite:
    """Return a function that writes an artifact again."""

    def run(
        path: Path,
        change: Callable[[Manifest], Manifest] = lambda manifest: manifest,
        sections: dict[str, bytes] | None = None,
    ) -> Path:
        out = tmp_path / "rewritten.tcb"
        with Artifact(path) as artifact:
            contents = [
                Content(
                    name=section.name,
                    parts=[(sections or {}).get(section.name, bytes(artifact.read(section.name)))],
                    encoding=section.encoding,
                )
                for section in artifact.manifest.sections
            ]
            write(out, change(artifact.manifest), contents)
        return out

    return run


def built(name: str, folder: Path) -> Path:
    """Build one of the specs of models.py, once in a session."""
    from tcbuild import aot

    from . import models

    path = folder / f"{name}.tcb"
    with one_at_a_time(path) as first:
        if first:
            aot.build(getattr(models, name.upper()), path)
    return path


@pytest.fixture(scope="session")
def net_artifact(shared_folder: Path) -> Path:
    """Return the artifact of models.NET: 3 rows of 1 to 16 words."""
    return built("net", shared_folder)


@pytest.fixture(scope="session")
def conv_artifact(shared_folder: Path) -> Path:
    """Return the artifact of models.CONV: channels last, all sizes fixed."""
    return built("conv", shared_folder)


@pytest.fixture(scope="session")
def cast_artifact(shared_folder: Path) -> Path:
    """Return the artifact of models.CAST: a region in bfloat16, all sizes fixed."""
    return built("cast", shared_folder)


@pytest.fixture(scope="session")
def fours_artifact(shared_folder: Path) -> Path:
    """Return the artifact of models.FOURS: 2 to 63 rows, where 4 divides their number."""
    return built("fours", shared_folder)
