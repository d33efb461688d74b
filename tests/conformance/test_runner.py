"""The runner of the cases: models that are elsewhere, and processes that crash or hang."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from .__main__ import main
from .placed import Mover, Placed
from .play import LeftOutError, run_case


def test_what_is_moved_keeps_strides_and_shared_memory() -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    views = [whole[:, 1:3], whole.t(), whole[:1].expand(5, 4)]
    moved = Mover("cpu")({"b": [whole, views[0]], "a": (views[1], 3, None), "c": views[2]})
    assert list(moved) == ["b", "a", "c"]
    (first, part), (turned, three, none), spread = moved.values()
    assert first.data_ptr() != whole.data_ptr()
    for made, tensor in zip((part, turned, spread), views, strict=True):
        assert torch.equal(made, tensor)
        assert made.stride() == tensor.stride()
        assert made.untyped_storage().data_ptr() == first.data_ptr()
    assert (three, none) == (3, None)


def test_a_model_elsewhere_writes_to_the_callers_tensors_and_returns_views_of_them() -> None:
    def model(x: Tensor, *, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x += y
        made = x * 2
        return x, made, made

    placed = Placed(model, "cpu")
    x, y = torch.ones(2, 3), torch.full((3,), 2.0)
    same, made, again = placed(x[:, :2], y=y[:2])
    assert x.tolist() == [[3, 3, 1], [3, 3, 1]]
    assert same.data_ptr() == x.data_ptr()
    assert made.tolist() == [[6, 6], [6, 6]]
    assert made.data_ptr() == again.data_ptr()
    assert placed.__name__ == "model"


def test_a_gradient_flows_through_a_model_elsewhere() -> None:
    x = torch.ones(2, requires_grad=True)
    Placed(lambda x: x * 3, "cpu")(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3, 3]


CASES = {
    "case_crash": "import os\nos.abort()",
    "case_other": "DEVICES = ['cuda:1']",
    "case_wrong": "def make():\n    raise AssertionError('no such thing')",
}


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    """Return a folder of cases that go wrong."""
    for name, source in CASES.items():
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
    return tmp_path


def test_a_process_that_dies_costs_its_own_case_only(
    cases: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--cases", str(cases), "--jobs", "2"]) == 1
    *lines, totals = capsys.readouterr().out.splitlines()
    assert sorted(lines) == [
        "case_crash FAILED: its process ended with SIGABRT",
        "case_other left out: only for cuda:1",
        "case_wrong FAILED: AssertionError: no such thing",
    ]
    assert totals == "0 passed, 2 failed, 1 left out"


def test_a_process_that_hangs_is_ended(cases: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cases / "case_hang.py").write_text("import time\ntime.sleep(600)", encoding="utf-8")
    arguments = ["--cases", str(cases), "--only", "hang", "--jobs", "1", "--limit", "0.5"]
    assert main(arguments) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["case_hang FAILED: no end within 0.5 s", "0 passed, 1 failed"]


def test_a_case_for_other_devices(cases: Path) -> None:
    with pytest.raises(LeftOutError):
        run_case(cases / "case_other.py")
