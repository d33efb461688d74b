"""An artifact for the GPU: which one it is loaded for, which calls it answers, and what is a miss."""

from pathlib import Path

import pytest
import torch

from tcbuild import runtime
from tcbuild.aot.dims import Pad
from tcbuild.formats import Artifact

from . import models
from .conftest import BATCH, Build

pytestmark = pytest.mark.gpu

ROWS = models.WIDTH
SEQ = torch.export.Dim("seq", min=2, max=32)


@pytest.fixture
def eager() -> models.Mlp:
    """Return the model of the artifacts, on the GPU."""
    made: models.Mlp = models.seeded(models.Mlp).cuda()
    return made


def test_hit(mlp_artifact: Path, eager: models.Mlp) -> None:
    model = runtime.load(mlp_artifact, on_miss="raise")
    assert model.device == torch.device("cuda", 0)
    for rows in (2, 5, 64):
        x = models.drawn(rows, ROWS)
        assert models.close(model(x), eager(x))
    assert model.stats().fallback_share == 0


def test_the_build_verified_it(mlp_artifact: Path) -> None:
    with Artifact(mlp_artifact) as artifact:
        (variant,) = (v for v in artifact.manifest.variants if v.form == "library")
        assert variant.device == "cuda"
        assert str(variant.target).startswith("cuda-sm_")
        assert artifact.manifest.checks
        facts = {guard.fact: guard.expected for guard in variant.guards}
    major, minor = torch.cuda.get_device_capability()
    assert facts["gpu"] == f"sm_{major}{minor}"
    assert facts["cuda"] == torch.version.cuda


def test_input_on_the_cpu_is_a_miss(mlp_artifact: Path) -> None:
    model = runtime.load(mlp_artifact, device="cuda:0", on_miss="raise")
    with pytest.raises(runtime.MissError, match=r"x\.device: expected cuda:0, found cpu"):
        model(models.drawn(4, ROWS, device="cpu"))


def test_fallback_on_the_gpu(mlp_artifact: Path, eager: models.Mlp) -> None:
    x = models.drawn(100, ROWS)
    embedded = runtime.load(mlp_artifact)
    assert models.close(embedded(x), eager(x))
    assert embedded.stats().fallbacks["embedded graph"] == 1
    given = runtime.load(mlp_artifact, fallback=eager)
    assert models.close(given(x), eager(x))
    assert given.stats().fallbacks["fallback module"] == 1


def test_fallback_module_on_another_device(mlp_artifact: Path) -> None:
    with pytest.raises(runtime.StateError, match="found on cpu, expected on cuda:0"):
        runtime.load(mlp_artifact, fallback=models.seeded(models.Mlp))


def test_loading_for_the_cpu(mlp_artifact: Path) -> None:
    with pytest.raises(runtime.HostError, match="device: expected cuda, found cpu"):
        runtime.load(mlp_artifact, device="cpu")


def test_new_weights(mlp_artifact: Path, eager: models.Mlp) -> None:
    model, x = runtime.load(mlp_artifact, on_miss="raise"), models.drawn(4, ROWS)
    state = {name: tensor * 2 for name, tensor in eager.state_dict().items()}
    model.load_weights(state)
    eager.load_state_dict(state)
    assert models.close(model(x), eager(x))


def test_matmul_precision_is_guarded(mlp_artifact: Path) -> None:
    model, x = runtime.load(mlp_artifact, on_miss="raise"), models.drawn(4, ROWS)
    model(x)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        with pytest.raises(runtime.MissError, match="matmul_precision: expected highest"):
            model(x)
    finally:
        torch.set_float32_matmul_precision(before)


def test_one_artifact_for_both(build: Build, eager: models.Mlp) -> None:
    module = models.seeded(models.Mlp)
    x = models.drawn(8, ROWS, device="cpu")
    path = build(module, x, name="both", dynamic_shapes=({0: BATCH},), targets=("cpu", "cuda"))
    assert next(module.parameters()).device.type == "cpu"
    on_cpu = runtime.load(path, on_miss="raise")
    assert on_cpu.device.type == "cpu"
    assert models.close(on_cpu(x), module(x))
    on_gpu = runtime.load(path, device="cuda", on_miss="raise")
    assert models.close(on_gpu(x.cuda()), eager(x.cuda()))
    assert models.close(
        runtime.load(path, device="cuda")(models.drawn(99, ROWS)).cpu(),
        module(models.drawn(99, ROWS, device="cpu")),
    )


def test_padded_call(build: Build) -> None:
    module = models.seeded(models.Mean)
    x, mask = models.drawn(2, 16, ROWS, device="cpu"), torch.ones(2, 16)
    path = build(
        module,
        x,
        mask,
        name="mean",
        dynamic_shapes=({1: SEQ}, {1: SEQ}),
        dims={"seq": Pad(sizes=(16, 32), fill={"mask": 0})},
    )
    model, eager = runtime.load(path, on_miss="raise"), module.cuda()
    x, mask = models.drawn(2, 11, ROWS), torch.ones(2, 11, device="cuda")
    assert models.close(model(x, mask), eager(x, mask))
    assert sum(count for count, _ in model.stats().padded.values()) == 1
