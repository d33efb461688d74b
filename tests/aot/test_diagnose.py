"""Each planted fault: the rung, the kind, the operator; and a repro that shows it by itself."""

import json
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tcbuild.aot.diagnose.ladder import RUNGS
from tcbuild.aot.diagnose.process import Reply
from tcbuild.aot.diagnose.search import search
from tcbuild.aot.errors import FaultError

from ..conftest import CommandLine

PLANTED = Path(__file__).with_name("planted")
NAMES = sorted(module.name for module in pkgutil.iter_modules([str(PLANTED)]))

SPEC = """
[model]
source = "model:make"
inputs = "model:example"
"""

# The lowering is wrong in the process that imports the module, so that these are only read.
FACTS = ("RUNG", "KIND", "OPERATOR", "SAID", "SPEC", "TIMEOUT")


def facts(name: str) -> dict[str, str]:
    """Return what a planted file says of its own fault."""
    found: dict[str, str] = {}
    for line in (PLANTED / f"{name}.py").read_text(encoding="utf-8").splitlines():
        keys, equals, values = line.partition(" = ")
        if equals and set(keys.split(", ")) <= set(FACTS):
            made: Any = eval(values)
            found |= zip(keys.split(", "), [made] if isinstance(made, str) else made, strict=True)
    return found


def test_there_are_enough_of_them() -> None:
    assert len(NAMES) >= 6


@pytest.mark.parametrize("name", NAMES)
def test_the_rung_the_operator_and_a_repro(name: str, tcbuild: CommandLine, tmp_path: Path) -> None:
    told = facts(name)
    source = (PLANTED / f"{name}.py").read_text(encoding="utf-8")
    (tmp_path / "model.py").write_text(source, encoding="utf-8")
    spec = tmp_path / "tcbuild.toml"
    spec.write_text(SPEC + told.get("SPEC", ""), encoding="utf-8")
    out, seconds = tmp_path / "out", told.get("TIMEOUT", "120")
    ran = tcbuild("diagnose", spec, "--out", out, "--timeout", seconds, "--json")
    assert ran.returncode == FaultError.exit_code, ran.stderr
    found = json.loads(ran.stdout)
    fault = found["fault"]
    assert (fault["rung"], fault["kind"]) == (told["RUNG"], told["KIND"])
    (operator,) = fault["operators"]
    assert operator["op"] == told["OPERATOR"]
    assert operator["takes"]
    assert f"{tmp_path}/model.py:" in operator["line"]
    assert told.get("SAID", "") in fault["said"]
    assert fault["avoid"]
    assert all(not rung["kind"] for rung in found["rungs"][:-1])
    assert told["OPERATOR"] in (out / "report.txt").read_text(encoding="utf-8")
    assert fault["reproduces"]
    repro = out / "repro.py"
    assert fault["repro"] == str(repro)
    assert len(repro.read_text(encoding="utf-8").splitlines()) < 160


def test_a_repro_is_run_without_tcbuild(tcbuild: CommandLine, tmp_path: Path) -> None:
    name = "overflow_of_bfloat16"
    source = (PLANTED / f"{name}.py").read_text(encoding="utf-8")
    (tmp_path / "model.py").write_text(source, encoding="utf-8")
    (tmp_path / "tcbuild.toml").write_text(SPEC, encoding="utf-8")
    tcbuild("diagnose", tmp_path / "tcbuild.toml", "--out", tmp_path)
    code = "import sys; sys.modules['tcbuild'] = None; sys.argv = ['repro.py']; "
    code += f"exec(compile(open({str(tmp_path / 'repro.py')!r}).read(), 'repro.py', 'exec'))"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 1, ran.stderr
    assert "FAULT" in ran.stdout


def test_every_rung_of_a_healthy_model_holds(
    tcbuild: CommandLine, tiny_spec_dir: Path, tmp_path: Path
) -> None:
    ran = tcbuild("diagnose", tiny_spec_dir / "tcbuild.toml", "--out", tmp_path / "out")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert all(f"\n  {rung.name} " in ran.stdout for rung in RUNGS)
    assert "every rung holds" in ran.stdout
    assert not (tmp_path / "out" / "repro.py").exists()


def test_two_operators_that_are_wrong_only_together() -> None:
    uses = [(), (0,), (1,), (1,), (3,), (4,), (5,)]

    def attempt(nodes: Any, outputs: Any) -> Reply:
        bad = {1, 4} <= set(nodes)
        record = {"output": 4} if bad else {}
        return Reply(kind="differs" if bad else "", record=record)

    found = search(uses, "differs", attempt)
    assert found is not None
    assert found.nodes == (1, 4)


def test_a_fault_that_the_graph_does_not_show() -> None:
    assert search([(), (0,)], "crashes", lambda nodes, outputs: Reply(kind="")) is None
