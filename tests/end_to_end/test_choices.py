"""Parameters with listed values, and optional ones: a variant for each choice, and none for another."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tcbuild import aot, runtime
from tcbuild.aot import Plan, Spec
from tcbuild.aot.errors import SpecError
from tcbuild.aot.plan import choices_of
from tcbuild.formats import Artifact


class Chooses(nn.Module):
    """Computes something else for each value, and with and without a mask."""

    def forward(
        self, x: Tensor, mask: Tensor | None = None, *, kind: str = "sum", fast: bool = False
    ) -> Tensor:
        """Take x and mask, float32 [3, 4]."""
        if mask is not None:
            x = x * mask
        if fast:
            x = x + 1
        return x.sum(1) if kind == "sum" else x.amax(1)


def inputs(_: Mapping[str, int]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a call with a mask."""
    return (X,), {"mask": MASK, "kind": "max"}


X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([1.0, 0.0, 1.0, 0.5]).expand(3, 4).clone()
SPEC = Spec(
    name="chooses",
    model=lambda: Chooses().eval(),
    inputs=inputs,
    values={"kind": ("sum", "max")},
    optional=("mask",),
)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the artifact, built and verified."""
    path = tmp_path_factory.mktemp("chooses") / "chooses.tcb"
    report = aot.build(SPEC, path)
    assert len({row.variant for row in report.verification}) == 4
    return path


def test_every_combination_is_a_job() -> None:
    assert choices_of(SPEC) == (
        {"kind": "sum"},
        {"kind": "sum", "mask": None},
        {"kind": "max"},
        {"kind": "max", "mask": None},
    )
    assert [job.id.partition("@")[0] for job in Plan.of(SPEC).jobs] == [
        *("kind='sum'", "kind='sum',mask=None", "kind='max'", "kind='max',mask=None"),
    ]


CALLS: dict[str, dict[str, Any]] = {
    "kind='sum'": {"mask": MASK},
    "kind='sum',mask=None": {"kind": "sum"},
    "kind='max'": {"kind": "max", "mask": MASK, "fast": False},
    "kind='max',mask=None": {"kind": "max", "mask": None},
}


@pytest.mark.parametrize("name", CALLS)
def test_each_call_is_answered_by_its_own_variant(artifact: Path, name: str) -> None:
    served = runtime.load(artifact, on_miss="raise")
    with torch.no_grad():
        for _ in range(3):
            assert torch.allclose(served(X, **CALLS[name]), Chooses()(X, **CALLS[name]))
    hits = {variant.partition("@")[0]: n for variant, n in served.stats().hits.items() if n}
    assert hits == {name: 3}


def test_calls_in_turn_are_not_taken_for_each_other(artifact: Path) -> None:
    served = runtime.load(artifact, on_miss="raise")
    with torch.no_grad():
        for kwargs in [*CALLS.values(), *reversed(CALLS.values()), *CALLS.values()]:
            assert torch.allclose(served(X, **kwargs), Chooses()(X, **kwargs))


@pytest.mark.parametrize(
    ("kwargs", "says"),
    [
        ({"kind": "mean"}, "kind.value: expected '"),
        ({"kind": "sum", "fast": True}, "fast.value: expected False, found True"),
        ({"kind": "sum", "mask": MASK.double()}, "mask.dtype: expected float32, found float64"),
        ({"kind": None}, "found None"),
    ],
)
def test_a_value_that_is_not_listed_is_a_miss(
    artifact: Path, kwargs: dict[str, Any], says: str
) -> None:
    strict = runtime.load(artifact, on_miss="raise")
    with torch.no_grad():
        with pytest.raises(runtime.MissError) as caught:
            strict(X, **kwargs)
        assert says in str(strict.explain(X, **kwargs))
        assert "(and 3 more variants)" in caught.value.found
        served = runtime.load(artifact, fallback=Chooses().eval())
        assert torch.equal(served(X, **kwargs), Chooses()(X, **kwargs))
        assert sum(served.stats().hits.values()) == 0


def test_a_graph_is_embedded_for_each_choice(artifact: Path) -> None:
    with Artifact(artifact) as opened:
        names = [v.id for v in opened.manifest.variants if v.form == "graph"]
    assert names == [
        *("embedded,kind='sum'", "embedded,kind='sum',mask=None"),
        *("embedded,kind='max'", "embedded,kind='max',mask=None"),
    ]


def test_a_parameter_that_the_model_has_not(tmp_path: Path) -> None:
    spec = Spec(name="m", model=SPEC.model, inputs=inputs, values={"knd": ("sum",)})
    with pytest.raises(SpecError, match="found 'knd', expected one of x, mask, kind, fast"):
        aot.build(spec, tmp_path / "m.tcb")
