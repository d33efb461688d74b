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

Each line is printed as its cell ends, and `--json` is written anew each time. A model takes about
4 to 8 minutes: measure one or two a command, and `--join` the files to one table:

    gpu.py --models mlp,chain --budget 520 --json 1.json
    gpu.py --models decode --budget 520 --json 2.json
    gpu.py --join 1.json 2.json

With `--cold` it measures the start of a process to its first result instead, in ms: of the
artifact, of eager, of torch.compile with a warm cache, and of aoti_load_package. In `construct` the
module draws its weights; it is shown and not part of `total`.
"""

import argparse
import fnmatch
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

import gpu_cell
import gpu_table
import measure
from gpu_cell import NEEDS, ON_CPU, WAYS, Setting
from gpu_models import CASES
from measure import Row

MINIMUM: Final = 5.0  # seconds; with less left, no cell is started
FEWEST: Final = 50  # calls that a median is taken of
COLD: Final = {"tcbuild": "make artifact", "eager": "", "compile": "", "aoti": "make package"}
STAGES: Final = ("python", "torch", "inputs", "construct", "import", "load", "call")


class Runner:
    """Runs each cell in a process, within the time that is left, and keeps and prints its row."""

    def __init__(self, options: argparse.Namespace, setting: Setting) -> None:
        self.options = options
        self.setting = setting
        self.end = time.monotonic() + (options.budget or float("inf"))
        self.rows: list[Row] = []

    def keep(self, row: Row) -> None:
        """Keep a row, in the file, too."""
        self.rows.append(row)
        measure.save(self.options.json, "gpu", self.rows)

    def apart(self, script: str, arguments: Iterable[str], limit: float) -> Row:
        """Run a script that writes a row to the file of its last argument; a crash becomes the row's."""
        limit = min(limit, self.end - time.monotonic())
        if limit < MINIMUM:
            return {"failed": "no time left"}
        paths = [str(measure.ROOT), str(measure.ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        with tempfile.TemporaryDirectory() as name:
            answer, said = Path(name) / "row.json", Path(name) / "said"
            path = str(Path(__file__).with_name(script))
            command = [sys.executable, path, *arguments, str(answer)]
            began = time.monotonic()
            with said.open(
                "wb"
            ) as file:  # no pipe: a process that outlives its parent keeps it open
                process = subprocess.Popen(
                    command, env=environment, stdout=file, stderr=file, start_new_session=True
                )
                failed = wait(process, limit)
            row: Row = {"seconds": time.monotonic() - began, "started": began}
            if answer.exists():
                row.update(json.loads(answer.read_text(encoding="utf-8")))
            output = said.read_text(encoding="utf-8", errors="replace").strip()
        if failed and "failed" not in row:
            row["failed"] = f"{failed}: {(output.splitlines() or ['no output'])[-1]}"
        return {**row, "output": output[-4000:]} if "failed" in row else row

    def cell(self, model: str, way: str) -> Row:
        """Run a cell, and print its line."""
        options, needed = self.options, NEEDS.get(way)
        if needed and not self.setting.made(needed, model).exists():
            made = next((row for row in self.rows if where(row) == (model, needed)), None)
            made = made or self.cell(model, needed)
            if "failed" in made:
                row: Row = {"failed": f"{needed}: {made['failed']}"}
                return self._ended(model, way, row)
        limit = options.build_timeout if way in gpu_cell.MAKERS else options.timeout
        row = self.apart("gpu.py", [*passed(self.setting), "--one", model, way, "--json"], limit)
        return self._ended(model, way, row)

    def _ended(self, model: str, way: str, row: Row) -> Row:
        row = {"table": "cells", "model": model, "way": way, **row}
        said = "made"
        if "us" in row or "failed" in row:
            said = f"{row['us']:.1f} us" if gpu_table.timed(row) else gpu_table.why(row)
        elif way == "rates":
            said = "measured"
        print(f"  {model:10} {way:17} {row.get('seconds', 0):5.0f} s  {said}", flush=True)
        self.keep(row)
        return row

    def first(self, model: str, way: str) -> Row:
        """Start a process for one result, and return its row."""
        needed, setting = COLD[way], self.setting
        path = str(setting.made(needed, model)) if needed else "-"
        size = "small" if setting.small else "full"
        arguments = [way, model, path, setting.device, size]
        row = self.apart("gpu_first.py", arguments, self.options.timeout)
        if "failed" not in row:
            took = row["stages"]
            took["python"] = (row["entered"] - row["started"]) * 1e3
            row["total"] = sum(took.values()) - took.get("construct", 0.0)
        return row


def wait(process: "subprocess.Popen[bytes]", limit: float) -> str:
    """Wait for a process, and end what it leaves running; return what went wrong, or nothing."""
    try:
        code = process.wait(limit)
    except subprocess.TimeoutExpired:
        return f"over {limit:.0f} s"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if code < 0:
        return f"crashed ({signal.Signals(-code).name})"
    return f"exit code {code}" if code else ""


def where(row: Row) -> tuple[str, str]:
    """Return which cell a row is of."""
    return row.get("model", ""), row.get("way", "")


def passed(setting: Setting) -> list[str]:
    """Return the arguments that give a cell its setting."""
    device = setting.device.partition(":")[0]
    size = ["--small"] if setting.small else []
    given = {"device": device, "folder": setting.folder, "calls": setting.calls}
    pairs = {**given, "mode": setting.mode}.items()
    return [*size, *(text for name, value in pairs for text in (f"--{name}", str(value)))]


def one(model: str, way: str, setting: Setting, path: Path | None) -> None:
    """Run one cell in this process."""

    def report(row: Row) -> None:
        text = json.dumps(row)
        if path is None:
            print(text, flush=True)
        else:
            path.write_text(text, encoding="utf-8")

    try:
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


def calls(runner: Runner, models: Sequence[str], ways: Sequence[str]) -> None:
    """Measure the rates and every cell; ours right after eager, so that a run cut short has both."""
    rates = {**runner.cell("-", "rates"), "table": "rates", "device": "the device"}
    rates["device"] = rates.get("name", "the device")
    runner.keep(rates)
    first = [way for way in ("eager", *gpu_table.OURS) if way in ways]
    order = first + [way for way in ways if way not in first]
    for model in models:
        began = time.monotonic()
        cells = [runner.cell(model, way) for way in order]
        runner.keep(gpu_table.model_row(model, cells, rates))
        print(f"  {model:10} {'all':17} {time.monotonic() - began:5.0f} s", flush=True)


def cold(runner: Runner, models: Sequence[str], ways: Sequence[str]) -> None:
    """Measure the starts, in turn, after one of each that fills the caches."""
    for model in models:
        able = []
        for way in (way for way in COLD if way in ways):
            needed, row = COLD[way], Row()
            if needed and not runner.setting.made(needed, model).exists():
                row = runner.cell(model, needed)
            if "failed" not in row:
                row = runner.first(model, way)
            if "failed" in row:
                row.update(table="failed", model=model, way=way, why=row["failed"])
                runner.keep(row)
            else:
                able.append(way)
        if able:
            asked = {way: partial(runner.first, model, way) for way in able}
            found = measure.in_turn(asked, runner.options.rounds)
            for way, started in found.items():
                runner.keep(cold_row(model, way, started, found.get("eager", [])))


def cold_row(model: str, way: str, started: Sequence[Row], eager: Sequence[Row]) -> Row:
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


def show_cold(rows: Sequence[Row]) -> None:
    """Print the table of the starts."""
    columns = {"model": "", "way": "", "runs": "d"}
    columns |= {**dict.fromkeys((*STAGES, "total"), ".0f"), "x eager": ".2f"}
    measure.show("Start to first result, ms", rows, "cold", columns)
    if any(row["table"] == "failed" for row in rows):
        measure.show("Without a result", rows, "failed", {"model": "", "way": "", "why": ""})


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
    add("--timeout", type=float, default=150, help="seconds for a cell (%(default)s)")
    add("--build-timeout", type=float, default=300, help="for what is built (%(default)s)")
    add("--budget", type=float, default=0, help="seconds for all; then no cell is started")
    add("--mode", help="of tcbuild (reduce-overhead; default on the CPU)")
    add("--folder", type=Path, help="keep caches and artifacts there, and take what it has")
    add("--json", type=Path, metavar="FILE", help="write all rows there, too")
    add("--join", type=Path, nargs="+", metavar="FILE", help="measure nothing; show these files")
    add("--cold", action="store_true", help="measure the start to the first result")
    add("--rounds", type=int, default=5, help="starts of each (%(default)s)")
    add("--one", nargs=2, metavar=("MODEL", "WAY"), help="run one cell in this process")
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
        one(model, way, setting, options.json)
        return
    rows = joined(options.join) if options.join else measured(options, setting)
    if any(row["table"] == "cold" for row in rows) or options.cold:
        show_cold(rows)
    if not options.cold:
        rows = [row for row in rows if row["table"] != "aims"]
        rows += gpu_table.show(rows)
    measure.save(options.json, "gpu", rows)


def measured(options: argparse.Namespace, setting: Setting) -> list[Row]:
    """Measure what was asked for, and return all rows."""
    skipped = chosen(WAYS, options.skip_competitors)
    ways = [
        way for way in WAYS if way not in skipped and (setting.device != "cpu" or way in ON_CPU)
    ]
    models = chosen(CASES, options.models)
    with measure.own_folder(options.folder) as folder:
        runner = Runner(options, replace(setting, folder=folder))
        print(f"torch {torch.__version__}; as each cell ends:", flush=True)
        (cold if options.cold else calls)(runner, models, ways)
    return runner.rows


if __name__ == "__main__":
    main()
