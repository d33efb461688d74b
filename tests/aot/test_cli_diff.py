"""`tcbuild diff`: what two artifacts have that is not the same."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tcbuild.formats import Artifact, Manifest
from tcbuild.formats.difference import between
from tcbuild.formats.guard import Guard
from tcbuild.formats.trial import Trial

from ..conftest import CommandLine, Rewrite

Change = Callable[[Manifest], Manifest]


def first_variant(manifest: Manifest, **changes: object) -> Manifest:
    """Return a manifest whose first variant has other fields."""
    first, *others = manifest.variants
    return replace(manifest, variants=(replace(first, **changes), *others))  # type: ignore[arg-type]


def other_guard(manifest: Manifest) -> Manifest:
    """Return a manifest whose first variant has other guards on the thread's settings."""
    guards = [
        replace(guard, expected=True) if guard.fact == "deterministic" else guard
        for guard in manifest.variants[0].guards
        if guard.fact != "modes"
    ]
    guards.append(Guard(subject="@dims", fact="relation", expected="batch % 2 == 0"))
    return first_variant(manifest, guards=tuple(guards))


def tuned(candidate: str, microseconds: float) -> Change:
    """Return what gives a manifest a search with one way in it."""
    trial = Trial(candidate=candidate, chosen=True, microseconds=microseconds)
    return lambda manifest: first_variant(manifest, trials=(trial,))


def lines(one: Path, other: Path) -> list[str]:
    with Artifact(one) as first, Artifact(other) as second:
        return [f"{difference.part} {difference}" for difference in between(first, second)]


def test_the_same(tcbuild: CommandLine, tiny_artifact: Path, rewrite: Rewrite) -> None:
    done = tcbuild("diff", tiny_artifact, rewrite(tiny_artifact))
    assert (done.returncode, done.stdout) == (0, "the same\n"), done.stderr


def test_without_torch(tcbuild: CommandLine, tiny_artifact: Path, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('torch')", encoding="utf-8")
    done = tcbuild("diff", tiny_artifact, tiny_artifact, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            other_guard,
            [
                "guards ID: process.deterministic: False -> True",
                "guards ID: process.modes: only in the first (0)",
                "guards ID: dims.relation: only in the second (batch % 2 == 0)",
            ],
        ),
        (
            lambda manifest: replace(
                manifest, environment={**manifest.environment, "torch": "2.99.0"}, name="other"
            ),
            ["name name: tiny -> other", "environment torch: TORCH -> 2.99.0"],
        ),
        (
            lambda manifest: first_variant(
                manifest, options={**manifest.variants[0].options, "march": "other"}
            ),
            ["options ID: march: MARCH -> other"],
        ),
        (tuned("default", 3.0), ["tuning ID: only in the second (default)"]),
        (lambda manifest: replace(manifest, checks=manifest.checks[:-1]), ["checks CHECK"]),
    ],
)
def test_words(change: Change, expected: list[str], tiny_artifact: Path, rewrite: Rewrite) -> None:
    found = lines(tiny_artifact, rewrite(tiny_artifact, change))
    with Artifact(tiny_artifact) as artifact:
        manifest = artifact.manifest
    variant, check = manifest.variants[0], manifest.checks[-1]
    named = f"{check.variant} {check.sizes} {check.output}"
    for mark, text in (
        ("ID", variant.id),
        ("MARCH", variant.options["march"]),
        ("TORCH", manifest.environment["torch"]),
        ("CHECK", f"{named}: only in the first (error {check.error:g})"),
    ):
        expected = [line.replace(mark, text) for line in expected]
    assert found == expected


def test_tuning_that_measured_something_else(tiny_artifact: Path, rewrite: Rewrite) -> None:
    one = rewrite(tiny_artifact, tuned("default", 3.0))
    one = one.rename(one.with_name("one.tcb"))
    (found,) = lines(one, rewrite(tiny_artifact, tuned("default", 4.0)))
    assert found.endswith("what was measured: 1 ways -> 1 ways")
    (found,) = lines(one, rewrite(tiny_artifact, tuned("descent", 3.0)))
    assert found.endswith(": default -> descent")


def test_another_build(
    tcbuild: CommandLine, tiny_spec_dir: Path, tiny_artifact: Path, tmp_path: Path
) -> None:
    for name in ("model.py", "tcbuild.toml"):
        shutil.copy(tiny_spec_dir / name, tmp_path / name)
    model, spec = tmp_path / "model.py", tmp_path / "tcbuild.toml"
    model.write_text(model.read_text().replace("manual_seed(0)", "manual_seed(7)"))
    spec.write_text(spec.read_text().replace("max = 64", "max = 32"))
    other = tmp_path / "other.tcb"
    done = tcbuild("build", spec, "-o", other)
    assert done.returncode == 0, done.stderr
    done = tcbuild("diff", tiny_artifact, other, "--json")
    assert done.returncode == 3, done.stderr
    found = json.loads(done.stdout)["differences"]
    told = {(d["part"], d["subject"].split("@")[0]): (d["first"], d["second"]) for d in found}
    assert told["weights", "linear.weight"] == ("some values", "other values")
    assert told["weights", "linear.bias"] == ("some values", "other values")
    assert told["variants", "batch=2..64"] == ("library, batch=2..64", None)
    assert told["variants", "batch=2..32"] == (None, "library, batch=2..32")
    text = tcbuild("diff", tiny_artifact, other).stdout
    assert "weights\n  linear.bias: some values -> other values" in text


def test_no_artifact(tcbuild: CommandLine, tiny_artifact: Path, tiny_spec_dir: Path) -> None:
    done = tcbuild("diff", tiny_artifact, tiny_spec_dir / "model.py")
    assert done.returncode == 10
    assert "this is not a .tcb artifact" in done.stderr
