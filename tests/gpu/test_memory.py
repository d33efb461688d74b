"""Device memory: one copy of the weights, whatever the number of buckets."""

import pytest
import torch
from torch import nn

from tcbuild import runtime

from . import models
from .conftest import BATCH, Build

pytestmark = pytest.mark.gpu


def test_buckets_share_the_weights(build: Build) -> None:
    wide = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(8))).eval()
    weights = sum(tensor.nbytes for tensor in wide.state_dict().values())
    path = build(
        wide,
        models.drawn(8, 2048, device="cpu"),
        name="wide",
        dynamic_shapes=({0: BATCH},),
        buckets={"batch": (4, 8, 16)},
        verify=False,
    )
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    model = runtime.load(path, on_miss="raise")
    assert torch.cuda.max_memory_allocated() - before <= 1.1 * weights
    for rows in (4, 8, 16):
        x = models.drawn(rows, 2048)
        assert model(x).shape == (rows, 2048)
    assert torch.cuda.memory_allocated() - before <= 1.1 * weights
