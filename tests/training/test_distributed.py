"""An attached module inside DistributedDataParallel and FSDP2, over gloo, in two processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch import distributed

from ..conftest import ROOT, python_path

pytestmark = pytest.mark.skipif(
    not distributed.is_available() or not distributed.is_gloo_available(), reason="no gloo"
)

RANK = """
import copy
import sys

import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from tcbuild import runtime
from tests.training import models

kind, rank, folder, artifact = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
eager, attached = (models.seeded(models.Mlp).train() for _ in range(2))
dispatcher = runtime.attach(attached, artifact, on_miss="raise")


def wrapped(module):
    if kind == "ddp":
        return DistributedDataParallel(module)
    return fully_shard(module, mesh=init_device_mesh("cpu", (2,)))


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


pair = [wrapped(module) for module in (eager, attached)]
for module in pair:
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for seed in range(3):
        optimizer.zero_grad()
        module(models.drawn(4, 16, seed=10 * seed + rank)).square().mean().backward()
        optimizer.step()
for one, other in zip(*(module.parameters() for module in pair)):
    torch.testing.assert_close(whole(one), whole(other), rtol=1e-4, atol=1e-5)
stats = dispatcher.stats()
assert stats.calls == 3 and stats.fallback_share == 0, stats
print("ok")
distributed.destroy_process_group()
"""


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_two_ranks(kind: str, mlp_artifact: Path, tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, kind, str(rank), str(tmp_path), str(mlp_artifact)],
            env={**os.environ, "PYTHONPATH": python_path(ROOT / "src", ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for rank in ranks:
        said, wrong = rank.communicate(timeout=120)
        assert rank.returncode == 0, wrong
        assert said.strip() == "ok"
