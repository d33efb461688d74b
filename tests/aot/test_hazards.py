"""What may be another in service: each hazard has its place, and the lines of the spec that end it."""

import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from tcbuild.aot import Spec
from tcbuild.aot.explain import words
from tcbuild.aot.explain.explanation import Explanation, explain
from tcbuild.aot.explain.hazard import Hazard

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SCALES = {"x": 2.0}
CALLS = 0


class Restless(nn.Module):
    """Counts its calls in three places, keeps a cache that grows, and reads a dict from around it."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: Tensor
        self.register_buffer("steps", torch.zeros(()))
        self.linear = nn.Linear(4, 4)
        self.calls = 0
        self.seen: list[Tensor] = []
        self.table: Tensor | None = None

    def forward(
        self, x: Tensor, power: int, name: str = "a", *, mask: Tensor | None = None, on: bool = True
    ) -> Tensor:
        """Take x, float32 [rows, 4]."""
        global CALLS
        CALLS += 1
        self.calls += 1
        self.seen.append(x.detach())
        if self.table is None:
            self.table = torch.ones(4)
        self.steps.add_(1)
        made: Tensor = self.linear(x * self.table) * SCALES["x"] * power
        return made if mask is None or not on else made * mask


class Stopped(Restless):
    """Cannot be captured either."""

    def forward(
        self, x: Tensor, power: int, name: str = "a", *, mask: Tensor | None = None, on: bool = True
    ) -> Tensor:
        """Take x, float32 [rows, 4]."""
        made = super().forward(x, power, name, mask=mask, on=on)
        return made * 2 if made.sum() > 0 else made


class Pair(nn.Module):
    """Adds to each row a bias of its own."""

    def forward(self, x: Tensor, bias: Tensor, context: Tensor) -> Tensor:
        """Take x [rows, 4], bias [rows] and context [1, 4], float32."""
        return x + bias[:, None] + context


class Tokens(nn.Module):
    """Sums an embedding of each token that a mask leaves."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Take ids and mask, int64 [batch, seq]."""
        made: Tensor = (self.table(ids) * mask[..., None]).sum(1)
        return made


def by_place(found: Explanation) -> dict[str, Hazard]:
    return {one.place: one for one in found.hazards}


def test_values_and_state() -> None:
    model = Restless().eval()
    found = explain(Spec.from_module(model, (torch.ones(3, 4), 2), {"mask": None}))
    hazards = by_place(found)
    assert tomllib.loads(hazards["power"].spec) == {"values": {"power": [2]}}
    defaults = hazards["name, mask, on"]
    assert tomllib.loads(defaults.spec) == {
        "model": {"optional": ["mask"]},
        "values": {"name": ["a"], "on": [True, False]},
    }
    assert hazards["calls"].kind == hazards["seen"].kind == "state that changes"
    assert hazards["table"].kind == "state set by the first call"
    assert "linear.in_features" not in hazards
    assert "steps" not in hazards  # a buffer, written in place: a build carries it over
    lines = {place: one.line.code for place, one in hazards.items() if one.line}
    assert lines["calls"] == "self.calls += 1"
    assert lines["seen"] == "self.seen.append(x.detach())"
    assert lines["table"] == "self.table = torch.ones(4)"
    (scales,) = (one for one in found.hazards if one.place.endswith(".SCALES"))
    assert scales.kind == "global that may change"
    assert scales.line
    assert 'SCALES["x"]' in scales.line.code
    (calls,) = (one for one in found.hazards if one.place.endswith(".CALLS"))
    assert calls.kind == "state that changes"
    assert found.error is None
    assert model.calls == 0
    text = "\n".join(words.lines(found, guards=False))
    assert "power = [2]  # and the others" in text
    assert "calls, by " in text


def test_a_capture_that_fails_changes_nothing_of_it() -> None:
    found = explain(Spec.from_module(Stopped().eval(), (torch.ones(3, 4), 2)))
    assert found.error is not None
    hazards = by_place(found)
    assert "it is 0 before the first call" in hazards["calls"].words
    assert hazards["table"].kind == "state set by the first call"
    assert found.frozen["calls"] == "0"


def test_declared_values_are_none() -> None:
    spec = Spec.from_module(Restless().eval(), (torch.ones(3, 4), 2), values={"power": (2, 3)})
    assert "power" not in by_place(explain(spec, only=["power=2*"]))


class Example:
    """Makes a call of Pair; the bias has the rows of x, whatever is declared."""

    def __call__(self, sizes: Any) -> Any:
        rows = sizes["rows"]
        return (torch.ones(rows, 4), torch.ones(rows), torch.ones(1, 4)), {}


def test_an_axis_that_follows_a_dim() -> None:
    declared = Spec.from_module(
        Pair().eval(),
        (torch.ones(8, 4), torch.ones(8), torch.ones(1, 4)),
        dynamic_shapes={"x": {0: Dim("rows", min=2, max=64)}},
    )
    spec = Spec(
        name="pair",
        model=declared.model,
        inputs=Example(),
        dims=declared.dims,
        shapes=declared.shapes,
    )
    hazards = by_place(explain(spec))
    assert hazards.keys() == {"bias.size(0)", "context.size(0)"}
    assert "changes it with rows" in hazards["bias.size(0)"].words.replace(
        "change it", "changes it"
    )
    assert tomllib.loads(hazards["bias.size(0)"].spec) == {"shapes": {"bias": ["rows"]}}
    assert hazards["context.size(0)"].kind == "axis of size 1"


def test_no_dim_at_all() -> None:
    ids = torch.ones(3, 5, dtype=torch.int64)
    hazards = by_place(explain(Spec.from_module(Tokens().eval(), (ids, ids))))
    assert hazards.keys() == {"ids.size(0), mask.size(0)", "ids.size(1), mask.size(1)"}
    lines = tomllib.loads(hazards["ids.size(1), mask.size(1)"].spec)
    assert lines["shapes"] == {"ids": ["batch", "seq"], "mask": ["batch", "seq"]}
    assert lines["dims"]["seq"] == {"policy": "dynamic", "min": 2, "max": 64}
