"""Training steps on the GPU: the gradients of eager, on any stream, with the module's own weights."""

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tcbuild import runtime
from tcbuild.aot.training import Training

from ..training import models
from .conftest import Build

pytestmark = pytest.mark.gpu

SEQ = torch.export.Dim("seq", min=2, max=32)


@pytest.fixture(autouse=True)
def gradients() -> Iterator[None]:
    """Record gradients, which the other tests of this folder do not."""
    with torch.enable_grad():
        yield


@pytest.fixture(scope="session")
def gpt_artifact(build: Build) -> Path:
    """Return the steps of a small language model, for 2 to 32 tokens."""
    with torch.enable_grad():
        ids = torch.zeros(3, 8, dtype=torch.int64)
        return build(
            models.seeded(models.Gpt),
            ids,
            name="gpt",
            dynamic_shapes=({1: SEQ},),
            step=Training(inference=False),
            embed_graph=False,
        )


def step(module: nn.Module, ids: Tensor) -> list[Tensor]:
    module.zero_grad()
    module(ids).square().mean().backward()
    return [parameter.grad for parameter in module.parameters() if parameter.grad is not None]


def test_trains_as_eager(gpt_artifact: Path) -> None:
    eager = models.seeded(models.Gpt).cuda().train()
    attached = copy.deepcopy(eager)
    dispatcher = runtime.attach(attached, gpt_artifact, on_miss="raise")
    pair = [torch.optim.SGD(module.parameters(), lr=0.1) for module in (eager, attached)]
    for seq in (2, 8, 32):
        ids = torch.randint(32, (3, seq), device="cuda")
        with torch.cuda.stream(torch.cuda.Stream()) if seq == 8 else torch.enable_grad():  # type: ignore[no-untyped-call]
            expected, found = step(eager, ids), step(attached, ids)
            torch.cuda.synchronize()
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
        for optimizer in pair:
            optimizer.step()
    assert dispatcher.stats().fallback_share == 0


def test_dropout_draws_by_the_seed(build: Build) -> None:
    x = models.drawn(3, 8, 16)
    options = {"step": Training(inference=False), "embed_graph": False}
    path = build(models.seeded(models.Block), x, name="block", **options)
    module = models.seeded(models.Block).cuda().train()
    runtime.attach(module, path, on_miss="raise")
    found = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        found.append(step(module, x.cuda()))
    assert all(torch.equal(a, b) for a, b in zip(found[0], found[1], strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(found[0], found[2], strict=True))


def test_a_module_elsewhere_is_refused(gpt_artifact: Path) -> None:
    with pytest.raises(runtime.HostError, match="device: expected cuda, found cpu"):
        runtime.attach(models.seeded(models.Gpt), gpt_artifact)
