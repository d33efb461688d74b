"""The search for the fastest code: what is kept, what is recorded, and what one bad candidate costs."""

import fcntl
import statistics
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tcbuild import aot, runtime
from tcbuild.aot import carried, measuring
from tcbuild.aot.candidate import Candidate
from tcbuild.aot.dims import Dynamic
from tcbuild.aot.errors import CompileError, SpecError
from tcbuild.aot.progress import Event
from tcbuild.aot.spec import MAX_AUTOTUNE
from tcbuild.aot.tune import Tune
from tcbuild.aot.tuning import contest, search, trials
from tcbuild.aot.tuning.record import TuningRecord
from tcbuild.formats import Artifact
from tcbuild.formats.trial import Trial
from tcbuild.formats.variant import Variant
from tcbuild.runtime import samples
from tcbuild.runtime.contest import is_slower

from . import operator_in_a_contest

DEFAULT = Candidate()
OTHER = Candidate(name="other", options={"epilogue_fusion": False})
BROKEN = Candidate(name="broken", options={"cpp.inject_relu_bug_TESTING_ONLY": "compile_error"})
WRONG = Candidate(name="wrong", options={"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"})

Offer = Callable[..., None]


class Model(nn.Module):
    """Counts its calls; what it computes depends on whether the batch is even."""

    count: Tensor

    def __init__(self, *, operator: bool = False) -> None:
        super().__init__()
        self.dense = nn.Linear(8, 8)
        self.register_buffer("count", torch.zeros(()))
        self.operator = operator

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [n, 8]."""
        self.count.add_(1)
        if self.operator:
            x = operator_in_a_contest.identity(x)
        x = self.dense(x).relu()
        return x * 2 if x.shape[0] % 2 == 0 else x


def spec(**options: Any) -> aot.Spec:
    """Return a spec that asks for a search."""
    made = options.pop("model", None) or Model(**options)
    return aot.Spec(
        name="tuned",
        model=lambda: made.eval(),
        inputs=lambda sizes: ((torch.randn(sizes["n"], 8),), {}),
        dims={"n": Dynamic(min=2, max=64, tune=16)},
        shapes={"x": ("n",)},
        mode=MAX_AUTOTUNE,
        embed_graph=False,
        verify=False,
    )


def build(asked: aot.Spec, folder: Path) -> tuple[Variant, list[Event]]:
    """Build; return the only variant, and what was told meanwhile."""
    told: list[Event] = []
    aot.build(asked, folder / "tuned.tcb", progress=told.append)
    with Artifact(folder / "tuned.tcb") as artifact:
        (variant,) = artifact.manifest.variants
    return variant, told


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Offer:
    """Give a function that sets what the search tries."""

    def set_to(*offered: Candidate) -> None:
        monkeypatch.setattr(search, "candidates", lambda *_: offered)
        monkeypatch.setattr(search, "TIMING", 2.0)  # those that are alike are timed to the end

    return set_to


def by_name(variant: Variant) -> Mapping[str, Trial]:
    return {trial.candidate: trial for trial in variant.trials}


def states(told: list[Event]) -> dict[str, list[str]]:
    """Return the states that each candidate was in, in order."""
    found: dict[str, list[str]] = {}
    for event in told:
        if event.standing is not None:
            states = found.setdefault(event.standing.candidate, [])
            if states[-1:] != [event.standing.state]:
                states.append(event.standing.state)
    return found


def test_the_fastest_is_kept_and_recorded(tmp_path: Path, offer: Offer) -> None:
    offer(DEFAULT, OTHER, BROKEN)
    asked = spec()
    variant, before = build(asked, tmp_path)
    trials = by_name(variant)
    (chosen,) = (trial for trial in variant.trials if trial.chosen)
    assert [*trials] == ["default", "other", "broken"]
    assert chosen.microseconds <= search.CLOSE * min(
        trial.microseconds for trial in variant.trials if trial.microseconds
    )
    assert trials["broken"].problem.startswith("n=2..64@cpu")
    assert "compilation failed" in trials["broken"].problem
    assert not trials["broken"].microseconds
    assert trials["other"].options == {"epilogue_fusion": "False"}
    assert any("n % 2" in str(guard) for guard in variant.guards)

    model = runtime.load(tmp_path / "tuned.tcb", on_miss="raise")
    with torch.no_grad():
        model(torch.randn(4, 8))
    assert model.state()["count"] == 1

    stood = states(before)
    assert stood["broken"] == ["compiling", "out"]
    (loser,) = {"default", "other"} - {chosen.candidate}
    assert stood[chosen.candidate][-1] == "chosen"
    assert stood[loser][-1] == "slower"
    assert all(stood[name][0] in ("compiling", "compiled") for name in (chosen.candidate, loser))
    last = [event.standing for event in before if event.standing][-1]
    assert last.decided
    assert last.microseconds > 0

    again, told = build(asked, tmp_path)
    assert not states(told)
    assert again.trials == variant.trials  # not measured anew
    assert [event.detail for event in told if event.stage == "tune"] == ["", "cached"]


def test_a_bad_candidate_costs_itself_only(
    tmp_path: Path, offer: Offer, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(DEFAULT, *(Candidate(name=name) for name in ("crash", "hang", "raise")))
    (tmp_path / "how").write_text("by name", encoding="utf-8")
    monkeypatch.setenv("HOW_TO_FAIL", str(tmp_path / "how"))
    monkeypatch.setattr(contest, "HANG", 12.0)
    monkeypatch.setattr(TuningRecord, "read", lambda _: ())
    variant, _ = build(spec(operator=True), tmp_path)
    trials = by_name(variant)
    assert trials["default"].chosen
    assert trials["crash"].problem == "its call ends the process with SIGSEGV"
    assert trials["hang"].problem == "its call hangs: no answer within 12 s"
    assert trials["raise"].problem.startswith("its call fails: ")
    assert not any(trial.microseconds for trial in variant.trials[1:])


def test_a_wrong_candidate_is_not_kept(
    tmp_path: Path, offer: Offer, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(WRONG, DEFAULT)
    ranking = trials.ranking
    monkeypatch.setattr(trials, "ranking", lambda measured: sorted(ranking(measured)))
    variant, told = build(spec(), tmp_path)
    found = by_name(variant)
    assert found["default"].chosen
    assert "against float64" in found["wrong"].problem
    assert states(told)["wrong"][-1] == "out"


def test_without_time_the_first_candidate_is_taken(tmp_path: Path, offer: Offer) -> None:
    offer(DEFAULT, OTHER)
    asked = aot.Spec(**{**vars(spec()), "tune": Tune(minutes=0.001)})
    variant, _ = build(asked, tmp_path)
    trials = by_name(variant)
    assert trials["default"].chosen
    assert trials["other"].problem.startswith("not compiled")


def test_a_graph_that_cannot_be_carried_is_compiled_here(
    tmp_path: Path, offer: Offer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise TypeError("no")

    monkeypatch.setattr(carried, "dump", refuses)
    monkeypatch.setattr(TuningRecord, "read", lambda _: ())
    offer(DEFAULT, OTHER)
    variant, _ = build(spec(), tmp_path)
    assert all(trial.microseconds for trial in variant.trials)


def test_a_compiler_that_dies_costs_its_candidate_only(
    tmp_path: Path, offer: Offer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "how").write_text("die", encoding="utf-8")
    monkeypatch.setenv("HOW_TO_FAIL", str(tmp_path / "how"))
    monkeypatch.setattr(TuningRecord, "read", lambda _: ())
    offer(DEFAULT, Candidate(name="other", options={"cpp.max_horizontal_fusion_size": 2}))
    variant, _ = build(spec(operator=True), tmp_path)
    trials = by_name(variant)
    assert trials["default"].chosen  # the first is compiled in the build's own process, too
    assert trials["other"].problem.startswith("the compiler's process ended with signal SIGKILL")


def test_waits_while_another_build_measures(
    tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contest, "HANG", 8.0)
    with Artifact(tiny_artifact) as artifact:
        variant = artifact.manifest.variants[0]
        target = variant.target
        assert target is not None
        call = samples.draw(artifact.manifest, variant, seed=0)
    entries = [contest.Entry(name="only", variant=variant.id, cuda_graph=False)]
    with measuring.lock(target).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        release = threading.Timer(25.0, fcntl.flock, [lock, fcntl.LOCK_UN])
        release.start()
        found = contest.run(tiny_artifact, call.tensors, entries, target, seconds=1.0)
        assert not release.is_alive()
    assert not found.problems
    assert found.seconds["only"]


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"minutes": 0.0}, "tune.minutes"),
        ({"minutes": float("inf")}, "tune.minutes"),
        ({"candidates": 0}, "tune.candidates"),
    ],
)
def test_limits_that_are_none(limits: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        aot.Spec(**{**vars(spec()), "tune": Tune(**limits)})


def test_the_sign_test_needs_a_clear_difference() -> None:
    fast = [1.0, 1.1, 0.9, 1.0, 1.05, 0.95, 1.0, 1.0]
    assert is_slower([value * 1.2 for value in fast], fast)
    assert not is_slower([value * 1.005 for value in fast], fast)  # it does not matter
    assert not is_slower(fast, [value * 1.2 for value in fast])
    mixed = [value * (1.2 if i % 2 else 0.9) for i, value in enumerate(fast)]
    assert not is_slower(mixed, fast)
    assert statistics.median(mixed) > 1.0


def test_where_nothing_compiles_the_compiler_is_quoted(tmp_path: Path, offer: Offer) -> None:
    offer(BROKEN)
    with pytest.raises(CompileError, match="a library"):
        build(spec(), tmp_path)
    assert not (tmp_path / "tuned.tcb").exists()
