"""A build in parts, by several machines: the same bytes as in one piece, or an error that says what is wrong."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tcbuild import aot, runtime
from tcbuild.aot.dims import Pad, Specialize
from tcbuild.aot.errors import MergeError, NoJobError
from tcbuild.aot.merge import merge
from tcbuild.aot.plan import Plan
from tcbuild.formats import Artifact, FormatError, Manifest

from .. import models
from ..conftest import CommandLine, Rewrite, one_at_a_time

PARTS = 2


class Tied(nn.Module):
    """Tied weights, one tensor as two buffers, and constants that are other ones for each size."""

    left: Tensor
    right: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight
        both = torch.randn(8)
        self.register_buffer("left", both)
        self.register_buffer("right", both)

    def forward(self, ids: Tensor) -> Tensor:
        """Take ids, int64 [rows, seq]."""
        rows = ids.shape[0]
        made = self.embed(ids) + (self.left if rows % 2 else self.right)
        made = made * torch.tensor([float(rows % 3)] * 8)
        logits: Tensor = self.head(torch.tanh(made))
        return logits


def call(sizes: dict[str, int]) -> tuple[tuple[Tensor], dict[str, Tensor]]:
    """Return a call of Tied."""
    random = torch.Generator().manual_seed(0)
    return (torch.randint(11, (sizes["rows"], sizes["seq"]), generator=random),), {}


SPEC = aot.Spec(
    name="tied",
    model=lambda: models.seeded(Tied),
    inputs=call,  # type: ignore[arg-type]
    dims={"rows": Specialize(values=(2, 3, 5)), "seq": Pad(sizes=(6,))},
    shapes={"ids": ("rows", "seq")},
    source="tests.aot.test_merge:Tied",
)


@pytest.fixture(scope="module")
def made(shared_folder: Path) -> Path:
    """Return a folder with whole.tcb and both parts of it, part-1 and part-2."""
    folder = shared_folder / "parts"
    with one_at_a_time(folder) as first:
        if first:
            folder.mkdir()
            for index in range(1, PARTS + 1):
                aot.build(SPEC, folder / f"part-{index}", shard=(index, PARTS))
            aot.build(SPEC, folder / "whole.tcb")
    return folder


def test_the_plan_says_which_part_has_which_jobs() -> None:
    plan = Plan.of(SPEC)
    parts = [plan.part(index, PARTS) for index in (1, 2)]
    assert [[job.id.partition("@")[0] for job in part.jobs] for part in parts] == [
        ["rows=2,seq=6", "rows=5,seq=6"],
        ["rows=3,seq=6"],
    ]
    with pytest.raises(NoJobError, match="found 4 parts, expected at most 3"):
        plan.part(1, 4)


def test_joined_parts_are_the_whole(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "joined.tcb"
    report = merge([made / "part-2", made / "part-1"], out)
    assert out.read_bytes() == (made / "whole.tcb").read_bytes()
    assert [job.id for job in report.jobs] == [job.id for job in Plan.of(SPEC).jobs]
    with torch.no_grad():
        served = runtime.load(out, on_miss="raise")
        for rows in (2, 3, 5):
            args, _ = call({"rows": rows, "seq": 4})
            torch.testing.assert_close(served(*args), SPEC.model()(*args))


def test_a_part_is_not_served(made: Path) -> None:
    with pytest.raises(FormatError, match="found part 1 of 2, by itself"):
        runtime.load(made / "part-1")


def refused(parts: list[Path], tmp_path: Path) -> str:
    """Return what a merge that fails says; nothing is left of it."""
    with pytest.raises(MergeError) as raised:
        merge(parts, tmp_path / "joined.tcb")
    assert not list(tmp_path.glob("*joined*"))
    return str(raised.value)


def test_missing_doubled_and_foreign_parts(made: Path, tmp_path: Path) -> None:
    one, two, whole = (made / name for name in ("part-1", "part-2", "whole.tcb"))
    assert "found no part 2 of 2" in refused([one], tmp_path)
    assert "--shard 2/2" in refused([one], tmp_path)
    assert f"{one}: the parts do not make one artifact: found part 1 of 2, as {one} is" in refused(
        [one, two, one], tmp_path
    )
    assert f"{whole}: " in refused([one, whole], tmp_path)
    assert "found a whole artifact" in refused([whole], tmp_path)


def shard(**changed: object) -> Callable[[Manifest], Manifest]:
    """Return an edit of what a part says of itself."""

    def change(manifest: Manifest) -> Manifest:
        assert manifest.shard is not None
        return replace(manifest, shard=replace(manifest.shard, **changed))  # type: ignore[arg-type]

    return change


def origin(name: str) -> Callable[[Manifest], Manifest]:
    """Return an edit of one digest."""

    def change(manifest: Manifest) -> Manifest:
        assert manifest.shard is not None
        assert name in manifest.shard.origin
        return shard(origin={**manifest.shard.origin, name: "sha256:other"})(manifest)

    return change


OTHER: dict[str, tuple[Callable[[Manifest], Manifest], str]] = {
    "spec": (origin("spec"), ": spec: "),
    "source": (origin("source test_merge.py"), ": source test_merge.py: "),
    "weights": (origin("weights"), ": weights: "),
    "environment": (
        lambda manifest: replace(manifest, environment={**manifest.environment, "torch": "1.0"}),
        ": environment torch: the parts do not make one artifact: found 1.0, expected 2.",
    ),
    "producer": (lambda manifest: replace(manifest, producer="tcbuild 9"), ": producer: "),
    "frozen": (
        lambda manifest: replace(manifest, frozen={"width": "9"}),
        ": the model's value of ",
    ),
    "verified": (lambda manifest: replace(manifest, checks=()), ": verified: "),
}


@pytest.mark.parametrize("what", OTHER)
def test_parts_that_are_made_of_other_things(
    made: Path, tmp_path: Path, rewrite: Rewrite, what: str
) -> None:
    change, says = OTHER[what]
    part = rewrite(made / "part-2", change)
    part = part.rename(tmp_path / "other")
    assert f"{part}{says}" in refused([made / "part-1", part], tmp_path)


def test_a_part_of_another_plan(made: Path, tmp_path: Path) -> None:
    fewer = replace(SPEC, dims={**SPEC.dims, "rows": Specialize(values=(2, 3))})
    part = tmp_path / "part-2"
    aot.build(fewer, part, shard=(2, 2))
    assert ": plan job 3: " in refused([made / "part-1", part], tmp_path)


def test_a_damaged_part(made: Path, tmp_path: Path) -> None:
    data = bytearray((made / "part-2").read_bytes())
    data[-100] ^= 1
    (tmp_path / "part-2").write_bytes(data)
    with pytest.raises(FormatError):
        merge([made / "part-1", tmp_path / "part-2"], tmp_path / "joined.tcb")


def test_the_commands(
    tcbuild: CommandLine, tiny_artifact: Path, tiny_spec_dir: Path, tmp_path: Path
) -> None:
    spec = tiny_spec_dir / "tcbuild.toml"
    with Artifact(tiny_artifact) as artifact:
        jobs = [v.id for v in artifact.manifest.variants if v.form == "library"]
    planned = tcbuild("plan", spec, "--shards", str(len(jobs)))
    lines = [line for i, id in enumerate(jobs, 1) for line in (f"{i}/{len(jobs)}", f"  {id}")]
    assert planned.stdout.splitlines()[1:] == lines
    parts = []
    for index in range(1, len(jobs) + 1):
        parts.append(tmp_path / f"part-{index}")
        done = tcbuild("build", spec, "--shard", f"{index}/{len(jobs)}", "-o", parts[-1])
        assert done.returncode == 0, done.stderr
    inspected = tcbuild("inspect", parts[0])
    assert f"part 1 of {len(jobs)}" in inspected.stdout
    joined = tmp_path / "joined.tcb"
    done = tcbuild("merge", *reversed(parts), "-o", joined)
    assert done.returncode == 0, done.stderr
    assert joined.read_bytes() == tiny_artifact.read_bytes()
    failed = tcbuild("merge", tiny_artifact, "-o", joined)
    assert (failed.returncode, "found a whole artifact" in failed.stderr) == (27, True)
    wrong = tcbuild("build", spec, "--shard", "3/2", "-o", joined)
    assert (wrong.returncode, "'3/2' is no part such as 1/4" in wrong.stderr) == (2, True)
