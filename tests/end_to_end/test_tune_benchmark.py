"""The benchmark of the CPU: its cells, its joined table, and what a way that is wrong or lost costs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent


def benchmark(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "tune.py"), *arguments],
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


def test_a_way_that_is_lost_costs_one_cell(tmp_path: Path) -> None:
    (tmp_path / "chain.tcb").write_bytes(b"no artifact")
    written = tmp_path / "rows.json"
    said = benchmark(
        *("--small", "--models", "chain", "--ways", "eager,tcbuild", "--threads", "1"),
        *("--profile", "eager", "--folder", str(tmp_path), "--json", str(written)),
    )
    cells = {row["way"]: row for row in rows_of(written, "cells")}
    assert cells["eager"]["calls"] >= 50
    assert 0 < cells["eager"]["off"] < 1e-5
    assert cells["eager"]["grown"] >= 0
    assert "NotAnArtifactError" in cells["tcbuild"]["failed"]
    (profile,) = rows_of(written, "profiles")
    assert profile["kernels"][-1]["name"] == "the rest"
    assert "chain, eager, 1 threads:" in said
    assert "Without a time" in said


def test_a_joined_table(tmp_path: Path) -> None:
    def cell(way: str, ms: float, off: float = 1e-6) -> dict[str, Any]:
        common = {"table": "cells", "model": "decode", "threads": 2, "bytes": 2e8, "flops": 1e8}
        return {**common, "way": way, "ms": ms, "off": off, "rounds": [ms] * 10, "grown": 3e8}

    rates = {"table": "rates", "threads": 2, "copy": 4e10, "product": 2e11}
    cells = [cell("eager", 20), cell("openvino", 4, off=1e-2), cell("onnxruntime", 10)]
    held = [
        {"table": "held", "model": "decode", "way": way, "grown": grown, "rss": grown + 3e8}
        for way, grown in (("1 buckets", 1e8), ("4 buckets", 1.2e8))
    ]
    first, second, joined = (tmp_path / f"{name}.json" for name in ("first", "second", "joined"))
    first.write_text(json.dumps({"rows": [rates, *cells, cell("tcbuild", 30)]}), encoding="utf-8")
    second.write_text(json.dumps({"rows": [cell("tcbuild", 8), *held]}), encoding="utf-8")
    said = benchmark("--join", str(first), str(second), "--json", str(joined))
    header, line = (said.splitlines()[i].split() for i in (2, 3))
    assert header[:5] == ["model", "threads", "limit", "eager", "onnxruntime"]
    assert line == ["decode", "2", "5", "20", "10", "4", "OFF", "8", "onnxruntime", "1.25"]
    assert "off by 0.01 of the largest value" in said  # it wins nothing
    verdicts = {row["promise"]: row["verdict"] for row in rows_of(joined, "promises")}
    assert verdicts == {
        "decode: ours / the best of the others": "kept",
        "decode: memory of 4 buckets / one": "BROKEN",
    }
