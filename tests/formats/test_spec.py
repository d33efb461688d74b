"""SPEC.md says what the code does."""

import dataclasses
import re
from typing import Any

import pytest

from tcbuild.formats import version
from tcbuild.formats.container import HEADER
from tests.formats import spec_blocks
from tests.formats.spec_blocks import COMMAND, FIELDS, LIMITS, SPEC

NO_LIMIT_OF_A_FILE = {
    "sizes.MAX_TRIED",
    "code_values.MAX_TEXT",
    "code_values.MAX_VALUES",
    "code_values.MAX_WRAPPERS",
}
TEXT = SPEC.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", spec_blocks.blocks())
def test_block(name: str) -> None:
    found = re.search(rf"<!-- begin {name} -->\n(.*?)\n<!-- end {name} -->", TEXT, re.DOTALL)
    assert found, f"formats/SPEC.md has no block {name!r}: add its two marks, then run `{COMMAND}`"
    assert found[1] == spec_blocks.blocks()[name], (
        f"block {name!r} of formats/SPEC.md is stale: run `{COMMAND}`, and read what changed. "
        "A change to the fields, the header or the dump may need a new version: see version.py"
    )


def test_filling_changes_nothing() -> None:
    assert spec_blocks.filled(TEXT) == TEXT, f"run `{COMMAND}`"


def test_header_fields() -> None:
    assert "<" + "".join(code for _, code, _, _ in FIELDS) == HEADER.format


def test_every_limit_is_listed() -> None:
    listed = LIMITS.keys() | NO_LIMIT_OF_A_FILE
    assert listed == spec_blocks.limits_in_code().keys(), "list it in LIMITS, spec_blocks.py"


@pytest.mark.parametrize("kind", spec_blocks.records())
def test_every_field_has_a_meaning(kind: type[Any]) -> None:
    fields = [field.name for field in dataclasses.fields(kind)]
    assert sorted(spec_blocks.meanings(kind)) == sorted(fields), (
        "say it under Attributes: in its docstring"
    )


def test_version() -> None:
    assert TEXT.startswith(f"# The `.tcb` file, version {version.CURRENT}\n")
    log = re.findall(r"^- (\d+) \((\d{4}-\d\d-\d\d)\): ", version.__doc__ or "", re.MULTILINE)
    assert [int(number) for number, _ in log] == list(range(1, version.CURRENT + 1))
    assert [date for _, date in log] == sorted(date for _, date in log)
    stored = {path.name for path in (SPEC.parent.parent / "tests/formats/stored").iterdir()}
    wanted = {f"v{number}.tcb" for number in range(version.OLDEST, version.CURRENT + 1)}
    assert stored == wanted, "keep one artifact of every version that is read"


def test_lines_are_short_enough_to_read() -> None:
    text = re.sub(r"<!-- begin (\w+) -->.*?<!-- end \1 -->", "", TEXT, flags=re.DOTALL)
    assert max(map(len, text.splitlines())) <= 125
