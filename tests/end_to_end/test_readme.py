"""What the READMEs name is there: commands, targets, files, keys of the spec."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tcbuild.aot.cli.root import COMMANDS
from tcbuild.aot.spec_file import DIM_KEYS, KEYS, TABLES

from ..conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
DOCUMENTS = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(part.startswith(".") or part in ("build", "dist") for part in path.parts)
    and not path.is_relative_to(ROOT / "src" / "tcbuild")
)


def blocks(text: str, language: str) -> Iterator[str]:
    """Yield the blocks of code in a language."""
    yield from re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def commands() -> Iterator[tuple[str, str]]:
    """Yield each shell command of every document with the document's name."""
    for path in DOCUMENTS:
        for block in blocks(path.read_text(encoding="utf-8"), "sh"):
            for line in block.splitlines():
                command = line.removeprefix("$ ").partition(" #")[0].strip()
                if command:
                    yield str(path.relative_to(ROOT)), command


def test_there_are_commands() -> None:
    assert {name for name, _ in commands()} > {"README.md"}


@pytest.mark.parametrize(("document", "command"), list(commands()))
def test_a_command_exists(document: str, command: str) -> None:
    program, *arguments = re.sub(r"^([A-Z_]+=\S+ +)+", "", command).split()
    match program:
        case "make":
            assert [a for a in arguments if "=" not in a and a not in TARGETS] == []
        case "tcbuild":
            assert arguments[0] in COMMANDS
        case "cd":
            assert (ROOT / arguments[0]).is_dir()
        case "python" | "python3":
            if arguments[0] == "-m":
                module = arguments[1].replace(".", "/").removeprefix("tcbuild/")
                assert (ROOT / f"{module}.py").is_file() or (
                    ROOT / module / "__main__.py"
                ).is_file()
            else:
                places = (ROOT, (ROOT / document).parent)
                assert any((place / arguments[0]).is_file() for place in places)
        case _:
            pytest.fail(f"{document}: what is {program}?")


def test_every_target_is_in_the_table() -> None:
    rows = "".join(line.split("|")[1] for line in README.splitlines() if line.startswith("| `make"))
    listed = set(re.findall(r"`make ([a-z-]+)`", rows))
    assert listed == TARGETS - {"help"}


def test_every_command_is_in_the_table() -> None:
    listed = set(re.findall(r"^\| `tcbuild ([a-z]+)[^`]*` \|", README, re.M))
    assert listed == set(COMMANDS)


def test_every_key_of_the_spec_is_in_the_table() -> None:
    table = "\n".join(line for line in README.splitlines() if line.startswith("| `"))
    for section, keys in KEYS.items():
        for key in keys:
            assert re.search(rf"`{section}\.{key}`|`{section}\.\w+`, `{key}`", table), key
    for keys in DIM_KEYS.values():
        assert [key for key in keys if not re.search(rf"`(dims\.NAME\.)?{key}[`.]", table)] == []
    assert [name for name in TABLES if f"`{name}." not in table] == []


def test_the_spec_that_is_shown_is_the_example() -> None:
    shown = next(iter(blocks(README, "toml")))
    example = ROOT / "examples" / "text_encoder" / "tcbuild.toml"
    assert shown == example.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text)]
    gone = [x for x in links if x and "://" not in x and not (path.parent / x).exists()]
    assert gone == []
