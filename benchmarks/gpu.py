"""The speed of calls on a GPU: tcbuild against eager, CUDA graphs, torch.compile and AOTInductor.

A call is timed by the wall clock from an idle device to an idle device, in bfloat16 and under
inference_mode, with the same inputs each time; a cell is the median. Every cell is a process of its
own, so that a crash costs one cell, and its last answer is held against eager's. The floor is made
of two rates that are measured first. The ways:

- `eager`, and `eager graph`: eager in a CUDA graph that is replayed, with nothing copied into it;
- `compile`, `reduce-overhead` and `max-autotune`: the modes of torch.compile; `max-no-descent` is
  the last without coordinate descent, `max-no-graph` without a CUDA graph;
- `aoti`: aoti_load_package of a package compiled with max-autotune;
- `bare replay`: the kernels of `max-no-graph` in a CUDA graph, as `eager graph`; a reference, and
  no competitor;
- `tcbuild`: the artifact; `tcbuild borrowed`: the same with borrowed inputs and outputs.

Cells import, compile and warm up in parallel, `--jobs` at a time, and no number is disturbed by it:

- A cell that is ready waits until it is alone: all other cells are stopped, with the processes that
  they started, and what they have queued on the device has ended. It warms up again, measures, and
  the others go on.
- Inductor tunes by measuring kernels. Each such measurement of any cell, competitor's or ours, is
  alone in the same way; compiling the candidates is not, as no time of that is told. Where torch
  has no place to ask for that, a cell is alone for as long as it compiles.
- With `--mode max-autotune`, processes of tcbuild's build measure on their own, one at a time, however
  many builds there are: the artifacts are built first, and then the other cells run.
- Those ways of a model that tune take turns, so that each finds what the one before has tuned.

`--profile` adds where the time goes, by kernel: of tcbuild and the best of the others, or of the
ways it is given.

Each line is printed as its cell ends, and `--json` is written anew each time. Measure some models a
command with one `--folder`, which keeps what is compiled, and `--join` the files to one table:

    gpu.py --models mlp,chain,decode,resnet-1 --budget 560 --folder kept --json 1.json
    gpu.py --models prefill,bert,resnet-32,unet --budget 560 --folder kept --json 2.json
    gpu.py --join 1.json 2.json

With `--cold` it measures the start of a process to its first result instead, in ms: of the
artifact, of eager, of torch.compile with a warm cache, and of aoti_load_package. In `construct` the
module draws its weights; it is shown and not part of `total`. A `--budget` that runs out leaves out
the last rounds.
"""

import argparse
import fnmatch
import json
import os
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch

import gpu_cell
import gpu_cold
import gpu_profile
import gpu_table
import measure
from gpu_cell import ON_CPU, WAYS, Setting
from gpu_gate import Gate
from gpu_lanes import Lanes, Task
from gpu_models import CASES
from gpu_plan import Plan
from gpu_profile import PROFILE
from measure import Row

FEWEST: Final = 50  # calls that a median is taken of
CORES: Final = min(16, len(os.sched_getaffinity(0)))  # a container may have fewer than it sees
MOST: Final = 8  # jobs, where the command line does not say
SEARCHES: Final = 3  # builds at a time, where each compiles in several processes
ROOM: Final = 16 << 30  # bytes on the device for a cell: the largest takes 10 with its copies
BEST: Final = "best"  # for `--profile`: tcbuild and the best of the others


class Record:
    """Keeps the rows of all cells, in the file, too, and prints a line for each."""

    def __init__(self, options: argparse.Namespace, ways: Sequence[str], plan: Plan) -> None:
        self.rates: Row = {}
        self.cells: list[Row] = []
        self.profiles: list[Row] = []
        self._options = options
        self._plan = plan
        self._coming = {model: set(ways) for model in chosen(CASES, options.models)}
        self._began = time.monotonic()

    def rows(self) -> list[Row]:
        """Return all rows, those of the models made of the cells there are."""
        rows = [self.rates, *self.cells] if self.rates else list(self.cells)
        for model in self._coming:
            if cells := self._of(model):
                rows.append(gpu_table.model_row(model, cells, self.rates))
        return rows + self.profiles

    def _of(self, model: str) -> list[Row]:
        return [row for row in self.cells if row["model"] == model and row["way"] in WAYS]

    def ended(self, task: Task, row: Row) -> Sequence[Task]:
        """Keep and print a row; return the profiles to take where it was its model's last."""
        model, way = task.key
        row = {"table": "cells", "model": model, "way": way, **row}
        line(row)
        if way.startswith(PROFILE) and "failed" not in row:
            self.profiles.append({**row, "table": "profiles", "way": way.removeprefix(PROFILE)})
        else:
            self.cells.append(row)
        if way == "rates":
            self.rates = {**row, "table": "rates", "device": row.get("name", "the device")}
        measure.save(self._options.json, "gpu", self.rows())
        coming = self._coming.get(model, set())
        if way not in coming:
            return ()
        coming.remove(way)
        if coming:
            return ()
        print(f"  {model:10} {'all':17} after {time.monotonic() - self._began:.0f} s", flush=True)
        return [self._plan.profile(model, way) for way in self._profiled(model)]

    def _profiled(self, model: str) -> list[str]:
        """Return which ways of a model to profile."""
        asked = self._options.profile
        times = {cell["way"]: cell["us"] for cell in self._of(model) if gpu_table.timed(cell)}
        if asked is None:
            return []
        if asked != BEST:
            return chosen(times, asked)
        pair = ("tcbuild", gpu_table.best(times, gpu_table.OTHERS))
        return [way for way in pair if way is not None and way in times]


def line(row: Row) -> None:
    """Print what came of a cell."""
    said = "done"
    if "us" in row or "failed" in row:
        said = f"{row['us']:.1f} us" if gpu_table.timed(row) else gpu_table.why(row)
    elif row.get("tuning"):
        said = f"done: {row['tuning'][0]}"
    print(f"  {row['model']:10} {row['way']:17} {row.get('seconds', 0):5.0f} s  {said}", flush=True)


def one(model: str, way: str, setting: Setting, path: Path | None) -> None:
    """Run one cell in this process."""

    def report(row: Row) -> None:
        text = json.dumps(row)
        if path is None:
            print(text, flush=True)
        else:
            path.write_text(text, encoding="utf-8")

    try:
        if way.startswith(PROFILE):
            gpu_profile.run(model, way.removeprefix(PROFILE), setting, report)
        else:
            gpu_cell.run(model, way, setting, report)
    except Exception as error:
        traceback.print_exc()
        first = next(iter(str(error).strip().splitlines()), "no message")
        report({"failed": f"{type(error).__name__}: {first}"})
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # compiler processes may still be waited for


def chosen(names: Iterable[str], patterns: str) -> list[str]:
    """Return the names that match one of the patterns, which have commas between."""
    listed = [pattern.strip() for pattern in patterns.split(",")]
    return [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in listed)]


def calls(lanes: Lanes, plan: Plan, options: argparse.Namespace, ways: Sequence[str]) -> list[Row]:
    """Measure the rates, and then every cell; return all rows."""
    record = Record(options, ways, plan)
    lanes.run([plan.cell("-", "rates")], record.ended)
    if memory := record.rates.get("memory"):
        lanes.jobs = max(1, min(lanes.jobs, memory // ROOM))
    cells, jobs = plan.cells(chosen(CASES, options.models), ways), lanes.jobs
    if plan.setting.searches:
        builds = [task for task in cells if task.way in ("artifact headers", "make artifact")]
        lanes.jobs = min(jobs, SEARCHES)
        lanes.run(builds, record.ended)
        cells, lanes.jobs = [task for task in cells if task not in builds], jobs
    lanes.run(cells, record.ended)
    return record.rows()


def cold(lanes: Lanes, plan: Plan, options: argparse.Namespace, ways: Sequence[str]) -> list[Row]:
    """Measure the starts; return all rows."""
    models, taken = chosen(CASES, options.models), [way for way in gpu_cold.COLD if way in ways]
    making = plan.making(models, [made for way in taken if (made := gpu_cold.COLD[way])])
    tasks = [
        gpu_cold.first(model, way, plan.setting, options.timeout)
        for model in models
        for way in taken
    ]
    return gpu_cold.measured(lanes, tasks, making, options.rounds)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add: Any = parser.add_argument
    add("--models", metavar="GLOBS", help="names to take, as in mlp,resnet-*")
    add("--skip-competitors", metavar="GLOBS", default="", help="ways to leave out")
    add("--device", choices=("cuda", "cpu"), default="cuda", help="%(default)s")
    add("--small", action="store_true", help="take tiny sizes: a test of the benchmark")
    add("--calls", type=int, default=100, help="timed calls of a cell (%(default)s)")
    add(
        "--jobs",
        type=int,
        default=min(MOST, max(1, CORES // 2)),
        help="cells at a time (%(default)s)",
    )
    add("--timeout", type=float, default=240, help="seconds for a cell (%(default)s)")
    add("--build-timeout", type=float, default=300, help="for what is built (%(default)s)")
    add("--budget", type=float, default=0, help="seconds for all; then the rest is left out")
    add("--mode", help="of tcbuild (reduce-overhead; default on the CPU)")
    add("--folder", type=Path, help="keep caches and artifacts there, and take what it has")
    add("--json", type=Path, metavar="FILE", help="write all rows there, too")
    add("--join", type=Path, nargs="+", metavar="FILE", help="measure nothing; show these files")
    add("--cold", action="store_true", help="measure the start to the first result")
    add("--rounds", type=int, default=5, help="starts of each (%(default)s)")
    add(
        "--profile",
        metavar="WAYS",
        nargs="?",
        const=BEST,
        help="say where the time goes, of tcbuild and the best of the others, or of WAYS",
    )
    add("--one", nargs=2, metavar=("MODEL", "WAY"), help="run one cell in this process")
    add("--gate", type=int, metavar="FD", help="of that cell: the socket to what runs it")
    options = parser.parse_args(given)
    if options.calls < FEWEST:
        parser.error(f"--calls: found {options.calls}, expected at least {FEWEST}")
    options.models = options.models or ("mlp,bert" if options.cold else "*")
    if not chosen(CASES, options.models):
        expected = f"patterns of {', '.join(CASES)}"
        parser.error(f"--models: found {options.models!r}, expected {expected}")
    return options


def joined(paths: Sequence[Path]) -> list[Row]:
    """Return the rows of files written before; of a model measured twice, the last."""
    rows: list[Row] = []
    for path in paths:
        new = json.loads(path.read_text(encoding="utf-8"))["rows"]
        again = {row["model"] for row in new if row["table"] == "models"}
        rows = [row for row in rows if row.get("model") not in again] + new
    return rows


def main() -> None:
    options = arguments()
    on_cpu = options.device == "cpu"
    setting = Setting(
        device="cpu" if on_cpu else "cuda:0",
        small=options.small,
        folder=(options.folder or Path()).absolute(),
        calls=options.calls,
        mode=options.mode or ("default" if on_cpu else "reduce-overhead"),
    )
    if options.one:
        model, way = options.one
        one(model, way, replace(setting, gate=Gate(options.gate)), options.json)
        return
    rows = joined(options.join) if options.join else measured(options, setting)
    if any(row["table"] == "cold" for row in rows) or options.cold:
        gpu_cold.show(rows)
    if not options.cold:
        rows = [row for row in rows if row["table"] != "aims"]
        rows += gpu_table.show(rows)
        for row in rows:
            if row["table"] == "profiles":
                gpu_profile.show(row)
    measure.save(options.json, "gpu", rows)


def measured(options: argparse.Namespace, setting: Setting) -> list[Row]:
    """Measure what was asked for, and return all rows."""
    skipped = chosen(WAYS, options.skip_competitors)
    ways = [
        way for way in WAYS if way not in skipped and (setting.device != "cpu" or way in ON_CPU)
    ]
    end = time.monotonic() + (options.budget or float("inf"))
    with measure.own_folder(options.folder) as folder:
        plan = Plan(
            setting=replace(setting, folder=folder),
            timeout=options.timeout,
            build_timeout=options.build_timeout,
        )
        lanes = Lanes(options.jobs, CORES, end)
        print(f"torch {torch.__version__}; as each cell ends:", flush=True)
        return (cold if options.cold else calls)(lanes, plan, options, ways)


if __name__ == "__main__":
    main()
