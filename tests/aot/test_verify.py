"""The check of an artifact finds one that is wrong, whatever it is that is wrong with it."""

import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tcbuild.aot import Spec, build, verify
from tcbuild.aot.dims import Dynamic
from tcbuild.aot.errors import VerifyError
from tcbuild.aot.job_cache import JobCache
from tcbuild.aot.numerics import judge
from tcbuild.aot.verify import Row, refuse
from tcbuild.formats import Artifact, Manifest, fact
from tcbuild.runtime import dispatcher, replay
from tcbuild.runtime.errors import MissError

from .. import models
from ..conftest import Rewrite


def calls(variant: str, sizes: Mapping[str, int]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a call of Fours."""
    return models.rows(sizes)


def test_an_artifact_that_is_right(fours_artifact: Path) -> None:
    rows = verify(fours_artifact, module=models.seeded(models.Fours), inputs=calls, tune={"n": 8})
    assert {row.sizes for row in rows} == {"n=8", "n=60"}  # of 2..63 the ones its relations allow
    assert [row.problem for row in rows if row.problem] == []


def test_weights_of_another_model(fours_artifact: Path, rewrite: Rewrite) -> None:
    with Artifact(fours_artifact) as artifact:
        data = bytearray(artifact.read("weights"))
    data[-16:] = torch.tensor([1.0, 2.0, 3.0, 4.0]).numpy().tobytes()
    path = rewrite(fours_artifact, sections={"weights": bytes(data)})
    rows = verify(path, module=models.seeded(models.Fours), inputs=calls)
    wrong = {row.sizes for row in rows if "the captured graph is not the model" in row.problem}
    assert wrong == {"n=8", "n=60"}
    with pytest.raises(VerifyError, match=r"n=2\.\.63@cpu-.* at n=8: output"):
        refuse(rows, path)


def test_libraries_of_two_variants_swapped(net_artifact: Path, rewrite: Rewrite) -> None:
    def swap(manifest: Manifest) -> Manifest:
        one, many, *others = manifest.variants
        swapped = (replace(one, files=many.files), replace(many, files=one.files), *others)
        return replace(manifest, variants=swapped)

    try:
        rows = verify(rewrite(net_artifact, swap))
    except VerifyError:
        return  # it came to an end that it could not report
    wrong = {row.sizes for row in rows if row.problem}
    assert wrong >= {"batch=3, seq=16"}


def here(how: str, path: Path, folder: Path, name: object, weights: Path | None) -> None:
    """Answer the requests in this process, where the test has changed something."""
    assert (how, weights) == ("replay", None)
    assert replay.main([str(path), str(folder)]) == 0


def test_odd_strides_are_played_and_refused(
    fours_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[str] = []

    class Noted(MissError):
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            refused.append(self.found)

    monkeypatch.setattr(sys.modules[verify.__module__], "_replay", here)
    monkeypatch.setattr(dispatcher, "MissError", Noted)
    assert not any(row.problem for row in verify(fours_artifact))
    (found,) = refused  # one input, at one size
    assert "x.layout: expected contiguous, found strides (4, 2)" in found


def test_odd_strides_that_are_answered_wrongly(
    fours_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[verify.__module__], "_replay", here)
    monkeypatch.setattr(fact, "is_dense", lambda *_: True)  # the guard on the layout says nothing
    wrong = [row for row in verify(fours_artifact) if row.problem]
    assert {row.output for row in wrong} == {"output[0] (the elements of input 0 apart in memory)"}
    assert len({row.sizes for row in wrong}) == 1


EXACT = torch.tensor([1.0, 2.0], dtype=torch.float64)
EAGER = EXACT.float() + torch.tensor([0.0, 1e-3])


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (EAGER, ""),
        (EAGER + torch.tensor([0.0, 0.9e-3]), ""),
        (
            EAGER + torch.tensor([0.0, 1.2e-3]),
            "an error of 0.0022 against float64, eager has 0.001",
        ),
        (EAGER + float("nan"), "nan or inf where eager has none, or the reverse"),
        (EAGER + float("inf"), "nan or inf where eager has none, or the reverse"),
        (EAGER.double(), "torch.float64 [2], eager torch.float32 [2]"),
        (EAGER[:1], "torch.float32 [1], eager torch.float32 [2]"),
        (EAGER.clone().requires_grad_(), ""),
    ],
)
def test_the_rule(made: torch.Tensor, problem: str) -> None:
    assert judge(made, EAGER, EXACT).problem == problem


class Pooled(torch.nn.Module):
    """Adds many rows to a few, in whatever order the threads come."""

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Take x, float32 [rows, 32], and at, int64 [rows], below 16; return two of float32 [16, 32]."""
        made = torch.zeros(16, 32)
        return made.index_add(0, at, x * 2 + 1), made.index_put((at,), x, accumulate=True)


def test_sums_that_threads_make_in_any_order(tmp_path: Path) -> None:
    noise = torch.Generator().manual_seed(0)
    call = torch.randn(4096, 32, generator=noise), torch.randint(16, (4096,), generator=noise)
    spec = Spec.from_module(Pooled().eval(), call, embed_graph=False, verify=False)
    build(spec, tmp_path / "pooled.tcb")
    found = [verify(tmp_path / "pooled.tcb") for _ in range(3)]
    assert found[0] == found[1] == found[2]
    assert [row.output for row in found[0]] == ["output[0]", "output[1]"]
    for row in found[0]:
        assert not row.problem
        assert 0 < row.eager < row.allowed < math.inf  # it is not taken for random numbers


def test_the_rule_for_integers() -> None:
    eager = torch.tensor([1, 2, 3])
    assert judge(eager, eager, eager.double()).problem == ""
    assert judge(eager + 1, eager, eager.double()).problem == "3 values differ from eager's"


def test_an_unbounded_error_passes_only_where_eager_has_it() -> None:
    eager = torch.tensor([float("inf"), 1.0])
    assert judge(eager, eager, torch.tensor([float("inf"), 1.0]).double()).problem == ""


def test_rows_that_pass_are_no_error() -> None:
    refuse([Row(variant="v", sizes="", output="output")], "path")


class Half(torch.nn.Module):
    """Two layers with a normalisation, in 16 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(32, 64)
        self.norm = torch.nn.LayerNorm(64)
        self.second = torch.nn.Linear(64, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Take x, of 16 bits [n, 32]."""
        made: torch.Tensor = self.second(torch.tanh(self.norm(self.first(x))))
        return made


def half(dtype: torch.dtype) -> Spec:
    """Return the spec of a Half in a dtype."""
    module = models.seeded(Half).to(dtype)

    def inputs(sizes: Mapping[str, int]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        random = torch.Generator().manual_seed(0)
        return (torch.randn(sizes["n"], 32, generator=random).to(dtype),), {}

    return Spec(
        name="half",
        model=lambda: module,
        inputs=inputs,
        dims={"n": Dynamic(min=2, max=33)},
        shapes={"x": ("n",)},
        embed_graph=False,
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_sixteen_bits(dtype: torch.dtype, tmp_path: Path) -> None:
    report = build(half(dtype), tmp_path / "half.tcb")
    assert len(report.verification) > 1
    step = torch.finfo(dtype).eps
    for row in report.verification:
        assert row.eager > 0  # eager itself rounds
        assert row.error <= row.allowed < 8 * step


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_sixteen_bits_that_are_wrong(
    dtype: torch.dtype, tmp_path: Path, no_jobs: JobCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tanh that the compiler takes for a sine."""
    from torch._inductor import lowering

    aten = torch.ops.aten
    sine = lowering.lowerings[aten.sin.default]
    monkeypatch.setitem(lowering.lowerings, aten.tanh.default, sine)
    path = tmp_path / "half.tcb"
    spec = replace(half(dtype), verify=False)
    build(spec, path, cache=no_jobs)
    rows = verify(path, module=spec.model(), inputs=lambda _, sizes: spec.inputs(sizes))
    assert rows
    for row in rows:
        assert "against float64, eager has" in row.problem
        assert row.error > row.allowed


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_the_rule_in_sixteen_bits(dtype: torch.dtype) -> None:
    """One rounding step beside twice eager's error, and not the sixteen that float32 has."""
    exact = torch.tensor([1.0, 1.5], dtype=torch.float64)
    eager = exact.to(dtype)
    step = torch.finfo(dtype).eps  # between 1 and 2
    assert judge((exact + step).to(dtype), eager, exact).problem == ""
    assert "against float64" in judge((exact + 2 * step).to(dtype), eager, exact).problem
    assert judge(exact.float(), eager, exact).problem.startswith("torch.float32 [2], eager torch.")
