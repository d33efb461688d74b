"""Architectures of transformers, through the benchmark's own code: built, verified, and served whole."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

# In processes of their own: what transformers warns of is not ours to fix.
pytest.importorskip("transformers", reason="transformers is not installed: pip install -e .[dev]")


@pytest.mark.parametrize("name", ["distilbert", "gpt2-step", "resnet"])
def test_zoo(name: str, tmp_path: Path) -> None:
    rows = tmp_path / "rows.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "zoo.py"), "--only", name]
    done = subprocess.run(
        [*command, "--rounds", "1", "--json", str(rows)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(rows.read_text(encoding="utf-8"))["rows"]
    assert "error" not in row, row["error"]
    assert row["coverage"] == 1.0, row["missed"]
    assert row["outputs"] > 0
    assert row["random"] == 0
    assert row["worst"] <= 1.0
