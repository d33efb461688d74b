"""The same spec gives the same digests and the same bytes, wherever and however often it is built."""

import os
import subprocess
import sys
from pathlib import Path
from shutil import copytree, ignore_patterns

import torch

from tcbuild.formats import Artifact

from ..conftest import ROOT, CommandLine, python_path

FINGERPRINT = """
from tcbuild.aot import capture, fingerprint, partition, sizes
from tcbuild.aot.plan import Plan
from tests import models

for spec in (models.NET, models.FOURS, models.CAST):
    module = spec.model()
    for job in Plan.of(spec).jobs:
        captured = capture.capture(spec, module, job.bucket, job.id)
        names = sizes.Names.of(captured, job.id)
        made = partition.partition(captured, names, job.id)
        print(fingerprint.fingerprint(made.graph, captured.tensors, made.names, {}, {}))
"""


def test_fingerprints_do_not_depend_on_the_process() -> None:
    def run(seed: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", FINGERPRINT],
            env={
                **os.environ,
                "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
                "PYTHONHASHSEED": seed,
            },
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    first, second = run("1"), run("2")
    assert first == second
    assert len(set(first)) == 4


def test_bytes_do_not_depend_on_folders_caches_and_hash_seeds(
    tcbuild: CommandLine, tiny_artifact: Path, tiny_spec_dir: Path, tmp_path: Path
) -> None:
    spec = copytree(tiny_spec_dir, tmp_path / "elsewhere", ignore=ignore_patterns("*.tcb", "__*"))
    (tmp_path / "tmp").mkdir()
    # Another virtual environment: torch has another path, which its headers put into assertions.
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "torch").symlink_to(Path(torch.__file__).parent)
    out = tmp_path / "out.tcb"
    done = tcbuild(
        *("build", spec / "tcbuild.toml", "-o", out),
        TCBUILD_CACHE=str(tmp_path / "cache"),
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "inductor"),
        TMPDIR=str(tmp_path / "tmp"),
        PYTHONHASHSEED="7",
        PYTHONPATH=python_path(packages, ROOT / "src"),
    )
    assert done.returncode == 0, done.stderr
    assert "(cached)" not in done.stderr
    assert out.read_bytes() == tiny_artifact.read_bytes()
    with Artifact(out) as artifact:
        for section in artifact.manifest.sections:
            assert b"packages/torch" not in artifact.read(section.name)
    left = os.listdir(tmp_path / "tmp")
    assert [name for name in left if name.startswith("tcbuild")] == []
