"""The same spec gives the same digests and the same bytes, wherever and however often it is built."""

import os
import subprocess
import sys
from pathlib import Path
from shutil import copytree, ignore_patterns

from ..conftest import ROOT, CommandLine

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
    out = tmp_path / "out.tcb"
    done = tcbuild(
        *("build", spec / "tcbuild.toml", "-o", out),
        TCBUILD_CACHE=str(tmp_path / "cache"),
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "inductor"),
        TMPDIR=str(tmp_path / "tmp"),
        PYTHONHASHSEED="7",
    )
    assert done.returncode == 0, done.stderr
    assert "(cached)" not in done.stderr
    assert out.read_bytes() == tiny_artifact.read_bytes()
    left = os.listdir(tmp_path / "tmp")
    assert [name for name in left if name.startswith("tcbuild")] == []
