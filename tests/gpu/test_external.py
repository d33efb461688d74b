"""Weights in a file of their own: from the mapped file to the device, and no copy of all of them on the host."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from tcbuild import runtime

from ..conftest import ROOT, python_path
from . import models
from .conftest import BATCH, Build

pytestmark = pytest.mark.gpu

SIZES = (4, 8, 16)
WIDTH, LAYERS = 2048, 16  # 16 MiB a layer

# The most memory that the process had, in bytes, before and after it loads the large artifact. What torch and CUDA
# need is there by then, through the small one.
HOST = """
import resource, sys
import torch
from tcbuild import runtime

def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

small = runtime.load(sys.argv[1], on_miss="raise")
small.warmup()
try:  # from here on the most is counted anew, where the system can
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
except OSError:
    pass
before = most()
model = runtime.load(sys.argv[2], on_miss="raise")
torch.cuda.synchronize()
print(most() - before)
"""


def wide() -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))).eval()


@pytest.fixture(scope="module")
def wide_artifact(build: Build) -> Path:
    """Return an artifact of three buckets, with its weights beside it."""
    return build(
        wide(),
        models.drawn(8, WIDTH, device="cpu"),
        name="external",
        dynamic_shapes=({0: BATCH},),
        buckets={"batch": SIZES},
        weights="external",
    )


def test_buckets_share_the_weights(wide_artifact: Path) -> None:
    eager = wide()
    weights = sum(tensor.nbytes for tensor in eager.state_dict().values())
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    model = runtime.load(wide_artifact, on_miss="raise")
    assert torch.cuda.max_memory_allocated() - before <= 1.1 * weights
    made = {rows: model(models.drawn(rows, WIDTH)).cpu() for rows in SIZES}
    assert torch.cuda.memory_allocated() - before <= 1.1 * weights
    eager.cuda()
    for rows, answer in made.items():
        expected = eager(models.drawn(rows, WIDTH)).cpu()
        torch.testing.assert_close(answer, expected, rtol=1e-3, atol=1e-4)


def test_the_host_holds_no_copy_of_all(wide_artifact: Path, mlp_artifact: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HOST, str(mlp_artifact), str(wide_artifact)],
        env={**os.environ, "PYTHONPATH": python_path(ROOT / "src", ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    file = wide_artifact.with_name("external.weights.safetensors")
    assert int(done.stdout) < file.stat().st_size / 2, done.stdout
