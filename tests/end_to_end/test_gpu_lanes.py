"""The processes of the GPU benchmark: in parallel, alone while they measure, and none left over."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # its modules know each other by their names

from gpu_gate import Gate  # noqa: E402
from gpu_lanes import NO_TIME, Lanes, Task  # noqa: E402
from measure import Row  # noqa: E402

# Beats, in a process of its own, too; is alone; and says whose hearts have beaten meanwhile.
CELL = f"""
import json, os, pathlib, signal, subprocess, sys, time
sys.path.insert(0, {str(BENCHMARKS)!r})
from gpu_gate import Gate

_, _, descriptor, folder, name, what, answer = sys.argv
gate, folder = Gate(int(descriptor)), pathlib.Path(folder)
BEAT = "import pathlib, sys, time\\nwhile True: pathlib.Path(sys.argv[1]).touch(); time.sleep(0.002)"
beating = subprocess.Popen([sys.executable, "-c", BEAT, str(folder / name)])
(folder / f"{{name}}.pid").write_text(str(beating.pid))
while not (folder / name).exists():
    time.sleep(0.01)
time.sleep(0.2)

def beats():
    others = [path for path in folder.iterdir() if path.suffix != ".pid" and path.name != name]
    return [(path.name, path.stat().st_mtime_ns) for path in others]

def crash():
    os.kill(os.getpid(), signal.SIGSEGV)

if what == "crash":
    crash()
if what == "hang":
    time.sleep(60)
disturbed = 0
for _ in range(3):
    with gate.alone():
        if what == "crash alone":
            crash()
        if what == "hang alone":
            time.sleep(60)
        before = beats()
        time.sleep(0.05)
        disturbed += beats() != before
    time.sleep(0.03)
pathlib.Path(answer).write_text(json.dumps({{"disturbed": disturbed, "others": len(before)}}))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "cell.py").write_text(CELL, encoding="utf-8")
    (tmp_path / "beats").mkdir()
    return tmp_path / "cell.py"


def task(
    script: Path, name: str, what: str = "", *, needs: Sequence[str] = (), after: Sequence[str] = ()
) -> Task:
    return Task(
        model="m",
        way=name,
        script=str(script),
        arguments=(str(script.parent / "beats"), name, what),
        limit=2.0,
        needs=tuple(("m", way) for way in needs),
        after=tuple(("m", way) for way in after),
    )


def run(
    tasks: Sequence[Task], jobs: int, seconds: float = 60, then: Sequence[Task] = ()
) -> dict[str, Row]:
    rows: dict[str, Row] = {}

    def ended(task: Task, row: Row) -> Sequence[Task]:
        rows[task.way] = row
        return then if len(rows) == 1 else ()

    Lanes(jobs, 2, time.monotonic() + seconds).run(tasks, ended)
    return rows


def beating(path: Path) -> bool:
    """Return whether the process that a file names is there, stopped or not."""
    try:
        status = Path(f"/proc/{path.read_text(encoding='utf-8')}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def gone(folder: Path) -> bool:
    """Return whether none of the beating processes is left; a killed one may take a moment."""
    end = time.monotonic() + 2
    left = list(folder.glob("*.pid"))
    assert left
    while left and time.monotonic() < end:
        left = [path for path in left if beating(path)]
        time.sleep(0.01)
    return not left


def test_each_is_alone(script: Path) -> None:
    rows = run([task(script, name) for name in "abc"], jobs=3)
    assert [row["disturbed"] for row in rows.values()] == [0, 0, 0]
    assert max(row["others"] for row in rows.values()) == 2
    assert gone(script.parent / "beats")


def test_what_goes_wrong_costs_one_cell(script: Path) -> None:
    wrong = ("crash", "crash alone", "hang", "hang alone")
    rows = run([*(task(script, what, what) for what in wrong), task(script, "well")], jobs=5)
    assert rows["well"]["disturbed"] == 0
    assert "SIGSEGV" in rows["crash"]["failed"]
    assert "SIGSEGV" in rows["crash alone"]["failed"]
    assert "over 2 s" in rows["hang"]["failed"]
    assert "over 2 s" in rows["hang alone"]["failed"]
    assert gone(script.parent / "beats")


def test_order(script: Path) -> None:
    tasks = [
        task(script, "last", after=("broken", "nowhere")),
        task(script, "refused", needs=("broken",)),
        task(script, "broken", "crash"),
    ]
    rows = run(tasks, jobs=2, then=[task(script, "added")])
    assert list(rows)[:2] == ["broken", "refused"]
    assert rows["refused"]["failed"].startswith("broken: crashed")
    assert rows["last"]["disturbed"] == rows["added"]["disturbed"] == 0


def test_no_time(script: Path) -> None:
    rows = run([task(script, "hang", "hang"), task(script, "late")], jobs=1, seconds=6)
    assert rows["hang"]["failed"].startswith(("over 2 s", NO_TIME))
    assert rows["late"]["failed"] == NO_TIME
    assert gone(script.parent / "beats")


def test_a_runner_that_is_ended_ends_its_cells(script: Path) -> None:
    code = (
        f"import sys; sys.path[:0] = [{str(BENCHMARKS)!r}]\n"
        "from gpu_lanes import Lanes, Task\n"
        f"arguments = ({str(script.parent / 'beats')!r}, 'a', 'hang alone')\n"
        f"task = Task(model='m', way='a', script={str(script)!r}, arguments=arguments, limit=60)\n"
        "Lanes(1, 2, float('inf')).run([task], lambda task, row: ())\n"
    )
    runner = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(BENCHMARKS.parent)}
    )
    end = time.monotonic() + 20
    while not (script.parent / "beats" / "a").exists() and time.monotonic() < end:
        time.sleep(0.02)
    runner.send_signal(signal.SIGTERM)
    assert runner.wait(10) == 128 + signal.SIGTERM
    assert gone(script.parent / "beats")


def test_inductor_tunes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.runtime import benchmarking

    class Benchmarker:
        def benchmark_gpu(self, call: Callable[[], int]) -> int:
            return call()

    gate, tuner = Gate(), Benchmarker()
    monkeypatch.setattr(benchmarking, "benchmarker", tuner)
    with gate.tuning():
        assert gate.taken == 0
        assert tuner.benchmark_gpu(lambda: gate.taken) == 1
    assert tuner.benchmark_gpu(lambda: gate.taken) == 2
    monkeypatch.setattr(benchmarking, "benchmarker", object())
    with gate.tuning():
        assert gate.taken == 3  # for the whole block


def test_inductor_tunes_by_the_method_that_is_watched() -> None:
    from torch._inductor.runtime import benchmarking

    assert callable(type(benchmarking.benchmarker).benchmark_gpu)
