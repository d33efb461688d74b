"""Each broken model: the line, the reason, the way out; and a build, once that is taken."""

import importlib
import inspect
import json
import pkgutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tcbuild.aot import Spec, build
from tcbuild.aot.errors import CaptureError, VerifyError
from tcbuild.aot.explain import words
from tcbuild.aot.explain.explanation import explain
from tcbuild.runtime import load

from ..conftest import CommandLine

BROKEN = Path(__file__).with_name("broken")
NAMES = sorted(module.name for module in pkgutil.iter_modules([str(BROKEN)]))


def broken(name: str) -> Any:
    return importlib.import_module(f"{__package__}.broken.{name}")


def spec_of(model: nn.Module, *args: Any, **options: Any) -> Spec:
    return Spec.from_module(model.eval(), args, **options)


def marked(defect: Any) -> list[int]:
    code = inspect.getsource(defect).splitlines()
    return [number for number, line in enumerate(code, start=1) if line.endswith("# <- here")]


def test_there_are_enough_of_them() -> None:
    assert len(NAMES) >= 15


@pytest.mark.parametrize("name", NAMES)
def test_the_line_the_reason_and_the_way_out(name: str) -> None:
    defect = broken(name)
    found = explain(spec_of(defect.Model(), *defect.inputs()))
    lines = {
        one.line.number: one
        for one in found.findings
        if one.line and one.line.file == defect.__file__
    }
    (number,) = marked(defect)
    assert lines[number].reason.kind == defect.KIND
    assert any(defect.WAY in way for way in lines[number].reason.ways_out)
    assert (found.error is None) == defect.BUILDS
    assert (lines[number].stops is not False) == (not defect.BUILDS)
    text = "\n".join(words.lines(found, guards=True))
    assert f"{name}.py:{number} in forward" in text


@pytest.mark.parametrize("name", NAMES)
def test_a_model_with_the_way_out_is_built_and_right(name: str, tmp_path: Path) -> None:
    defect = broken(name)
    torch.manual_seed(0)
    model = defect.Fixed().eval()
    report = build(spec_of(model, *defect.inputs()), tmp_path / "fixed.tcb")
    assert report.verification
    with torch.no_grad():
        torch.testing.assert_close(
            load(tmp_path / "fixed.tcb")(*defect.inputs()), model(*defect.inputs())
        )


class Twice(nn.Module):
    """Breaks at each call."""

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [rows, 64]."""
        x = torch.relu(x)
        print("two")
        return x * 2


class Several(nn.Module):
    """Breaks in three places, one of which is come to three times."""

    def __init__(self) -> None:
        super().__init__()
        self.twice = Twice()

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [rows, 64]."""
        print("one")
        x = self.twice(self.twice(self.twice(x)))
        return x + x.sum().item()


def test_every_break_is_found_not_only_the_first() -> None:
    found = explain(spec_of(Several(), torch.ones(256, 64)))
    by_code = {one.line.code: one for one in found.findings if one.line}
    assert set(by_code) == {'print("one")', 'print("two")', "return x + x.sum().item()"}
    inside = by_code['print("two")'].cost
    assert inside is not None
    assert inside.times == 3
    assert [str(tensor) for tensor in inside.crossings] == 3 * ["float32[256, 64]"]
    assert inside.bytes == 3 * 256 * 64 * 4
    assert any("relu" in pair and "mul" in pair for pair in inside.lost)
    assert found.error is None


class Loop(nn.Module):
    """Breaks in a loop, where Dynamo gives up the function."""

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [rows, 64]."""
        for _ in range(2):
            x = torch.relu(x)
            print("again")
        return x


def test_a_break_that_hides_those_behind_it_says_so() -> None:
    found = explain(spec_of(Loop(), torch.ones(4, 64)))
    (finding,) = found.findings
    assert finding.hides
    text = "\n".join(words.lines(found, guards=False))
    assert "breaks behind this line show without it" in text
    assert not any(one.hides for one in explain(spec_of(Several(), torch.ones(4, 64))).findings)


class Narrow(nn.Module):
    """Is another program for eight rows."""

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [rows, columns]."""
        y = torch.relu(x)
        return y * (2 if x.size(0) == 8 else 1)  # <- here


class Uneven(nn.Module):
    """Takes even sizes."""

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [rows, 4]."""
        return x.view(-1, 2, 4).sum(1)


def rows(minimum: int, maximum: int) -> dict[str, dict[int, Any]]:
    return {"x": {0: torch.export.Dim("rows", min=minimum, max=maximum)}}


def test_the_line_that_fixes_a_dim_is_named() -> None:
    found = explain(spec_of(Narrow(), torch.ones(8, 4), dynamic_shapes=rows(2, 8)))
    (job,) = found.jobs
    assert isinstance(job.error, CaptureError)
    assert found.error is job.error
    (number,) = marked(Narrow)
    first = inspect.getsourcelines(Narrow)[1]
    assert f"{__file__}:{first + number - 1} in forward needs rows == 8" in str(found.error)


def test_the_line_that_asks_for_even_sizes_is_named() -> None:
    found = explain(spec_of(Uneven(), torch.ones(8, 4), dynamic_shapes=rows(2, 64)))
    (job,) = found.jobs
    assert found.error is None
    assert job.relations
    for relation in job.relations:
        assert "rows" in relation.text
        assert relation.line is not None
        assert relation.line.function == "forward"
        assert any(relation.text in str(guard) for guard in job.guards)


def test_a_number_that_changes_would_not_pass_the_check() -> None:
    found = explain(spec_of(broken("draws_of_python").Model(), *broken("draws_of_python").inputs()))
    assert isinstance(found.error, VerifyError)


SPEC = """
[model]
source = "model:make"
inputs = "model:example"
"""


def written(folder: Path, name: str) -> Path:
    source = (BROKEN / f"{name}.py").read_text(encoding="utf-8")
    made = (
        "\n\ndef make():\n    return Model().eval()\n\n\ndef example():\n    return inputs(), {}\n"
    )
    (folder / "model.py").write_text(source + made, encoding="utf-8")
    (folder / "tcbuild.toml").write_text(SPEC, encoding="utf-8")
    return folder / "tcbuild.toml"


def test_the_command_says_it_and_exits_as_the_build_would(
    tcbuild: CommandLine, tmp_path: Path
) -> None:
    spec = written(tmp_path, "branch_on_sum")
    ran = tcbuild("explain", spec)
    assert ran.returncode == CaptureError.exit_code
    (number,) = marked(broken("branch_on_sum"))
    assert f"{tmp_path}/model.py:{number} in forward" in ran.stdout
    assert "stops the build" in ran.stdout
    assert "torch.where" in ran.stdout
    assert "error: " in ran.stderr
    assert tcbuild("build", spec, "-o", tmp_path / "a.tcb").returncode == ran.returncode


def test_the_command_as_json_with_every_guard(tcbuild: CommandLine, tmp_path: Path) -> None:
    ran = tcbuild("explain", written(tmp_path, "print_in_forward"), "--json")
    assert ran.returncode == 0
    record = json.loads(ran.stdout)
    (finding,) = record["findings"]
    assert finding["stops"] is False
    assert finding["line"]["code"].startswith("print")
    (job,) = record["jobs"]
    assert "x.dtype: float32" in job["guards"]
    assert job["error"] is None
