"""The start of a process to its first result: `--cold` of gpu.py.

What is started is built first, and each way is started once to fill its caches, in parallel. Then
each is measured with no other process beside it, in turn.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import measure
from gpu_cell import Setting
from gpu_lanes import Lanes, Task
from measure import Row

COLD: Final = {"tcbuild": "make artifact", "eager": "", "compile": "", "aoti": "make package"}
STAGES: Final = ("python", "torch", "inputs", "construct", "import", "load", "call")


def first(model: str, way: str, setting: Setting, limit: float) -> Task:
    """Return the task that starts a process for one result."""
    needed = COLD[way]
    path = str(setting.made(needed, model)) if needed else "-"
    size = "small" if setting.small else "full"
    return Task(
        model=model,
        way=way,
        script="gpu_first.py",
        arguments=(way, model, path, setting.device, size),
        limit=limit,
        needs=((model, needed),) if needed else (),
        gated=False,
    )


def measured(lanes: Lanes, tasks: Sequence[Task], making: Sequence[Task], rounds: int) -> list[Row]:
    """Make what the tasks need, start each once, and then in turn; return the rows."""
    rows: list[Row] = []
    able: dict[str, Task] = {}

    def filled(task: Task, row: Row) -> Sequence[Task]:
        said = f"failed: {row['failed']}" if "failed" in row else "done"
        print(f"  {task.model:10} {task.way:17} {row.get('seconds', 0):5.0f} s  {said}", flush=True)
        if "failed" in row:
            named = {"table": "failed", "model": task.model, "way": task.way}
            rows.append({**row, **named, "why": row["failed"]})
        elif not task.gated:
            able[" ".join(task.key)] = task
        return ()

    lanes.run((*making, *tasks), filled)
    starts = {name: partial(start, lanes, task) for name, task in able.items()}
    found = measure.in_turn(starts, rounds) if able else {}
    for name, started in found.items():
        model, way = able[name].key
        rows.append(row_of(model, way, started, found.get(f"{model} eager", [])))
    return rows


def start(lanes: Lanes, task: Task) -> Row:
    """Start a process for one result, alone, and return its row."""
    rows: list[Row] = []

    def ended(_: Task, row: Row) -> Sequence[Task]:
        rows.append(row)
        return ()

    lanes.run([task], ended)
    (row,) = rows
    if "failed" not in row:
        took = row["stages"]
        took["python"] = (row["entered"] - row["started"]) * 1e3
        row["total"] = sum(took.values()) - took.get("construct", 0.0)
    return row


def row_of(model: str, way: str, started: Sequence[Row], eager: Sequence[Row]) -> Row:
    """Return the medians of the starts that gave a result, and how many times eager's the total is."""
    row: Row = {"table": "cold", "model": model, "way": way}
    whole = [start for start in started if "failed" not in start]
    row["runs"] = len(whole)
    if not whole:
        return row
    for stage in STAGES:
        if stage in whole[0]["stages"]:
            row[stage] = measure.median([start["stages"][stage] for start in whole])
    row["total"] = measure.median([start["total"] for start in whole])
    pairs = [
        (start["total"], other["total"])
        for start, other in zip(started, eager, strict=False)
        if "failed" not in start and "failed" not in other
    ]
    if pairs:
        row["x eager"] = measure.ratio(*zip(*pairs, strict=True))
    return row


def show(rows: Sequence[Row]) -> None:
    """Print the table of the starts."""
    columns = {"model": "", "way": "", "runs": "d"}
    columns |= {**dict.fromkeys((*STAGES, "total"), ".0f"), "x eager": ".2f"}
    measure.show("Start to first result, ms", rows, "cold", columns)
    if any(row["table"] == "failed" for row in rows):
        measure.show("Without a result", rows, "failed", {"model": "", "way": "", "why": ""})
