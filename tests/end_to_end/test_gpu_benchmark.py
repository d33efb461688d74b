"""The benchmark of the GPU, without one: its cells, and its verdicts on figures that are known."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent

RATES = {"table": "rates", "device": "device", "copy": 4e12, "product": 7e14}


def benchmark(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows_of(path: Path, table: str) -> list[dict[str, Any]]:
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return [row for row in rows if row["table"] == table]


def test_a_cell_that_fails_costs_one_cell(tmp_path: Path) -> None:
    (tmp_path / "chain.tcb").write_bytes(b"no artifact")
    written = tmp_path / "rows.json"
    said = benchmark(
        *("--device", "cpu", "--small", "--models", "chain", "--skip-competitors", "compile,aoti"),
        *(
            "--calls",
            "50",
            "--jobs",
            "3",
            "--profile",
            "eager",
            "--folder",
            str(tmp_path),
            "--json",
            str(written),
        ),
    )
    cells = {row["way"]: row for row in rows_of(written, "cells")}
    assert cells["eager"]["calls"] == 50
    assert cells["eager"]["off"] == 0.0
    assert "NotAnArtifactError" in cells["tcbuild"]["failed"]
    (row,) = rows_of(written, "models")
    assert row["best"] == "eager"
    assert row["floor"] > 0
    assert "x best" not in row
    assert "Without a time" in said
    (profile,) = rows_of(written, "profiles")
    assert profile["way"] == "eager"
    assert profile["kernels"][0]["us"] > 0
    assert "chain, eager:" in said


@pytest.mark.parametrize(
    ("us", "borrowed", "verdict"),
    [(600.0, 600.0, "met"), (700.0, 600.0, "met where borrowed"), (700.0, 700.0, "unmet")],
)
def test_aims(us: float, borrowed: float, verdict: str, tmp_path: Path) -> None:
    times = {"eager": 4500.0, "tcbuild": us, "tcbuild borrowed": borrowed}
    cell = {"table": "cells", "model": "chain", "wrong": False, "back to back": 500.0}
    cells = [{**cell, "way": way, "us": took} for way, took in times.items()]
    row = {
        **{"table": "models", "model": "chain", "times": times, "tried": list(times)},
        **{"floor": 515.0, "bound": "copy", "best": "eager", "best compile": None},
        **{"of floor": 515 / us, "of floor (b)": 515 / borrowed},
        **{"x best": 4500 / us, "x best (b)": 4500 / borrowed},
    }
    measured, joined = tmp_path / "1.json", tmp_path / "joined.json"
    measured.write_text(json.dumps({"rows": [RATES, *cells, row]}), encoding="utf-8")
    said = benchmark("--join", str(measured), "--json", str(joined))
    assert "copy 4.000 TB/s, product 700.0 TFLOP/s" in said
    aims = {row["aim"]: row["verdict"] for row in rows_of(joined, "aims")}
    assert aims["chain: part of the floor"] == verdict
    assert aims["best other / ours, worst row"] == "met"
    assert aims["prefill: part of the floor"] == "not measured"
