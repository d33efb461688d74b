"""A default device that is where the artifact is loaded asks for nothing else; another one does."""

from pathlib import Path

import pytest
import torch

from tcbuild import runtime
from tcbuild.runtime import devices, replay

from . import models

pytestmark = pytest.mark.gpu


def test_the_device_of_the_artifact_as_default_is_served(mlp_artifact: Path) -> None:
    model = runtime.load(mlp_artifact, on_miss="raise")
    x = models.drawn(8, models.WIDTH)
    expected = model(x)
    for default in ("cuda", str(model.device), "cpu"):
        with torch.device(default):
            for _ in range(2):
                assert torch.equal(model(x), expected)
    with torch.device("meta"):
        for _ in range(2):
            with pytest.raises(runtime.MissError, match=r"process\.modes: expected 0, found 1"):
                model(x)
    assert sum(model.stats().hits.values()) == 7


def test_an_artifact_is_loaded_and_warmed_up_under_it(mlp_artifact: Path) -> None:
    x = models.drawn(8, models.WIDTH)
    expected = runtime.load(mlp_artifact, on_miss="raise")(x)
    torch.set_default_device("cuda")
    try:
        model = runtime.load(mlp_artifact, on_miss="raise")
        model.warmup()
        made = model(x)
    finally:
        torch.set_default_device(None)
    assert torch.equal(made, expected)


def test_the_random_numbers_of_the_device_are_kept() -> None:
    device = devices.indexed("cuda")
    before = devices.random_state(device)
    with devices.keep_random_state(device):
        torch.rand(3, device=device)
        torch.rand(3)
        drawn = devices.random_state(device)
        assert not any(map(torch.equal, before, drawn))
    assert all(map(torch.equal, before, devices.random_state(device)))


def test_a_tensor_is_spread_where_it_is() -> None:
    x = models.drawn(4, 8)
    spread = replay._spread(x)
    assert (spread.device, spread.stride()) == (x.device, (16, 2))
    assert torch.equal(spread, x)
