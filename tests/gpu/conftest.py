"""What the GPU tests share: artifacts that are built once for a session."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tcbuild import aot

from . import models

BATCH = torch.export.Dim("batch", min=2, max=64)
Build = Callable[..., Path]


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    """Call models as they are served."""
    with torch.no_grad():
        yield


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Return a function that builds a module for this machine's GPU, unless a call says otherwise."""

    def run(module: torch.nn.Module, *args: Any, name: str, **options: Any) -> Path:
        path = tmp_path_factory.mktemp(name) / f"{name}.tcb"
        dims = options.pop("dims", None)
        options = {"targets": ("cuda",), **options}
        spec = aot.Spec.from_module(module, args, name=name, **options)
        aot.build(spec if dims is None else replace(spec, dims=dims), path)
        return path

    return run


@pytest.fixture(scope="session")
def mlp_artifact(build: Build) -> Path:
    """Return an Mlp for 2 to 64 rows."""
    x = models.drawn(8, models.WIDTH, device="cpu")
    return build(models.seeded(models.Mlp), x, name="mlp", dynamic_shapes=({0: BATCH},))


@pytest.fixture(scope="session")
def graphed_artifact(build: Build) -> Path:
    """Return an Mlp for 2 to 64 rows, each number of rows a CUDA graph of its own."""
    x = models.drawn(8, models.WIDTH, device="cpu")
    return build(
        models.seeded(models.Mlp),
        x,
        name="graphed",
        dynamic_shapes=({0: BATCH},),
        mode="reduce-overhead",
    )


@pytest.fixture(scope="session")
def step_artifact(build: Build) -> Path:
    """Return a Step, which writes to its state, with CUDA graphs."""
    x, position = models.drawn(1, models.WIDTH, device="cpu"), torch.tensor([3])
    return build(models.seeded(models.Step), x, position, name="step", mode="reduce-overhead")
