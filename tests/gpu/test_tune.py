"""The search for the fastest code on a GPU: with and without CUDA graphs, recorded, and served."""

from typing import Any

import pytest
import torch

from tcbuild import runtime
from tcbuild.aot.spec import MAX_AUTOTUNE
from tcbuild.aot.tune import Tune
from tcbuild.formats import Artifact

from . import models
from .conftest import Build

pytestmark = pytest.mark.gpu


def test_the_fastest_of_several_ways_is_served(build: Build) -> None:
    x = models.drawn(8, models.WIDTH, device="cpu")
    module: Any = models.seeded(models.Mlp)
    path = build(module, x, name="tuned", mode=MAX_AUTOTUNE, tune=Tune(candidates=3))
    with Artifact(path) as artifact:
        variant = next(v for v in artifact.manifest.variants if v.form == "library")
    (chosen,) = (trial for trial in variant.trials if trial.chosen)
    timed = [trial for trial in variant.trials if trial.microseconds]
    assert {trial.candidate for trial in timed} >= {"default", "products and descent"}
    assert {trial.cuda_graph for trial in timed} == {False, True}
    assert chosen.microseconds <= 1.02 * min(trial.microseconds for trial in timed)
    assert variant.cuda_graph == chosen.cuda_graph
    model = runtime.load(path, device="cuda:0", on_miss="raise")
    given = models.drawn(8, models.WIDTH, device="cuda")
    expected = module.to("cuda")(given)
    for _ in range(3):
        torch.testing.assert_close(model(given), expected, rtol=1e-3, atol=1e-3)
