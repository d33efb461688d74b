"""Variants for training mode and for calls while gradients are recorded: who answers when, and how."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tcbuild import aot, runtime
from tcbuild.aot import Plan, Spec
from tcbuild.aot.build import make_module
from tcbuild.aot.dims import Specialize
from tcbuild.aot.errors import ModelError, SpecError
from tcbuild.formats import Artifact, TcbuildError

BATCH, WIDTH = 64, 32


class Normed(nn.Module):
    """A batch norm, and another way in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [8, 4]."""
        x = self.norm(self.linear(x))
        return torch.tanh(x) if self.training else torch.relu(x)


class Dropped(nn.Module):
    """A dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.25)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Take x, float32 [BATCH, WIDTH]."""
        return self.drop(x), x * 2


def spec(model: Callable[[], nn.Module], shape: tuple[int, ...], **options: Any) -> Spec:
    """Return the spec of a model that takes one tensor of ones."""

    def made() -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return model().eval()

    def inputs(_: Mapping[str, int]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (torch.randn(shape, generator=torch.Generator().manual_seed(1)),), {}

    return Spec(name="modes", model=made, inputs=inputs, **options)


NORMED = spec(Normed, (8, 4), training=(False, True))


@pytest.fixture(scope="module")
def normed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the artifact of a Normed for both modes of the model."""
    path = tmp_path_factory.mktemp("normed") / "normed.tcb"
    aot.build(NORMED, path)
    return path


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the artifact of a Normed without trainable weights, for both grad modes."""
    path = tmp_path_factory.mktemp("frozen") / "frozen.tcb"
    aot.build(spec(untrainable, (8, 4), grad=("off", "on")), path)
    return path


def untrainable() -> nn.Module:
    """Return a Normed none of whose weights asks for a gradient."""
    return Normed().requires_grad_(False)


def call(count: int = 1) -> list[Tensor]:
    """Return inputs of a Normed."""
    random = torch.Generator().manual_seed(2)
    return [torch.randn(8, 4, generator=random) for _ in range(count)]


def test_each_mode_is_answered_by_its_own_variant_and_state_is_shared(normed: Path) -> None:
    fallback, eager = NORMED.model(), NORMED.model()
    served = runtime.load(normed, fallback=fallback, on_miss="raise")
    with torch.no_grad():
        for x, training in zip(call(6), [False, True, True, False, True, False], strict=True):
            fallback.train(training)
            eager.train(training)
            torch.testing.assert_close(served(x), eager(x))
    for name, tensor in eager.state_dict().items():
        torch.testing.assert_close(fallback.state_dict()[name], tensor)
    assert int(served.state()["norm.num_batches_tracked"]) == 3
    assert {name.partition("@")[0]: n for name, n in served.stats().hits.items()} == {
        "static": 3,
        "train": 3,
    }


def test_a_model_that_is_in_neither_mode_is_a_miss(normed: Path) -> None:
    fallback = NORMED.model()
    served = runtime.load(normed, fallback=fallback, on_miss="raise")
    (x,) = call()
    with torch.no_grad():
        served(x)
        fallback.train()
        fallback.get_submodule("norm").eval()
        for _ in range(2):
            with pytest.raises(runtime.MissError) as caught:
                served(x)
            assert "module.training: expected" in caught.value.found
            assert "found all but norm" in caught.value.found


def test_without_a_fallback_the_caller_of_load_says_the_mode(normed: Path) -> None:
    eager = NORMED.model()
    (x,) = call()
    with torch.no_grad():
        for training in (False, True):
            served = runtime.load(normed, on_miss="raise", training=training)
            torch.testing.assert_close(served(x), eager.train(training)(x))
            assert sum(served.stats().hits.values()) == 1


def test_a_swap_of_weights_reaches_both_modes(normed: Path) -> None:
    fallback, eager = NORMED.model(), NORMED.model()
    served = runtime.load(normed, fallback=fallback, on_miss="raise")
    state = {name: t + 1 if t.is_floating_point() else t for name, t in eager.state_dict().items()}
    eager.load_state_dict(state)
    served.load_weights(state)
    with torch.no_grad():
        for x, training in zip(call(3), [False, True, False], strict=True):
            fallback.train(training)
            torch.testing.assert_close(served(x), eager.train(training)(x))


def test_the_command_of_the_runtime_plays_both_modes(
    normed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tcbuild.runtime.__main__ import main

    assert main([str(normed)]) == 0
    told = capsys.readouterr().out
    assert "  static@" in told
    assert "  train@" in told


def test_dropout_draws_anew_and_from_torchs_seed(tmp_path: Path) -> None:
    path = tmp_path / "dropped.tcb"
    report = aot.build(spec(Dropped, (BATCH, WIDTH), training=(True,)), path)
    assert [row.output for row in report.verification] == ["output[0]", "output[1]"]
    assert [row.allowed == float("inf") for row in report.verification] == [True, False]
    served = runtime.load(path, on_miss="raise", training=True)
    x = torch.ones(BATCH, WIDTH)
    with torch.no_grad():
        torch.manual_seed(3)
        first, second = served(x)[0], served(x)[0]
        torch.manual_seed(3)
        assert torch.equal(served(x)[0], first)
        state = torch.get_rng_state()
        served.warmup()
        assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(first, second)
    kept = first != 0
    assert torch.allclose(first[kept], torch.tensor(1 / 0.75))
    share = float(kept.double().mean())
    assert abs(share - 0.75) < 5 * (0.75 * 0.25 / x.numel()) ** 0.5  # five standard deviations


def test_calls_that_record_gradients(frozen: Path) -> None:
    eager = make_module(spec(untrainable, (8, 4)))
    fallback = copy.deepcopy(eager)
    served = runtime.load(frozen, fallback=fallback, on_miss="raise")
    (x,) = call()
    for enabled in (False, True, False, True):
        with torch.set_grad_enabled(enabled):
            made = served(x)
            torch.testing.assert_close(made, eager(x))
            assert not made.requires_grad
    assert sorted(served.stats().hits.values()) == [2, 2]
    with pytest.raises(runtime.MissError, match=r"x.requires_grad: expected False, found True"):
        served(x.clone().requires_grad_())
    fallback.get_parameter("linear.bias").requires_grad_()  # from now on eager's answer has a graph
    with pytest.raises(runtime.MissError, match=r"module.trainable: expected False, found True"):
        served(x)
    with torch.no_grad():
        served(x)


def test_one_library_for_both_grad_modes(frozen: Path) -> None:
    with Artifact(frozen) as artifact:
        files = [v.files["model.so"] for v in artifact.manifest.variants if v.form == "library"]
    assert len(files) == 2
    assert len(set(files)) == 1


def test_without_a_fallback_the_weights_are_those_of_the_build(frozen: Path) -> None:
    served = runtime.load(frozen, on_miss="raise")
    served(*call())
    assert sum(served.stats().hits.values()) == 1


def test_weights_that_ask_for_gradients_are_refused() -> None:
    with pytest.raises(ModelError) as caught:
        make_module(spec(Normed, (8, 4), grad=("on",)))
    assert "found 'linear.weight' (4 in all), which asks for a gradient" in str(caught.value)
    assert "requires_grad_(False)" in caught.value.tip


class Branches(nn.Module):
    """Answers otherwise while gradients are recorded, and then asks for one."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = [torch.zeros(4, requires_grad=True)]

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [8, 4]."""
        return x + self.hidden[0] if torch.is_grad_enabled() else x - 1


def test_an_answer_that_asks_for_a_gradient_is_found(tmp_path: Path) -> None:
    """By the verification: the tensor is hidden from the check of the model's weights."""
    with pytest.raises(TcbuildError, match="asks for a gradient"):
        aot.build(spec(Branches, (8, 4), grad=("on",)), tmp_path / "branches.tcb")


def test_the_plan_names_the_modes() -> None:
    both = replace(NORMED, training=(False, True), grad=("off", "on"))
    assert [job.id.partition("@")[0] for job in Plan.of(both).jobs] == [
        *("static", "grad", "train", "train,grad"),
    ]
    sized = replace(both, dims={"n": Specialize(values=(2,))}, shapes={"x": ("n",)})
    names = [job.id.partition("@")[0] for job in Plan.of(sized).jobs]
    assert names == ["n=2", "n=2,grad", "n=2,train", "n=2,train,grad"]


@pytest.mark.parametrize(
    "modes",
    [
        *({"training": modes} for modes in ((), (1,), (True, True), ("on",))),
        *({"grad": modes} for modes in ((), ("yes",), (True,), ("on", "off", "on"))),
    ],
    ids=str,
)
def test_modes_that_are_none(modes: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="expected one or both of"):
        replace(NORMED, **modes)


def test_a_part_in_training_mode_is_refused() -> None:
    def mixed() -> nn.Module:
        made = NORMED.model()
        made.get_submodule("norm").train()
        return made

    make_module(replace(NORMED, model=mixed, training=(False,)))
    with pytest.raises(ModelError, match="found a module in training mode"):
        make_module(replace(NORMED, model=mixed))


def test_autocast_around_the_build_is_no_part_of_it(tmp_path: Path) -> None:
    path, x = tmp_path / "linear.tcb", torch.randn(3, 4)
    made = spec(lambda: nn.Linear(4, 4), (3, 4))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        aot.build(made, path)
    with torch.no_grad():
        answer = runtime.load(path, on_miss="raise")(x)
        torch.testing.assert_close(answer, make_module(made)(x))
