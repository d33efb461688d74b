"""What the tests of training steps share: artifacts, each built once."""

from pathlib import Path
from typing import Any, Protocol

import pytest
import torch

from tcbuild import aot
from tcbuild.aot.training import Training

from . import models

BATCH = torch.export.Dim("batch", min=2, max=64)


class Build(Protocol):
    """Builds training steps, and no inference variants unless asked to; returns the artifact."""

    def __call__(
        self,
        module: torch.nn.Module,
        *args: Any,
        name: str,
        inference: bool = False,
        **options: Any,
    ) -> Path: ...


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Return what builds artifacts."""

    def run(
        module: torch.nn.Module, *args: Any, name: str, inference: bool = False, **options: Any
    ) -> Path:
        path = tmp_path_factory.mktemp(name) / f"{name}.tcb"
        options = {"step": Training(inference=inference), "embed_graph": False, **options}
        aot.build(aot.Spec.from_module(module, args, name=name, **options), path)
        return path

    return run


@pytest.fixture(scope="session")
def mlp_artifact(build: Build) -> Path:
    """Return an Mlp for 2 to 64 rows, for inference and training."""
    module, x = models.seeded(models.Mlp), models.drawn(8, 16)
    return build(module, x, name="mlp", inference=True, dynamic_shapes=({0: BATCH},))


@pytest.fixture(scope="session")
def block_artifact(build: Build) -> Path:
    """Return a transformer block with dropout, for any batch and length."""
    seq = torch.export.Dim("seq", min=2, max=32)
    module, x = models.seeded(models.Block), models.drawn(3, 8, 16)
    return build(module, x, name="block", dynamic_shapes=({0: BATCH, 1: seq},))


@pytest.fixture
def mlp() -> models.Mlp:
    """Return the model of the artifact, in training mode, with nothing attached."""
    made = models.seeded(models.Mlp)
    assert isinstance(made, models.Mlp)
    return made.train()
