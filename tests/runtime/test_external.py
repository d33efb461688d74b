"""Artifacts with their weights in a file beside them: one file for several, or none, or another one."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tcbuild import aot, runtime
from tcbuild.aot.merge import merge
from tcbuild.formats import Artifact, FormatError, Manifest
from tcbuild.formats.difference import between
from tcbuild.formats.errors import DigestError, MissingWeightsError, WeightsError
from tcbuild.runtime import weights

from .. import models
from ..conftest import ROOT, CommandLine, Rewrite, one_at_a_time, python_path
from .conftest import Script, same

NET = replace(models.NET, weights="external")
FILE = "net.weights.safetensors"
ROWS, WIDTH, TABLES = 65_536, 64, 4  # each table is 16 MiB


class Wide(nn.Module):
    """Large tables, and a counter that it writes to."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(ROWS, WIDTH) for _ in range(TABLES))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, ids: Tensor) -> Tensor:
        """Take ids, int64 [n]; return float32 [n, WIDTH]."""
        self.seen += 1
        made = torch.zeros(())
        for table in self.tables:
            made = made + table(ids)
        return made * self.seen


WIDE = aot.Spec(
    name="wide",
    model=lambda: models.seeded(Wide),
    inputs=lambda _: ((torch.arange(8),), {}),
    source="tests.runtime.test_external:Wide",
    weights="external",
)


def made_once(folder: Path, build: Callable[[Path], object]) -> Path:
    with one_at_a_time(folder) as first:
        if first:
            folder.mkdir()
            build(folder)
    return folder


@pytest.fixture(scope="module")
def net_folder(shared_folder: Path, net_artifact: Path) -> Path:
    """Return a folder with net.tcb and its weights: what is compiled is that of `net_artifact`."""

    def build(folder: Path) -> None:
        report = aot.build(NET, folder / "net.tcb")
        assert report.compiled == 0
        assert report.weights_file == folder / FILE
        assert FILE in str(report)

    return made_once(shared_folder / "external", build)


@pytest.fixture
def net(net_folder: Path, tmp_path: Path) -> Path:
    """Return a copy of net.tcb, with its weights beside it."""
    return Path(shutil.copytree(net_folder, tmp_path / "copy")) / "net.tcb"


@pytest.fixture(scope="module")
def wide(shared_folder: Path) -> Path:
    folder = made_once(shared_folder / "wide", lambda made: aot.build(WIDE, made / "wide.tcb"))
    return folder / "wide.tcb"


def served_right(model: runtime.Dispatcher) -> bool:
    args, _ = models.net_call()
    with torch.no_grad():
        return same(model(*args), models.net()(*args))


def test_the_file_is_a_checkpoint_of_the_model(net_folder: Path, net_artifact: Path) -> None:
    stored = load_file(net_folder / FILE)
    state = models.net().state_dict()
    del state["head.weight"]  # tied to embed.weight
    assert stored.keys() == state.keys()
    assert all(torch.equal(stored[name], state[name]) for name in state)
    nbytes = sum(tensor.nbytes for tensor in state.values())
    assert (net_folder / FILE).stat().st_size < nbytes + 1024
    with Artifact(net_folder / "net.tcb") as mine, Artifact(net_artifact) as other:
        assert mine.manifest.weights is not None
        assert mine.manifest.weights.nbytes() == nbytes
        assert "weights" in {section.name for section in other.manifest.sections}
        assert "weights" not in {section.name for section in mine.manifest.sections}
        assert mine.manifest.requires == ("external_weights",)


def test_answers_are_those_of_an_artifact_with_its_weights(
    net_folder: Path, net_artifact: Path
) -> None:
    one, other = (
        runtime.load(path, on_miss="raise") for path in (net_folder / "net.tcb", net_artifact)
    )
    with torch.no_grad():
        for seq in (1, 5, 16):
            args, _ = models.net_call(seq=seq)
            assert torch.equal(one(*args).logits, other(*args).logits)


def test_misses_are_answered_by_the_embedded_graph_and_the_module(net: Path) -> None:
    args, _ = models.net_call(batch=4)
    for fallback in (None, models.net()):
        model = runtime.load(net, fallback=fallback)
        with torch.no_grad():
            assert same(model(*args), models.net()(*args))
        assert sum(model.stats().fallbacks.values()) == 1


def test_both_files_may_move_and_the_weights_may_be_elsewhere(net: Path, tmp_path: Path) -> None:
    moved = net.rename(tmp_path / "renamed.tcb")
    there = tmp_path / "weights"
    (net.parent / FILE).rename(there)
    with pytest.raises(MissingWeightsError, match=f"renamed|{FILE}") as caught:
        runtime.load(moved)
    assert "weights=PATH" in caught.value.tip
    assert served_right(runtime.load(moved, on_miss="raise", weights=there))
    there.rename(tmp_path / FILE)
    assert served_right(runtime.load(moved, on_miss="raise"))


def test_two_artifacts_with_one_file(net: Path, tmp_path: Path) -> None:
    """The second one is built by itself; the first one's file has its weights, and more."""
    spec = replace(NET, name="again", verify=False, embed_graph=False)
    other = tmp_path / "again.tcb"
    aot.build(spec, other)
    (tmp_path / "again.weights.safetensors").unlink()
    shared = net.parent / FILE
    save_file({**load_file(shared), "of another model": torch.ones(3)}, tmp_path / "both")
    for file in (shared, tmp_path / "both"):
        assert served_right(runtime.load(other, on_miss="raise", weights=file))
        assert served_right(runtime.load(net, on_miss="raise", weights=file))


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4])


def of_another_shape(path: Path) -> None:
    save_file({**load_file(path), "small": torch.zeros(3)}, path)


def without_one(path: Path) -> None:
    save_file({k: v for k, v in load_file(path).items() if k != "small"}, path)


def of_another_model(path: Path) -> None:
    save_file({k: v + 1 for k, v in load_file(path).items()}, path)


WRONG: dict[Callable[[Path], None], type[FormatError]] = {
    flipped: DigestError,
    truncated: WeightsError,
    of_another_shape: WeightsError,
    without_one: WeightsError,
    of_another_model: DigestError,
    os.unlink: MissingWeightsError,
}


@pytest.mark.parametrize("spoil", WRONG)
def test_another_file_is_refused_before_anything_is_served(
    net: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(net.parent / FILE)
    with pytest.raises(FormatError) as caught:
        runtime.load(net)
    assert type(caught.value) is WRONG[spoil]
    assert FILE in caught.value.where


def test_a_path_for_an_artifact_that_has_its_weights(net_artifact: Path, net: Path) -> None:
    with pytest.raises(WeightsError, match="no weights in another file"):
        runtime.load(net_artifact, weights=net.parent / FILE)


def test_new_weights_come_from_a_file_or_an_artifact(net: Path, tmp_path: Path) -> None:
    state = {name: tensor + 1 for name, tensor in load_file(net.parent / FILE).items()}
    save_file(state, tmp_path / "new.safetensors")
    model = runtime.load(net, on_miss="raise")
    model.load_weights(tmp_path / "new.safetensors")
    eager = models.net()
    eager.load_state_dict({**state, "head.weight": state["embed.weight"]})
    args, _ = models.net_call()
    with torch.no_grad():
        assert same(model(*args), eager(*args))
    for source in (net, net.parent / FILE):  # back again
        model.load_weights(source)
        assert served_right(model)


def test_without_the_check_no_tensor_is_read(net: Path) -> None:
    flipped(net.parent / FILE)
    runtime.load(net, check_weights=False)


def test_who_needs_no_weights_needs_no_file(net: Path) -> None:
    (net.parent / FILE).unlink()
    with Artifact(net) as artifact:
        assert weights.load(artifact, only=[]) == {}


def test_a_module_that_has_the_weights_needs_no_file(net: Path) -> None:
    (net.parent / FILE).unlink()
    module = models.net()
    runtime.attach(module, net, on_miss="raise")
    args, _ = models.net_call()
    with torch.no_grad():
        assert same(module(*args), models.net()(*args))


def test_some_weights_only(net: Path) -> None:
    with Artifact(net) as artifact:
        assert sorted(weights.load(artifact, only=["small", "head.weight"])) == [
            "embed.weight",
            "head.weight",
            "small",
        ]


def test_the_commands(net: Path, tcbuild: CommandLine, tmp_path: Path) -> None:
    there = (net.parent / FILE).rename(tmp_path / "elsewhere")

    def serve(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "tcbuild.runtime", *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": python_path(ROOT / "src", ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )

    missing = serve(net)
    assert missing.returncode == 10
    assert f"{FILE}: the file with the weights cannot be opened" in missing.stderr
    done = serve(net, "--weights", there)
    assert done.returncode == 0, done.stderr
    assert "0.0% missed" in done.stdout
    assert serve(net, "--weights").returncode == 2
    path = python_path(ROOT / "src", ROOT)
    checked = tcbuild("inspect", net, "--check", "--weights", there, PYTHONPATH=path)
    assert f"in another file: {FILE}" in checked.stdout, checked.stderr
    assert "tensors of" in checked.stdout
    verified = tcbuild("verify", net, "--weights", there, PYTHONPATH=path)
    assert verified.returncode == 0, verified.stderr


def test_what_is_another_between_artifacts(net: Path, net_artifact: Path, rewrite: Rewrite) -> None:
    def told(one: Path, other: Path) -> list[str]:
        with Artifact(one) as first, Artifact(other) as second:
            return [str(difference) for difference in between(first, second)]

    assert told(net, net) == []
    assert told(net_artifact, net) == [
        f"where: in the artifact -> in {FILE}",
        "mix: not compared -> stored in another order",
    ]

    def with_another_digest(manifest: Manifest) -> Manifest:
        assert manifest.weights is not None
        assert manifest.weights.external is not None
        tensors = {**manifest.weights.external.tensors}
        tensors["small"] = replace(tensors["small"], digest=f"sha256:{0:064}")
        external = replace(manifest.weights.external, tensors=tensors)
        return replace(manifest, weights=replace(manifest.weights, external=external))

    other = rewrite(net, with_another_digest)
    assert told(net, other) == ["small: some values -> other values"]
    assert told(other, net_artifact) == [
        f"where: in {FILE} -> in the artifact",
        "mix: not compared -> stored in another order",
        "small: some values -> other values",
    ]


def test_joined_parts_are_the_whole(net_folder: Path, tmp_path: Path) -> None:
    aot.build(NET, tmp_path / "part", shard=(1, 1))
    assert sorted(os.listdir(tmp_path)) == ["part"]  # a part is one file
    report = merge([tmp_path / "part"], tmp_path / "net.tcb")
    assert report.weights_file == tmp_path / FILE
    for name in ("net.tcb", FILE):
        assert (tmp_path / name).read_bytes() == (net_folder / name).read_bytes()


# Its own memory stays small on the CPU; so does all that is mapped where the weights go to another device, one
# tensor after the other. "meta" is one that keeps nothing.
MEMORY = """
import re, sys
import torch
from tcbuild import runtime
from tcbuild.formats import Artifact
from tcbuild.runtime import weights

def mib(file, name):
    return int(re.search(rf"^{name}:\\s*(\\d+) kB", open(f"/proc/self/{file}").read(), re.M)[1]) / 1024

def peak(run):
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = mib("status", "VmHWM")
    made = run()
    return mib("status", "VmHWM") - before, made

path, total = sys.argv[1], 64
with Artifact(path) as artifact:
    weights.load(artifact, torch.device("meta"), only=["seen"])  # what torch loads for a first time
    streamed, made = peak(lambda: weights.load(artifact, torch.device("meta")))
assert sum(tensor.nbytes for tensor in made.values()) >= total * 2**20
print(f"streamed {streamed:.1f}")
assert streamed < 24, streamed  # one table is 16
before = mib("smaps_rollup", "Anonymous")
models = [runtime.load(path, on_miss="raise") for _ in range(3)]
with torch.no_grad():
    for model in models:
        first, second = (model(torch.arange(8)) for _ in range(2))
        assert torch.equal(second, first * 2)  # each has a counter of its own
own = mib("smaps_rollup", "Anonymous") - before
print(f"own {own:.1f}")
assert own < 16, own
"""


def test_memory_of_a_process(wide: Path, script: Script) -> None:
    data = wide.with_name("wide.weights.safetensors").read_bytes()
    script(MEMORY, wide)
    assert wide.with_name("wide.weights.safetensors").read_bytes() == data
    assert wide.stat().st_size < 1 << 20
