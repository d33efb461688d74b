"""A model with several methods: one artifact, one set of weights, one state; each method by its own guards."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tcbuild import aot, runtime
from tcbuild.aot import Plan, Spec
from tcbuild.aot.dims import Pad, Specialize
from tcbuild.aot.errors import ModelError, SpecError
from tcbuild.aot.explain.explanation import explain
from tcbuild.aot.merge import merge
from tcbuild.aot.method import Method, view
from tcbuild.formats import Artifact
from tcbuild.runtime.errors import MissError, StateError

from ..conftest import CommandLine, one_at_a_time

SCALE = 2.0


class Model(nn.Module):
    """`encode` is padded, `step` counts and writes to its input, `forward` calls `encode` itself."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("count", torch.zeros(1))

    def encode(self, x: Tensor, *, scaled: bool = False) -> Tensor:
        made: Tensor = self.linear(x).relu()
        return made * SCALE if scaled else made

    def step(self, x: Tensor, held: Tensor) -> Tensor:
        self.count += 1
        held.add_(self.linear(x))
        return held * self.count

    def forward(self, x: Tensor) -> Tensor:
        return self.encode(x).sum(-1)


class Counting(Model):
    """Counts in Python, too."""

    made = 0

    def step(self, x: Tensor, held: Tensor) -> Tensor:
        self.made = self.made + 1
        return super().step(x, held) + self.made


def model() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Model().eval()


def rows(n: int) -> Tensor:
    return torch.randn(n, 8, generator=torch.Generator().manual_seed(n))


SPEC = Spec(
    name="several",
    model=model,
    dims={"n": Pad(sizes=(16,)), "m": Specialize(values=(3,))},
    methods={
        "encode": Method(
            inputs=lambda sizes: ((rows(sizes["n"]),), {"scaled": False}),
            shapes={"x": ("n", None)},
            values={"scaled": (False, True)},
        ),
        "step": Method(
            inputs=lambda sizes: ((rows(sizes["m"]), torch.zeros(sizes["m"], 8)), {}),
            shapes={"x": ("m",), "held": ("m",)},
        ),
        "forward": Method(inputs=lambda sizes: ((rows(sizes["n"]),), {}), shapes={"x": ("n",)}),
    },
)


@pytest.fixture(scope="module")
def artifact(shared_folder: Path) -> Path:
    path = shared_folder / "several.tcb"
    with one_at_a_time(path) as first:
        if first:
            aot.build(SPEC, path)
    return path


def test_jobs_of_each_method() -> None:
    ids = [job.id.partition("@")[0] for job in Plan.of(SPEC).jobs]
    assert ids == [
        "encode:n=16,scaled=False",
        "encode:n=16,scaled=True",
        "step:m=3",
        "forward:n=16",
    ]
    assert [job.entry for job in Plan.of(SPEC).only(["step:*"]).jobs] == ["step"]


def test_each_method_answers_as_the_model_does(artifact: Path) -> None:
    served, eager = runtime.load(artifact), model()
    with torch.inference_mode():
        for n in (1, 4, 9):
            torch.testing.assert_close(served(rows(n)), eager(rows(n)))
            for scaled in (False, True):
                made = served.methods["encode"](rows(n), scaled=scaled)
                torch.testing.assert_close(made, eager.encode(rows(n), scaled=scaled))  # type: ignore[operator]
        held, expected = torch.zeros(3, 8), torch.zeros(3, 8)
        for _ in range(2):
            made = served.methods["step"](rows(3), held)
            torch.testing.assert_close(made, eager.step(rows(3), expected))  # type: ignore[operator]
            torch.testing.assert_close(held, expected)
    assert served.state()["count"].item() == 2
    stats = served.stats()
    assert stats.calls == 11
    assert stats.fallback_share == 0
    assert served.methods["step"].stats().calls == 2


def test_weights_are_stored_and_replaced_once(artifact: Path) -> None:
    with Artifact(artifact) as opened:
        record = opened.manifest.weights
        assert record is not None
        assert sorted(record.tensors) == ["count", "linear.bias", "linear.weight"]
    served: Any = runtime.load(artifact)
    served.warmup()
    new = {name: torch.full_like(t, 0.5) for name, t in model().state_dict().items()}
    with pytest.raises(StateError, match=r"call load_weights of what tcbuild\.runtime\.load"):
        served.encode.load_weights(new)
    served.load_weights(new)
    with torch.inference_mode():
        expected = torch.full((4, 8), 0.5 * 8 + 0.5)
        torch.testing.assert_close(served.encode(torch.ones(4, 8), scaled=False), expected)
        torch.testing.assert_close(served(torch.ones(4, 8)), expected.sum(-1))


def test_a_miss_is_one_of_the_method(artifact: Path) -> None:
    alerts: list[runtime.Alert] = []
    eager = model()
    served: Any = runtime.load(artifact, fallback=eager, on_alert=alerts.append)
    with torch.inference_mode():
        torch.testing.assert_close(served.encode(rows(17)), eager.encode(rows(17)))  # type: ignore[operator]
        served.step(rows(5), torch.zeros(5, 8))  # by the fallback, which counts in the same buffer
        served.step(rows(3), torch.zeros(3, 8))
    assert [alert.model for alert in alerts] == ["several.encode", "several.step"]
    assert alerts[0].reason.startswith("dims.n: expected 1..16, found 17")
    assert "m=3" in alerts[1].reason
    assert served.state()["count"].item() == 2
    assert eager.count.item() == 2  # type: ignore[operator]
    assert served.stats().misses == {"encode: dims.n": 1, "step: x.size(0)": 1}
    alone: Any = runtime.load(artifact, on_miss="raise")
    with pytest.raises(MissError, match="a call for one of step:m=3@"):
        alone.step(rows(5), torch.zeros(5, 8))


def test_what_a_model_without_the_method_is_told(artifact: Path) -> None:
    served: Any = runtime.load(artifact)
    with pytest.raises(AttributeError, match="no method 'decode'; it has encode, step, forward"):
        served.decode  # noqa: B018
    with pytest.raises(StateError, match="without a method 'encode'"):
        runtime.load(artifact, fallback=nn.Linear(8, 8))
    with pytest.raises(StateError, match="an artifact of the methods encode, step, forward"):
        runtime.attach(model(), artifact)


def test_a_model_that_is_not_called_itself(tmp_path: Path) -> None:
    report = aot.build(SPEC, tmp_path / "step.tcb", only=["step:*"])
    assert len(report.jobs) == 1
    served: Any = runtime.load(tmp_path / "step.tcb")
    with pytest.raises(StateError, match=r"call model.step\(...\)"):
        served(rows(3))
    with pytest.raises(StateError, match="expected one of its methods: step"):
        served.explain(rows(3))


def test_what_the_code_of_a_method_reads_is_held_against_the_fallback(
    artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Artifact(artifact) as opened:
        (name,) = (name for name in opened.manifest.frozen if name.endswith(".SCALE"))
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    with pytest.raises(StateError, match=f"{name}: .*found 3.0, expected 2.0"):
        runtime.load(artifact, fallback=model())


def test_each_method_is_explained() -> None:
    found = explain(SPEC)
    assert found.error is None
    assert [one.entry for one in found.compiled] == ["encode", "step", "forward"]
    assert [one.pieces for one in found.compiled] == [1, 1, 1]
    assert not found.hazards
    undeclared = replace(SPEC.methods["encode"], values={})
    methods = {**SPEC.methods, "encode": undeclared}
    found = explain(replace(SPEC, model=lambda: Counting().eval(), methods=methods))
    hazards = {one.place: one for one in found.hazards}
    assert hazards.keys() == {"encode: scaled", "made"}
    assert hazards["encode: scaled"].spec == "[methods.encode.values]\nscaled = [true, false]"
    assert hazards["made"].line is not None
    assert hazards["made"].line.function == "step"


def test_parts_are_joined_to_the_same_bytes(artifact: Path, tmp_path: Path) -> None:
    parts = [tmp_path / "1.tcb", tmp_path / "2.tcb"]
    for index, part in enumerate(parts):
        aot.build(SPEC, part, shard=(index + 1, 2))
    merge(parts, tmp_path / "whole.tcb")
    assert (tmp_path / "whole.tcb").read_bytes() == artifact.read_bytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"shapes": {"x": ("n",)}},
            r"shapes: .*found shapes, and methods, expected methods.NAME.shapes",
        ),
        ({"inputs": lambda sizes: ((), {})}, r"model\.inputs: .*found inputs, and methods"),
        ({"grad": ("on",)}, "training or gradients, too"),
        ({"methods": {}}, r"model\.inputs: .*found none, expected inputs, or methods"),
    ],
)
def test_a_spec_that_says_it_twice(changes: dict[str, Any], message: str) -> None:
    own = {"name": "several", "model": model, "dims": SPEC.dims, "methods": SPEC.methods}
    with pytest.raises(SpecError, match=message):
        Spec(**{**own, **changes})


@pytest.mark.parametrize("name", ["stats", "_step", "not a name"])
def test_names_that_are_not_served(name: str) -> None:
    method = Method(inputs=lambda sizes: ((rows(1),), {}))
    with pytest.raises(SpecError, match=f"methods.{name}"):
        Spec(name="several", model=model, methods={name: method})


def test_shapes_of_a_method_name_dims() -> None:
    method = Method(inputs=lambda sizes: ((rows(1),), {}), shapes={"x": ("k",)})
    with pytest.raises(SpecError, match=r"methods\.step\.shapes: .*found the dim 'k'"):
        Spec(name="several", model=model, methods={"step": method})


@pytest.mark.parametrize(("name", "found"), [("decode", "no method"), ("linear", "a Linear")])
def test_what_is_no_method(name: str, found: str) -> None:
    with pytest.raises(ModelError, match=f"Model.{name}: .*found {found}"):
        view(model(), name)


SPEC_FILE = """
[model]
source = "model:build"
name = "tiny"

[dims.batch]
policy = "specialize"
values = [2]

[methods.forward]
inputs = "model:example_inputs"

[methods.forward.shapes]
x = ["batch", "_"]
"""


def test_the_commands(tiny_spec_dir: Path, tmp_path: Path, tcbuild: CommandLine) -> None:
    (tmp_path / "model.py").write_bytes((tiny_spec_dir / "model.py").read_bytes())
    spec, file = tmp_path / "tcbuild.toml", tmp_path / "tiny.tcb"
    spec.write_text(SPEC_FILE, encoding="utf-8")
    commands: list[list[str | Path]] = [
        ["build", spec, "-o", file],
        ["explain", spec],
        ["verify", file],
        ["verify", file, "--spec", spec],
        ["inspect", file],
    ]
    for command in commands:
        done = tcbuild(*command)
        assert done.returncode == 0, done.stderr
        assert "forward:batch=2@" in f"{done.stdout}{done.stderr}"
    spec.write_text(SPEC_FILE.replace("inputs =", "input ="), encoding="utf-8")
    done = tcbuild("plan", spec)
    assert done.returncode != 0
    assert "methods.forward: input: " in done.stderr
    assert "found an unknown key, expected one of inputs, optional, shapes, values" in done.stderr
    assert "did you mean 'inputs'?" in done.stderr
