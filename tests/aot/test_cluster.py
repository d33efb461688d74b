"""A build on a Ray cluster: the bytes of a local one, also where a worker is killed half-way."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tcbuild import aot
from tcbuild.aot import cluster
from tcbuild.aot.errors import ClusterError, ModelError, ToolError
from tcbuild.aot.progress import Event

from ..conftest import ROOT, CommandLine, python_path

MODEL = """
import os
import signal
from pathlib import Path

import torch

CALLS = []


def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()).eval()


def example_inputs(batch):
    CALLS.append(batch)
    mark = os.environ.get("MARK", "")
    if mark and len(CALLS) > 1 and (mark == "always" or not Path(mark).exists()):
        if mark != "always":
            Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if batch == int(os.environ.get("BAD", "0")):
        raise ValueError("a bad size")
    return (torch.randn(batch, 4, generator=torch.Generator().manual_seed(batch)),), {}
"""

SPEC = """
[model]
source = "model:build"
inputs = "model:example_inputs"

[dims.batch]
policy = "specialize"
values = [2, 3, 4]

[shapes]
input = ["batch"]
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of a spec of three jobs; MARK names where its model notes that it has died once."""
    folder = tmp_path / "farmed"
    folder.mkdir()
    (folder / "model.py").write_text(MODEL, encoding="utf-8")
    (folder / "tcbuild.toml").write_text(SPEC, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", python_path(ROOT / "src"))  # workers inherit it
    return folder / "tcbuild.toml"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let Ray be used, with two workers on this machine."""
    ray = pytest.importorskip("ray")
    start = ray.init
    monkeypatch.setattr(
        ray, "init", lambda **given: start(num_cpus=2, include_dashboard=False, **given)
    )
    yield
    ray.shutdown()


@pytest.mark.filterwarnings("default")
def test_a_killed_worker_costs_nothing(
    spec: Path, tmp_path: Path, started: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "killed"
    monkeypatch.setenv("MARK", str(mark))
    events: list[Event] = []
    report = cluster.build(spec, tmp_path / "farmed.tcb", progress=events.append)
    assert mark.exists()
    assert [job.id.partition("@")[0] for job in report.jobs] == ["batch=2", "batch=3", "batch=4"]
    assert {event.job for event in events if event.stage == "build"} == {
        "part 1/3",
        "part 2/3",
        "part 3/3",
    }
    aot.build(aot.Spec.load(spec), tmp_path / "local.tcb")
    assert (tmp_path / "farmed.tcb").read_bytes() == (tmp_path / "local.tcb").read_bytes()


@pytest.mark.filterwarnings("default")
def test_errors_of_a_worker_are_those_of_a_build(
    spec: Path, tmp_path: Path, started: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAD", "3")
    with pytest.raises(ModelError, match="a bad size"):
        cluster.build(spec, tmp_path / "out.tcb")
    assert not (tmp_path / "out.tcb").exists()


@pytest.mark.filterwarnings("default")
def test_a_part_that_kills_every_worker_is_given_up(
    spec: Path, tmp_path: Path, started: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARK", "always")
    monkeypatch.setattr(cluster, "RETRIES", 1)
    with pytest.raises(ClusterError, match=r"part \d/3: .*expected a worker that lives, of 2"):
        cluster.build(spec, tmp_path / "out.tcb")
    assert not (tmp_path / "out.tcb").exists()


@pytest.mark.parametrize(
    ("targets", "there", "needs"),
    [
        (["cpu"], {}, {"num_cpus": 1}),
        (["cpu", "cuda"], {"GPU": 4.0}, {"num_cpus": 1, "num_gpus": 1}),
        (
            ["cuda-sm_90"],
            {"accelerator_type:H200": 1.0, "accelerator_type:T4": 1.0},
            {"num_cpus": 1, "num_gpus": 1, "accelerator_type": "H200"},
        ),
        (["cuda-sm_90"], {"accelerator_type:T4": 1.0}, {"num_cpus": 1, "num_gpus": 1}),
    ],
)
def test_what_a_task_asks_for(
    targets: list[str], there: Mapping[str, float], needs: dict[str, object]
) -> None:
    assert cluster._needs(targets, there) == needs


def test_without_ray(spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(ToolError, match=r"pip install 'tcbuild\[ray\]'"):
        cluster.build(spec, tmp_path / "out.tcb")


def test_the_command_takes_one_way_to_build_in_parts(
    tcbuild: CommandLine, tiny_spec_dir: Path, tmp_path: Path
) -> None:
    done = tcbuild(
        *("build", tiny_spec_dir / "tcbuild.toml", "-o", tmp_path / "out.tcb"),
        *("--executor", "ray", "--shard", "1/2"),
    )
    assert (done.returncode, "use one of them" in done.stderr) == (2, True)
    assert os.listdir(tmp_path) == []
