"""`--tuning-from`: what an artifact's search has chosen is chosen again, or refused by name."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tcbuild import aot
from tcbuild.aot.candidate import Candidate
from tcbuild.aot.dims import Specialize
from tcbuild.aot.errors import TuningError
from tcbuild.aot.job_cache import JobCache
from tcbuild.aot.spec import MAX_AUTOTUNE
from tcbuild.aot.tuning import contest, search
from tcbuild.formats import Artifact, Manifest
from tcbuild.formats.difference import between
from tcbuild.formats.trial import Trial

from ..conftest import Rewrite, one_at_a_time

OFFERED = (Candidate(), Candidate(name="other", options={"epilogue_fusion": False}))


class Model(nn.Module):
    """One layer."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.dense = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [n, width]."""
        made: Tensor = self.dense(x).relu()
        return made


def spec(*batches: int, width: int = 8) -> aot.Spec:
    """Return a spec that asks for a search."""
    made = Model(width).eval()
    return aot.Spec(
        name="tuned",
        model=lambda: made,
        inputs=lambda sizes: ((torch.ones(sizes["n"], width),), {}),
        dims={"n": Specialize(values=batches)},
        shapes={"x": ("n",)},
        mode=MAX_AUTOTUNE,
        embed_graph=False,
    )


@pytest.fixture(autouse=True)
def offered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Offer two ways; give the jobs that were measured."""
    measured: list[str] = []
    run = contest.run

    def told(path: Path, tensors: object, entries: list[contest.Entry], *rest: object) -> object:
        measured.append(entries[0].variant.split("@")[0])
        return run(path, tensors, entries, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(search, "candidates", lambda *_: OFFERED)
    monkeypatch.setattr(search, "TIMING", 2.0)  # the two are equally fast
    monkeypatch.setattr(contest, "run", told)
    return measured


@pytest.fixture(scope="module")
def old(shared_folder: Path) -> Path:
    """Return an artifact that was tuned."""
    path = shared_folder / "old.tcb"
    with one_at_a_time(path) as first, pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "candidates", lambda *_: OFFERED)
        patch.setattr(search, "TIMING", 2.0)
        if first:
            aot.build(spec(2), path)
    return path


def test_the_same_choices_give_the_same_bytes(
    old: Path, tmp_path: Path, offered: list[str]
) -> None:
    cache = JobCache(jobs=tmp_path / "jobs")
    report = aot.build(spec(2), tmp_path / "new.tcb", tuning_from=old, cache=cache)
    assert not offered
    assert [job.tuning for job in report.jobs] == ["reused"]
    assert report.tuning_from is not None
    assert report.tuning_from.sha256 == hashlib.sha256(old.read_bytes()).hexdigest()
    assert f"{old} (sha256 {report.tuning_from.sha256}): 1 reused" in str(report)
    with Artifact(old) as one, Artifact(tmp_path / "new.tcb") as two:
        assert between(one, two) == []
    assert (tmp_path / "new.tcb").read_bytes() == old.read_bytes()


def test_what_is_new_is_searched(old: Path, tmp_path: Path, offered: list[str]) -> None:
    report = aot.build(spec(2, 5), tmp_path / "new.tcb", tuning_from=old)
    assert offered == ["n=5"]
    assert report.tuning_from is not None
    assert [job.partition("@")[0] for job in report.tuning_from.reused] == ["n=2"]
    assert [job.partition("@")[0] for job in report.tuning_from.new] == ["n=5"]
    assert str(report).count("1 new: n=5@") == 1
    with Artifact(old) as one, Artifact(tmp_path / "new.tcb") as two:
        before, after = (a.manifest.variants[0].trials for a in (one, two))
    assert before == after


def environment(**values: str) -> Callable[[Manifest], Manifest]:
    """Return what gives a manifest other values of its environment."""
    return lambda manifest: replace(manifest, environment={**manifest.environment, **values})


def untuned(manifest: Manifest) -> Manifest:
    return replace(manifest, variants=tuple(replace(v, trials=()) for v in manifest.variants))


@pytest.mark.parametrize(
    ("change", "where", "found"),
    [
        (environment(torch="2.0.0"), "rewritten.tcb: torch", "2.0.0"),
        (environment(vector_flags="none"), "rewritten.tcb: vector_flags", "none"),
        (untuned, "rewritten.tcb", "no tuning in it"),
    ],
)
def test_refused(
    change: Callable[[Manifest], Manifest],
    where: str,
    found: str,
    old: Path,
    tmp_path: Path,
    rewrite: Rewrite,
) -> None:
    with pytest.raises(TuningError) as caught:
        aot.build(spec(2), tmp_path / "new.tcb", tuning_from=rewrite(old, change))
    assert str(caught.value.where).endswith(where)
    assert caught.value.found == found
    assert not (tmp_path / "new.tcb").exists()


def test_another_shape_is_refused(old: Path, tmp_path: Path) -> None:
    with pytest.raises(
        TuningError,
        match=r"n=2@.*found x: float32 \['n', 8\] contiguous, expected x: float32 \['n', 16\]",
    ):
        aot.build(spec(2, width=16), tmp_path / "new.tcb", tuning_from=old)


def test_a_choice_that_is_no_more(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "candidates", lambda *_: (Candidate(name="new"),))
    with pytest.raises(
        TuningError, match=r"found the choice '(default|other)', expected one of new"
    ):
        aot.build(spec(2), tmp_path / "new.tcb", tuning_from=old)


@pytest.mark.parametrize(
    ("now", "found", "expected"),
    [
        ({"cpp.simdlen": 256}, "no cpp.simdlen", "cpp.simdlen = 256"),
        ({"emulate_precision_casts": True}, "no emulate_precision_casts", "= True"),
    ],
)
def test_other_options_under_the_same_name(
    now: dict[str, object],
    found: str,
    expected: str,
    old: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    same = [replace(one, options={**one.options, **now}) for one in OFFERED]
    monkeypatch.setattr(search, "candidates", lambda *_: same)
    said = rf"found the choice '(default|other)' with {found}, expected .*{expected}, as this build"
    with pytest.raises(TuningError, match=said):
        aot.build(spec(2), tmp_path / "new.tcb", tuning_from=old)


def test_options_of_the_record_that_are_no_more(
    old: Path, tmp_path: Path, rewrite: Rewrite
) -> None:
    def change(manifest: Manifest) -> Manifest:
        trials = (Trial(candidate="default", chosen=True, options={"cpp.simdlen": "128"}),)
        return replace(
            manifest, variants=tuple(replace(v, trials=trials) for v in manifest.variants)
        )

    with pytest.raises(TuningError, match=r"with cpp.simdlen = 128, expected no cpp.simdlen"):
        aot.build(spec(2), tmp_path / "new.tcb", tuning_from=rewrite(old, change))


def test_a_build_that_does_not_search(old: Path, tmp_path: Path) -> None:
    with pytest.raises(TuningError, match="mode = 'default'"):
        aot.build(replace(spec(2), mode="default"), tmp_path / "new.tcb", tuning_from=old)
