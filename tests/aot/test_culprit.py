"""The layer that a compiler gets wrong is named in the error of the build that finds it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tcbuild import aot
from tcbuild.aot import Spec, culprit
from tcbuild.aot.candidate import Candidate
from tcbuild.aot.culprit import first
from tcbuild.aot.dims import Dynamic, Pad
from tcbuild.aot.errors import VerifyError
from tcbuild.aot.job_cache import JobCache
from tcbuild.aot.verify import Row


class Layer(nn.Module):
    """A linear layer and a function, with a residual."""

    def __init__(self, function: str) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """Map float32 [n, 8] to the same."""
        made: Tensor = x + getattr(torch, self.function)(self.linear(x))
        return made


class Deep(nn.Module):
    """Three layers, one of which has a tanh."""

    def __init__(self) -> None:
        super().__init__()
        functions = ["sigmoid", "tanh", "relu"]
        self.layers = nn.ModuleList(map(Layer, functions))
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [n, 8]."""
        for layer in self.layers:
            x = layer(x)
        made: Tensor = self.head(x)
        return made


def spec() -> Spec:
    """Return the spec of a Deep."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Deep().eval()
    random = torch.Generator().manual_seed(0)
    return Spec(
        name="deep",
        model=lambda: model,
        inputs=lambda sizes: ((torch.randn(sizes["n"], 8, generator=random),), {}),
        dims={"n": Dynamic(min=2, max=9)},
        shapes={"x": ("n",)},
        embed_graph=False,
    )


def wrong_tanh(patch: pytest.MonkeyPatch) -> None:
    """Let the compiler take a tanh for a sine."""
    from torch._inductor import lowering

    aten = torch.ops.aten
    patch.setitem(lowering.lowerings, aten.tanh.default, lowering.lowerings[aten.sin.default])


def test_the_layer_is_named(
    tmp_path: Path, no_jobs: JobCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong_tanh(monkeypatch)
    with pytest.raises(VerifyError) as caught:
        aot.build(spec(), tmp_path / "deep.tcb", cache=no_jobs)
    line = next(
        number
        for number, text in enumerate(Path(__file__).read_text().splitlines(), start=1)
        if "getattr(torch, self.function)" in text
    )
    assert "against float64, eager has" in caught.value.found
    named = f"the first layer that differs: layers.1 (test_culprit.py:{line})"
    assert caught.value.found.endswith(named)
    assert not (tmp_path / "deep.tcb").exists()


def test_a_layer_that_is_not_found_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the compiler is wrong about two layers together, and right about each."""
    monkeypatch.setattr(culprit, "first", lambda count, _: (range(count - 1, count), False))
    asked = spec()
    (job,) = aot.Plan.of(asked).jobs
    said = culprit.find(
        asked, asked.model(), job, Candidate(), ROW, lambda *_: ((), {}), JobCache()
    )
    assert said.startswith(
        "the layer that differs was not found: every graph that ends earlier passes"
    )
    assert "so it is head (test_culprit.py:" in said


ROW = Row(variant="v", sizes="n=2", output="output", problem="an error of 1 against float64")


def test_a_search_that_fails_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> str:
        raise RuntimeError("first\nsecond")

    monkeypatch.setattr(culprit, "_find", fails)
    (job,) = aot.Plan.of(spec()).jobs
    said = culprit.find(spec(), Deep(), job, Candidate(), ROW, lambda *_: ((), {}), JobCache())
    assert said == "the layer that differs could not be looked for (RuntimeError: first)"


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        ("output", "the captured graph is not the model, which has an error of 1 against float64"),
        ("output", "3 values differ from eager's"),
        ("output (noise in the padding)", ROW.problem),
        ("output (the elements of input 0 apart in memory)", ROW.problem),
    ],
)
def test_nothing_is_looked_for_where_no_layer_can_be_wrong(output: str, problem: str) -> None:
    row = Row(variant="v", sizes="n=2", output=output, problem=problem)
    (job,) = aot.Plan.of(spec()).jobs
    assert (
        culprit.find(spec(), Deep(), job, Candidate(), row, lambda *_: ((), {}), JobCache()) == ""
    )


def test_nothing_is_looked_for_in_a_smaller_call_that_was_padded_up() -> None:
    padded = replace(spec(), dims={"n": Pad(sizes=(8,))})
    (job,) = aot.Plan.of(padded).jobs
    row = Row(variant="v", sizes="n=2", output="output", problem=ROW.problem)
    assert (
        culprit.find(padded, Deep(), job, Candidate(), row, lambda *_: ((), {}), JobCache()) == ""
    )


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64, 65, 1000])
def test_halving(count: int) -> None:
    for wrong in range(0, count, max(1, count // 50)):
        asked: list[int] = []

        def differs(index: int, wrong: int = wrong, asked: list[int] = asked) -> bool:
            asked.append(index)
            return index >= wrong

        left, seen = first(count, differs)
        assert wrong in left
        assert len(asked) <= culprit.MAX_CUTS
        assert len(left) <= max(1, count // 2**culprit.MAX_CUTS + 1)
        assert seen == any(index >= wrong for index in asked)


def test_no_graph_that_ends_earlier_differs() -> None:
    assert first(7, lambda _: False) == (range(6, 7), False)
