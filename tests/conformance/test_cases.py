"""Behaviours that must hold, each a file of its own under cases/: see __main__.py for their form."""

from pathlib import Path

import pytest

from tests.conformance.play import run_case

CASES = sorted((Path(__file__).parent / "cases").glob("case_*.py"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path: Path) -> None:
    run_case(path)
