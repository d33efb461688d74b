"""A default device: a mode like others, unless it is where tensors are made anyway, or where the model is."""

from pathlib import Path

import pytest
import torch

from tcbuild.runtime import modes, replay

from .conftest import Script

PLACES = ("cpu", "cuda:0", "cuda:1")
# By default device, for a model in each of these places: whether it counts.
COUNTS = {
    "cpu": (0, 0, 0),
    "cuda:0": (1, 0, 1),
    "cuda:1": (1, 1, 0),
    "meta": (1, 1, 1),
}


@pytest.mark.parametrize("default", COUNTS)
def test_it_counts_where_the_model_is_elsewhere(default: str) -> None:
    with torch.device(default):
        found = [modes.count(torch.device(place)) for place in PLACES]
        assert found == [modes.function_modes(torch.device(place)) for place in PLACES]
    assert found == list(COUNTS[default])


def test_without_an_index_it_is_the_current_gpu() -> None:
    with torch.device("cuda"):
        assert [modes.count(torch.device(place)) for place in PLACES[:2]] == [1, 0]


# What the runtime makes for itself is made where it must be, whatever the default.
LOADED = """
import sys
import torch
torch.set_default_device("meta")
from tcbuild import runtime
from tests import models

model = runtime.load(sys.argv[1], on_miss="raise")
model.warmup()
model.load_weights(sys.argv[1])
model.warmup()
torch.set_default_device(None)
with torch.no_grad():
    args, _ = models.net_call()
    made, expected = model(*args).logits, models.net()(*args).logits
    torch.testing.assert_close(made, expected)
    torch.set_default_device("meta")
    try:
        model(*args)
    except runtime.MissError as error:
        print(error.found)
"""


def test_an_artifact_is_loaded_under_any(net_artifact: Path, script: Script) -> None:
    assert "process.modes: expected 0, found 1" in script(LOADED, net_artifact)


def test_a_tensor_is_spread_where_it_is() -> None:
    spread = replay._spread(torch.empty(3, 4, device="meta"))
    assert (spread.device.type, spread.stride()) == ("meta", (8, 2))
    tensor = torch.randn(3, 1)
    assert torch.equal(replay._spread(tensor), tensor)
    assert replay._spread(tensor).stride() == (2, 1)
