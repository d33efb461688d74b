"""Memory that is freed is kept, unless the caller or the environment says otherwise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..conftest import ROOT

# Prints the page faults of a large block that is taken and freed again and again.
FAULTS = """
import resource, sys, torch
from tcbuild.runtime import load
load(sys.argv[1], keep_freed=sys.argv[2] == "keep")
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        torch.ones(48 << 18)  # 48 MiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""
PAGES = 48 << 8


@pytest.mark.parametrize(
    ("how", "environment", "kept"),
    [
        ("keep", {}, True),
        ("leave", {}, False),
        ("keep", {"MALLOC_TRIM_THRESHOLD_": "1000000"}, False),
        ("keep", {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=1000000"}, False),
    ],
)
def test_freed_memory(
    tiny_artifact: Path, how: str, environment: dict[str, str], kept: bool
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, str(tiny_artifact), how],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    faults = int(done.stdout)
    assert faults < PAGES / 4 if kept else faults > 2 * PAGES
