"""The edge of the command line: help, exit codes, what it loads."""

import importlib
import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tcbuild as package
from tcbuild.aot.cli import edge
from tcbuild.aot.cli.exit_codes import EXIT_CODES
from tcbuild.aot.cli.root import COMMANDS, root
from tcbuild.formats import TcbuildError

from ..conftest import ROOT, CommandLine


def all_errors(base: type[TcbuildError] = TcbuildError) -> Iterator[type[TcbuildError]]:
    """Yield the errors of every module of the package."""
    for error in base.__subclasses__():
        yield error
        yield from all_errors(error)


def in_process(script: str, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run a script, with the arguments as `tcbuild`'s, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_exit_codes_are_those_of_the_errors() -> None:
    for module in pkgutil.walk_packages(package.__path__, "tcbuild."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    with_own_code = {(e.exit_code, e.__name__) for e in all_errors() if "exit_code" in vars(e)}
    assert with_own_code == {(code, name) for code, name, _ in EXIT_CODES if name}
    codes = [code for code, _, _ in EXIT_CODES]
    assert codes == sorted(set(codes))


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_lists_commands_and_exit_codes(tcbuild: CommandLine, option: str) -> None:
    done = tcbuild(option)
    assert done.returncode == 0
    assert all(f"\n  {command} " in done.stdout for command in COMMANDS)
    assert all(words in done.stdout for _, _, words in EXIT_CODES)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_the_terminal(tcbuild: CommandLine, command: str) -> None:
    done = tcbuild(*filter(None, [command]), "-h")
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "...\n" not in done.stdout.partition("Commands:")[2]  # no sentence is cut short


def test_readme_lists_the_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"| `tcbuild {name}" not in readme] == []


WITHOUT_TORCH = """
import sys
from tcbuild.aot.cli import main
try:
    main()
except SystemExit as done:
    assert not done.code, done.code
print(sorted({"torch", "click", "rich"} & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize("command", [[], *([command] for command in COMMANDS)])
def test_help_imports_no_torch(command: list[str]) -> None:
    done = in_process(WITHOUT_TORCH, *command, "--help")
    assert done.stderr == "['click']\n"


def test_version_imports_no_torch() -> None:
    done = in_process(WITHOUT_TORCH, "--version")
    assert (done.stdout[:7], done.stderr) == ("tcbuild", "['click']\n")


def test_inspect_imports_no_torch(tiny_artifact: Path) -> None:
    done = in_process(WITHOUT_TORCH, "inspect", tiny_artifact, "--check", "--guards")
    assert done.stderr == "['click']\n"


def test_init_imports_no_torch(tmp_path: Path) -> None:
    done = in_process(WITHOUT_TORCH, "init", "--out", tmp_path)
    assert done.stderr == "['click']\n"


@pytest.mark.parametrize("arguments", ["", "--help", "build spec -o out"])
def test_without_the_extra_one_line_says_what_to_install(arguments: str) -> None:
    script = "import sys; sys.modules['click'] = None; from tcbuild.aot.cli import main; main()"
    done = in_process(script, *arguments.split())
    assert done.returncode == 1
    assert done.stderr == "error: click is not installed: pip install 'tcbuild[build]'\n"
    assert done.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "bild",
        "build",
        "build no-such.toml -o x.tcb",
        "inspect no-such.tcb",
        "verify --tolerance -1",
    ],
)
def test_wrong_usage_exits_with_2(tcbuild: CommandLine, tmp_path: Path, arguments: str) -> None:
    done = tcbuild(*arguments.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert "Usage: tcbuild" in done.stderr


def test_build_needs_an_output(tcbuild: CommandLine, tiny_spec_dir: Path) -> None:
    done = tcbuild("build", tiny_spec_dir / "tcbuild.toml")
    assert done.returncode == 2
    assert "'-o'" in done.stderr


def fail(error: BaseException) -> Any:
    """Return a function that raises the error."""

    def raising(*_: object, **__: object) -> None:
        raise error

    return raising


def test_unexpected_error_exits_with_1_and_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(root, "invoke", fail(ZeroDivisionError("surprise")))
    assert edge.run(["init"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("Traceback")
    assert "ZeroDivisionError: surprise" in told


def test_error_of_ours_is_told_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = TcbuildError("here", found="one", expected="two", tip="three")
    monkeypatch.setattr(root, "invoke", fail(error))
    assert edge.run(["init"]) == 1
    told = capsys.readouterr()
    assert told.err == "error: here: failed: found one, expected two\nTIP: three\n"
    assert told.out == ""


def test_interrupt_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root, "invoke", fail(KeyboardInterrupt()))
    assert edge.run(["init"]) == 130


def test_json_has_no_numbers_that_json_does_not_know() -> None:
    from tcbuild.aot.report import json_text

    value = {"a": [float("inf"), float("nan"), 1.5], "b": Path("x")}
    assert json.loads(json_text(value)) == {"a": [None, None, 1.5], "b": "x"}
