"""`tcbuild init` and `tcbuild plan`. That what `init` writes also builds is in test_cli_build.py."""

import json
import os
from pathlib import Path

from tcbuild.aot import spec_file

from ..conftest import CommandLine


def test_init_writes_a_spec_that_plans(tcbuild: CommandLine, tmp_path: Path) -> None:
    done = tcbuild("init", "--out", tmp_path / "new")
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(tmp_path / "new")) == ["model.py", "tcbuild.toml"]
    planned = tcbuild("plan", tmp_path / "new" / "tcbuild.toml")
    assert planned.returncode == 0, planned.stderr
    head, *ids = planned.stdout.splitlines()
    assert head == "new: 2 jobs"
    assert [line.partition("@")[0] for line in ids] == ["  batch=1", "  batch=2..64"]


def test_init_goes_to_the_current_folder(tcbuild: CommandLine, tmp_path: Path) -> None:
    assert tcbuild("init", cwd=tmp_path).returncode == 0
    assert sorted(os.listdir(tmp_path)) == ["model.py", "tcbuild.toml"]


def test_init_shows_every_key_of_the_spec(tcbuild: CommandLine, tmp_path: Path) -> None:
    tcbuild("init", "--out", tmp_path)
    text = (tmp_path / "tcbuild.toml").read_text(encoding="utf-8")
    lines = {line.lstrip("# ").partition(" = ")[0] for line in text.splitlines() if " = " in line}
    keys = {key for table in spec_file.KEYS.values() for key in table}
    assert keys | {key for table in spec_file.DIM_KEYS.values() for key in table} <= lines


def test_init_refuses_to_overwrite(tcbuild: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("mine", encoding="utf-8")
    done = tcbuild("init", "--out", tmp_path)
    assert done.returncode == 25
    assert "model.py" in done.stderr
    assert os.listdir(tmp_path) == ["model.py"]
    assert (tmp_path / "model.py").read_text(encoding="utf-8") == "mine"


def test_init_says_where_it_cannot_write(tcbuild: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = tcbuild("init", "--out", tmp_path / "file" / "folder")
    assert done.returncode == 25
    assert "Not a directory" in done.stderr


def test_plan_as_json(tcbuild: CommandLine, spec_copy: Path) -> None:
    source = spec_copy / "model.py"
    # What the user's own code prints does not get into the answer.
    source.write_text(f"print('hello')\n{source.read_text(encoding='utf-8')}", encoding="utf-8")
    done = tcbuild("plan", spec_copy / "tcbuild.toml", "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["name"] == "tiny"
    (job,) = plan["jobs"]
    assert job["id"].startswith("batch=2..64@cpu-")
    assert job["bucket"] == {"batch": {"min": 2, "max": 64}}
    assert job["target"]["device"] == "cpu"
    assert done.stderr == "hello\n"
