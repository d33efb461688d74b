"""`tcbuild build`: what it writes, how it ends, what it says meanwhile."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tcbuild.formats import Artifact

from ..conftest import ROOT, CommandLine


def read(report: Path) -> Any:
    """Return a report."""
    return json.loads(report.read_text(encoding="utf-8"))


def command(*arguments: str | Path) -> list[str]:
    """Return the command line of a process to start by hand."""
    return [sys.executable, "-m", "tcbuild.aot.cli", *map(str, arguments)]


def environment() -> dict[str, str]:
    """Return the environment of such a process."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def replace_in(path: Path, old: str, new: str) -> None:
    """Change a file's text."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_build_reports_what_it_made(tiny_artifact: Path) -> None:
    report = read(tiny_artifact.with_suffix(".json"))
    assert (report["command"], report["exit_code"], report["error"]) == ("build", 0, None)
    assert report["result"]["bytes"] == tiny_artifact.stat().st_size
    (job,) = report["result"]["jobs"]
    assert job["compiled"] is True
    assert [row["problem"] for row in report["result"]["verification"]] == ["", "", ""]


def test_second_build_compiles_nothing_and_gives_the_same_bytes(
    tcbuild: CommandLine, tiny_artifact: Path, tiny_spec_dir: Path, tmp_path: Path
) -> None:
    out, report = tmp_path / "again.tcb", tmp_path / "again.json"
    done = tcbuild("build", tiny_spec_dir / "tcbuild.toml", "-o", out, "--report", report)
    assert done.returncode == 0, done.stderr
    assert [job["compiled"] for job in read(report)["result"]["jobs"]] == [False]
    assert out.read_bytes() == tiny_artifact.read_bytes()
    assert done.stdout.startswith(f"wrote {out}: ")
    lines = [line.partition(": ")[2].split()[0] for line in done.stderr.splitlines()]
    assert lines == ["capture", "compile", "embed", "package", "verify"]
    assert " (cached)\n" in done.stderr


@pytest.mark.usefixtures("tiny_artifact")
def test_only_some_jobs(tcbuild: CommandLine, spec_copy: Path, tmp_path: Path) -> None:
    replace_in(spec_copy / "tcbuild.toml", "min = 2", "min = 1")
    out, report = tmp_path / "only.tcb", tmp_path / "only.json"
    choice = ["--only", "batch=2..*", "--no-verify"]
    done = tcbuild("build", spec_copy / "tcbuild.toml", "-o", out, "--report", report, *choice)
    assert done.returncode == 0, done.stderr
    with Artifact(out) as artifact:
        compiled, *_ = artifact.manifest.variants
    result = read(report)["result"]
    assert [job["id"] for job in result["jobs"]] == [compiled.id]
    assert compiled.id.startswith("batch=2..64@")
    assert result["verification"] == []
    assert "verify" not in done.stderr


def test_only_of_no_job_lists_the_jobs(
    tcbuild: CommandLine, tiny_spec_dir: Path, tmp_path: Path
) -> None:
    out, report = tmp_path / "only.tcb", tmp_path / "only.json"
    spec = tiny_spec_dir / "tcbuild.toml"
    done = tcbuild("build", spec, "-o", out, "--report", report, "--only", "batch=3*")
    assert done.returncode == 20
    assert "'batch=3*'" in done.stderr
    assert "batch=2..64@cpu-" in done.stderr
    assert read(report)["error"]["class"] == "NoJobError"
    assert not out.exists()


MODEL_FAULTS = {
    # what is wrong: (exit code, file, text, what it becomes, what the error says)
    "a typo in the spec": (20, "tcbuild.toml", "policy", "polycy", "policy"),
    "an unknown key": (20, "tcbuild.toml", 'name = "tiny"', 'nam = "tiny"', "did you mean 'name'?"),
    "no TOML": (20, "tcbuild.toml", "[model]", "[model", "TOML"),
    "an import that fails": (21, "model.py", "import torch\n", "import no_such\n", "no_such"),
    "training mode": (21, "model.py", ".eval()", "", "call .eval()"),
    "a branch on data": (
        22,
        "model.py",
        "return nn.functional",
        "x = x if x.sum() > 0 else -x\n        return nn.functional",
        "model.py:",
    ),
}


@pytest.mark.parametrize("fault", MODEL_FAULTS)
def test_fault_of_the_spec_or_the_model(
    tcbuild: CommandLine, spec_copy: Path, tmp_path: Path, fault: str
) -> None:
    code, file, old, new, says = MODEL_FAULTS[fault]
    replace_in(spec_copy / file, old, new)
    out, report = tmp_path / "out.tcb", tmp_path / "out.json"
    done = tcbuild("build", spec_copy / "tcbuild.toml", "-o", out, "--report", report)
    assert done.returncode == code, done.stderr
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr
    assert says in done.stderr
    written = read(report)
    assert (written["exit_code"], written["result"]) == (code, None)
    assert says in written["error"]["message"]
    assert not out.exists()


def test_no_compiler(tcbuild: CommandLine, tiny_spec_dir: Path, tmp_path: Path) -> None:
    spec = tiny_spec_dir / "tcbuild.toml"
    done = tcbuild("build", spec, "-o", tmp_path / "out.tcb", CXX="/nonexistent")
    assert done.returncode == 26
    assert "/nonexistent" in done.stderr
    assert "TIP: install one" in done.stderr


def test_compiler_that_fails(tcbuild: CommandLine, tiny_spec_dir: Path, tmp_path: Path) -> None:
    broken = tmp_path / "g++"
    broken.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && { echo broken; exit; }\necho no >&2; exit 1\n'
    )
    broken.chmod(0o755)
    spec = tiny_spec_dir / "tcbuild.toml"
    done = tcbuild("build", spec, "-o", tmp_path / "out.tcb", CXX=str(broken))
    assert done.returncode == 23
    assert not (tmp_path / "out.tcb").exists()


def test_output_in_no_folder(tcbuild: CommandLine, tiny_spec_dir: Path, tmp_path: Path) -> None:
    spec = tiny_spec_dir / "tcbuild.toml"
    done = tcbuild("build", spec, "-o", tmp_path / "no" / "out.tcb")
    assert done.returncode == 25
    assert f"no folder {tmp_path / 'no'}" in done.stderr


def test_report_in_no_folder_is_refused_before_the_work(
    tcbuild: CommandLine, tiny_spec_dir: Path, tmp_path: Path
) -> None:
    spec = tiny_spec_dir / "tcbuild.toml"
    report = tmp_path / "no" / "report.json"
    done = tcbuild("build", spec, "-o", tmp_path / "out.tcb", "--report", report)
    assert done.returncode == 25
    assert "capture" not in done.stderr


def test_cache_that_cannot_be_written(
    tcbuild: CommandLine, tiny_spec_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    spec = tiny_spec_dir / "tcbuild.toml"
    done = tcbuild(
        "build", spec, "-o", tmp_path / "out.tcb", TCBUILD_CACHE=str(tmp_path / "file" / "cache")
    )
    assert done.returncode == 25
    assert "TIP: set TCBUILD_CACHE" in done.stderr


@pytest.mark.usefixtures("tiny_artifact")
def test_no_room_for_the_artifact(tiny_spec_dir: Path, tmp_path: Path) -> None:
    out, report = tmp_path / "out.tcb", tmp_path / "out.json"
    out.write_text("the old one", encoding="utf-8")
    build = command("build", tiny_spec_dir / "tcbuild.toml", "-o", out, "--report", report)
    limited = ["sh", "-c", 'ulimit -f 16; exec "$@"', "sh", *build]
    done = subprocess.run(limited, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 25, done.stderr
    assert "File too large" in done.stderr
    assert read(report)["error"]["class"] == "OutputError"
    assert sorted(os.listdir(tmp_path)) == ["out.json", "out.tcb"]
    assert out.read_text(encoding="utf-8") == "the old one"


@pytest.mark.usefixtures("tiny_artifact")
def test_interrupted_build_leaves_nothing_and_goes_on(tcbuild: CommandLine, tmp_path: Path) -> None:
    """With the spec that `init` writes, whose second job is the same as the tiny model's."""
    assert tcbuild("init", "--out", tmp_path / "new").returncode == 0
    out, report = tmp_path / "out.tcb", tmp_path / "out.json"
    build = command("build", tmp_path / "new" / "tcbuild.toml", "-o", out, "--report", report)
    with subprocess.Popen(
        build, env=environment(), stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("[1/2]") and ": compile " in line:
                break
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does on Ctrl-C
        told = process.stderr.read()
    assert process.returncode == 130
    assert told.endswith("interrupted\n")
    assert "Traceback" not in told
    assert (read(report)["exit_code"], read(report)["result"]) == (130, None)
    assert sorted(os.listdir(tmp_path)) == ["new", "out.json"]

    again = tcbuild(*build[3:])
    assert again.returncode == 0, again.stderr
    assert "[1/2] batch=1@" in again.stderr
    assert read(report)["result"]["jobs"][0]["compiled"] is False
    assert out.exists()


@pytest.mark.usefixtures("tiny_artifact")
def test_terminal_shows_a_line_for_each_job(tiny_spec_dir: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    build = command("build", tiny_spec_dir / "tcbuild.toml", "-o", tmp_path / "out.tcb")
    terminal = {**environment(), "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(build, env=terminal, stderr=theirs, stdout=subprocess.PIPE) as process:
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 65536):
                shown += piece
        except OSError:  # the other side was closed
            pass
        assert process.stdout is not None
        assert process.stdout.read().startswith(b"wrote ")
    os.close(ours)
    assert process.returncode == 0
    text = shown.decode()
    assert "batch=2..64@cpu-" in text
    assert "compile" in text
    assert "(cached)" in text
    assert " ..." in text
    assert "[1/1]" not in text
