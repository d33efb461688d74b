"""The conformance cases, each built for the GPU and played there in a process of its own."""

import os
import subprocess
import sys

import pytest

from ..conformance.test_cases import CASES
from ..conftest import ROOT, python_path

JOBS = 8


@pytest.mark.gpu
def test_all_cases() -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.conformance", "--cases", str(CASES[0].parent)),
            *("--device", "cuda", "--jobs", str(JOBS)),
        ],
        env={**os.environ, "PYTHONPATH": python_path(ROOT / "src")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-20_000:]}"
    print(done.stdout)
    assert done.stdout.splitlines()[-1].startswith(f"{len(CASES)} passed, 0 failed")
