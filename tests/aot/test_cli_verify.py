"""`tcbuild verify`, and the exit codes of what the runtime may say of an artifact."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tcbuild.formats import Artifact, Manifest, Variant
from tcbuild.formats.signature import Branch

from ..conftest import CommandLine

Edited = Callable[..., Path]
Compiled = Callable[[Callable[[Variant], Variant]], Callable[[Manifest], Manifest]]


def test_verify_prints_a_row_for_each_size(
    tcbuild: CommandLine, tiny_artifact: Path, tmp_path: Path
) -> None:
    report = tmp_path / "verify.json"
    done = tcbuild("verify", tiny_artifact, "--report", report)
    assert done.returncode == 0, done.stderr
    head, variant, *rows = done.stdout.splitlines()
    assert head.split() == ["sizes", "output", "error", "eager", "allowed"]
    assert variant.startswith("batch=2..64@cpu-")
    assert [(row.split()[0], row.split()[-1]) for row in rows] == [
        ("batch=2", "ok"),
        ("batch=64", "ok"),
    ]
    written = json.loads(report.read_text(encoding="utf-8"))
    assert (written["command"], written["exit_code"], written["error"]) == ("verify", 0, None)
    assert written["result"]["ok"] is True


def test_verify_against_the_model_as_json(
    tcbuild: CommandLine, tiny_artifact: Path, tiny_spec_dir: Path
) -> None:
    done = tcbuild("verify", tiny_artifact, "--spec", tiny_spec_dir / "tcbuild.toml", "--json")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert made["ok"] is True
    assert [row["sizes"] for row in made["rows"]] == ["batch=2", "batch=8", "batch=64"]


def test_verify_against_another_model_fails(
    tcbuild: CommandLine, tiny_artifact: Path, spec_copy: Path, tmp_path: Path
) -> None:
    source = spec_copy / "model.py"
    text = source.read_text(encoding="utf-8").replace("(self.linear(x))", "(2 * self.linear(x))")
    source.write_text(text, encoding="utf-8")
    report = tmp_path / "verify.json"
    done = tcbuild(
        "verify", tiny_artifact, "--spec", spec_copy / "tcbuild.toml", "--report", report
    )
    assert done.returncode == 24
    assert "FAIL" in done.stdout
    assert "error: " in done.stderr
    assert "TIP: " in done.stderr
    written = json.loads(report.read_text(encoding="utf-8"))
    assert (written["exit_code"], written["error"]["class"]) == (24, "VerifyError")
    assert written["result"]["ok"] is False
    assert written["result"]["rows"]


def test_verify_tolerance_is_a_factor_of_eagers_error(
    tcbuild: CommandLine, tiny_artifact: Path
) -> None:
    done = tcbuild("verify", tiny_artifact, "--tolerance", "1000", "--json")
    assert done.returncode == 0, done.stderr
    assert all(row["allowed"] > 1000 * row["eager"] for row in json.loads(done.stdout)["rows"])


def test_another_host(tcbuild: CommandLine, edited: Edited, compiled: Compiled) -> None:
    def for_another_torch(variant: Variant) -> Variant:
        guards = (
            replace(guard, expected="1.0.0") if guard.name == "host.torch" else guard
            for guard in variant.guards
        )
        return replace(variant, guards=tuple(guards))

    done = tcbuild("verify", edited(compiled(for_another_torch)))
    assert done.returncode == 11
    assert "host.torch: expected 1.0.0, found " in done.stderr
    assert "TIP: rebuild it here" in done.stderr


def test_a_variant_that_refuses_its_own_calls(
    tcbuild: CommandLine, edited: Edited, compiled: Compiled
) -> None:
    def for_another_mode(variant: Variant) -> Variant:
        guards = (
            replace(guard, expected=True) if guard.name == "process.deterministic" else guard
            for guard in variant.guards
        )
        return replace(variant, guards=tuple(guards))

    done = tcbuild("verify", edited(compiled(for_another_mode)))
    assert done.returncode == 12
    assert "process.deterministic: expected True, found False" in done.stderr


def test_a_library_that_does_not_load(
    tcbuild: CommandLine, tiny_artifact: Path, edited: Edited
) -> None:
    with Artifact(tiny_artifact) as artifact:
        library = artifact.manifest.variants[0].files["model.so"]
    done = tcbuild("verify", edited(sections={library: b"no ELF file"}))
    assert done.returncode == 13
    assert "does not load" in done.stderr


def test_a_class_that_is_not_here(tcbuild: CommandLine, edited: Edited, compiled: Compiled) -> None:
    def returns_a_class(variant: Variant) -> Variant:
        out = Branch(type="nowhere:Out", form="dataclass", keys=("y",), children=(variant.outputs,))
        return replace(variant, outputs=out)

    done = tcbuild("verify", edited(compiled(returns_a_class)))
    assert done.returncode == 15
    assert "nowhere:Out" in done.stderr


def test_a_file_that_is_no_artifact(tcbuild: CommandLine, tiny_spec_dir: Path) -> None:
    done = tcbuild("verify", tiny_spec_dir / "model.py")
    assert done.returncode == 10
    assert "not a .tcb artifact" in done.stderr
