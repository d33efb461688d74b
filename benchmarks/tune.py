"""The speed of calls on the CPU: tcbuild against what users would pick, for models in float32.

The ways:

- `eager`; `compile`, `max-autotune`: torch.compile, the second with frozen weights;
- `aoti`, `aoti frozen`: torch.export and aoti_compile_and_package, the second with freezing and
  max-autotune;
- `onnxruntime`, `openvino`: the model as ONNX; OpenVINO is held to float32;
- `tcbuild`, `tcbuild tuned`: our artifact with mode "default" and "max-autotune";
- with products in bfloat16, compared with each other: `autocast`, which is `max-autotune` in that mode
  of torch; `openvino bf16`; `tcbuild bf16` and `tcbuild bf16 tuned`, with `fp32_precision = "bf16"`.

Each way of a row is a process of its own, so that a crash costs one cell. What is built is built first,
`--jobs` at a time; then all ways of a row take turns in one run, a few calls each round, and a cell is the
median of all calls, at least `--calls`. Each first answer is held against eager in float64: a cell that is
off by more than its precision explains is marked, and wins nothing. The limit is what the bytes of a call
take at the rate of a copy, or its operations at the rate of a matrix product of float32, whichever is more;
both rates are measured first, with the same number of threads.

`x best` is how many times as long the best of the others takes, round by round. Memory is what a process
has grown by since before it loaded, in MB; `4 buckets` against `1 buckets` is that of artifacts for four
sizes of the batch and for the largest of them, where `--buckets` asks for it.

`--profile` adds where the time of a call goes: of the best of the others, and of ours.

The whole takes long where nothing is built yet. Keep what is built in a `--folder`, measure some models a
command, and `--join` the files to one table:

    tune.py --models 'encoder-*' --folder kept --json 1.json
    tune.py --models conv,ranker,decode,chain --folder kept --json 2.json
    tune.py --join 1.json 2.json
"""

import argparse
import fnmatch
import importlib.util
import json
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

import cpu_profile
import measure
import tune_table
from cpu_models import CASES
from cpu_ways import BUCKET_MODE, EVERY, HELD, WARM_SECONDS, WAYS, Subject, seconds_of
from measure import Row
from turns import LostError, Player

FEWEST: Final = 50  # calls that a median is taken of
ROUNDS: Final = 10
TURN: Final = 0.05  # seconds of calls in a turn, where they are short
MOST: Final = 200  # calls of a turn
SETTLE: Final = 0.005  # seconds before a turn: threads of the one before stop to spin
PACKAGES: Final = {
    "onnxruntime": ("onnxruntime", "onnxscript"),
    "openvino": ("openvino", "onnxscript"),
    "openvino bf16": ("openvino", "onnxscript"),
}


@dataclass(frozen=True, kw_only=True)
class Run:
    """What was asked for.

    Attributes:
        folder: where all that is built lies.
        small: take tiny sizes.
        calls: of each way, at least.
        jobs: processes that build or load at once.
        limit: seconds for one of them.
        mode: of the artifacts of several buckets.
    """

    folder: Path
    small: bool
    calls: int
    jobs: int
    limit: float
    mode: str

    def player(self, model: str, way: str, threads: int, task: str, **environment: str) -> Player:
        """Start the process of a cell."""
        request = {
            "model": model,
            "way": way,
            "threads": threads,
            "task": task,
            "folder": str(self.folder),
            "small": self.small,
        }
        variables = {"OMP_NUM_THREADS": str(threads), BUCKET_MODE: self.mode, **environment}
        return Player("tune_cell.py", request, variables)

    def path(self, model: str, way: str, threads: int) -> Path | None:
        """Return the path of what a way builds first."""
        case = CASES[model](self.small)
        subject = Subject(model=model, case=case, threads=threads, folder=self.folder)
        return EVERY[way].path(subject)


def built(
    run: Run, models: Sequence[str], ways: Sequence[str], threads: Sequence[int]
) -> list[Row]:
    """Build what is not there yet; return a row for each, that of a failure with why."""
    wanted: dict[Path, tuple[str, str, int]] = {}
    for model in models:
        for way in ("answers", *ways):
            for count in threads:
                path = run.path(model, way, count)
                if path is not None and not path.exists():
                    most = count if EVERY[way].by_threads else max(threads)
                    wanted.setdefault(path, (model, way, most))

    def make(model: str, way: str, count: int) -> Row:
        row: Row = {"table": "built", "model": model, "way": way, "threads": count}
        try:
            with run.player(model, way, count, "make") as player:
                row |= player.answer(run.limit)
        except LostError as lost:
            row["failed"] = str(lost)
        said = row.get("failed") or f"{row['seconds']:.0f} s"
        print(f"  built {model}, {way}, for {count}: {said}", flush=True)
        for note in row.get("notes", ()):
            print(f"    {note}", flush=True)
        return row

    beside = [one for one in wanted.values() if not EVERY[one[1]].alone]
    alone = [one for one in wanted.values() if EVERY[one[1]].alone]
    with ThreadPoolExecutor(run.jobs) as pool:
        rows = list(pool.map(lambda one: make(*one), beside))
    return rows + [make(*one) for one in alone]


def cells(run: Run, model: str, ways: Sequence[str], threads: int) -> list[Row]:
    """Measure the ways of a model in turn; return a row for each."""
    case = CASES[model](run.small)
    least = {"bytes": 4 * case.values, "flops": case.flops}
    rows: dict[str, Row] = {
        way: {"table": "cells", "model": model, "way": way, "threads": threads, **least}
        for way in ways
    }
    with ExitStack() as stack:
        players = {}

        def start(way: str) -> None:
            path = run.path(model, way, threads)
            if path is not None and not path.exists():
                rows[way]["failed"] = "not built"
                return
            player = stack.enter_context(run.player(model, way, threads, "serve"))
            try:
                rows[way] |= player.answer(run.limit)
                players[way] = player
            except LostError as lost:
                rows[way]["failed"] = str(lost)

        with ThreadPoolExecutor(run.jobs) as pool:
            list(pool.map(start, ways))
        medians: dict[str, list[float]] = {way: [] for way in players}
        took: dict[str, list[float]] = {way: [] for way in players}
        for number in range(ROUNDS):
            order = list(players)
            shift = number % max(1, len(order))
            for way in order[shift:] + order[:shift]:
                time.sleep(SETTLE)
                fewest = -(-run.calls // ROUNDS)
                calls = min(MOST, max(fewest, int(TURN / rows[way]["each"])))
                try:
                    seconds = players[way].ask(calls, run.limit)["seconds"]
                except LostError as lost:
                    rows[way]["failed"] = str(lost)
                    del players[way]
                    continue
                took[way] += seconds
                medians[way].append(statistics.median(seconds))
    for way in players:
        rows[way] |= {
            "ms": 1e3 * statistics.median(took[way]),
            "calls": len(took[way]),
            "quarters": [1e3 * value for value in statistics.quantiles(took[way], n=4)],
            "rounds": [1e3 * value for value in medians[way]],
        }
    return list(rows.values())


def held(run: Run, model: str, threads: int) -> list[Row]:
    """Measure the memory of one bucket and of several; return a row for each."""
    rows = []
    for way in HELD:
        row: Row = {"table": "held", "model": model, "way": way, "threads": threads}
        try:
            with run.player(model, way, threads, "serve") as player:
                row |= player.answer(run.limit)
        except LostError as lost:
            row["failed"] = str(lost)
        rows.append(row)
    return rows


def profile(run: Run, model: str, way: str, threads: int) -> Row:
    """Return where the time of a way goes."""
    row: Row = {"table": "profiles", "model": model, "way": way, "threads": threads}
    says = cpu_profile.environment(way)
    try:
        with run.player(model, way, threads, "profile", **says) as player:
            return {**row, **player.answer(run.limit)}
    except LostError as lost:
        return {**row, "failed": str(lost)}


def rates(threads: int, *, small: bool) -> Row:
    """Return bytes a second of a copy and operations a second of a product, with so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    side = 128 if small else 2048
    source, target = (torch.ones(1 << (20 if small else 26)) for _ in range(2))
    left, right, out = (torch.ones(side, side) for _ in range(3))
    copied = _fastest(lambda: target.copy_(source))
    product = _fastest(lambda: torch.mm(left, right, out=out))
    torch.set_num_threads(before)
    return {
        "table": "rates",
        "threads": threads,
        "copy": 2 * source.nbytes / copied,
        "product": 2 * side**3 / product,
    }


def _fastest(call: Callable[[], object]) -> float:
    """Return the seconds of the fastest call."""
    took: list[float] = []
    end = time.monotonic() + WARM_SECONDS
    while time.monotonic() < end or len(took) < FEWEST // 5:
        took += seconds_of(call, 1)
    return min(took)


def chosen(names: Iterable[str], patterns: str) -> list[str]:
    """Return the names that match one of the patterns, which have commas between."""
    listed = [pattern.strip() for pattern in patterns.split(",")]
    return [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in listed)]


def measured(options: argparse.Namespace, run: Run) -> list[Row]:
    """Build and measure; return all rows."""
    models, ways = chosen(CASES, options.models), chosen(WAYS, options.ways)
    for way in [way for way in ways if not _there(way)]:
        print(f"  {way}: left out: pip install {' '.join(PACKAGES[way])}")
        ways.remove(way)
    threads = [int(count) for count in options.threads.split(",")]
    several = chosen(models, options.buckets)
    rows: list[Row] = [rates(count, small=run.small) for count in threads]
    rows += built(run, models, ways, threads)
    rows += built(run, several, tuple(HELD), [max(threads)])
    save = partial(measure.save, options.json, "tune")
    for model in models:
        for count in threads:
            began = time.monotonic()
            row = cells(run, model, ways, count)
            rows += row
            took = time.monotonic() - began
            for part in tune_table.rows_of(row):
                said = tune_table.line(part, rows)
                print(f"  {model}, {count} threads: {said}, {took:.0f} s", flush=True)
            save(rows)
            if options.profile is not None:
                asked = chosen(ways, options.profile)
                if options.profile == BEST:
                    parts = tune_table.rows_of(row)
                    asked = [way for part in parts for way in tune_table.contest(part)]
                for way in asked:
                    rows.append(profile(run, model, way, count))
                    save(rows)
    for model in several:
        rows += held(run, model, max(threads))
        save(rows)
    return rows


def _there(way: str) -> bool:
    return all(importlib.util.find_spec(name) for name in PACKAGES.get(way, ()))


BEST: Final = "best"  # for `--profile`: the best of the others, and of ours


def joined(paths: Sequence[Path]) -> list[Row]:
    """Return the rows of files written before; of a cell measured twice, the last."""
    kept: dict[object, Row] = {}
    for path in paths:
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
            kept[tuple(row.get(name) for name in ("table", "model", "way", "threads"))] = row
    return list(kept.values())


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add: Any = parser.add_argument
    add("--models", metavar="GLOBS", default="*", help=f"of {', '.join(CASES)}")
    add("--ways", metavar="GLOBS", default="*", help="as in 'eager,tcbuild*'")
    add("--threads", default="1,2", help="thread counts to measure (%(default)s)")
    add("--calls", type=int, default=FEWEST, help="timed calls of a cell (%(default)s)")
    add("--buckets", metavar="GLOBS", default="", help="models to measure the memory of buckets of")
    add("--bucket-mode", default="default", help="that these are built with (%(default)s)")
    add("--jobs", type=int, default=2, help="processes that build or load at once (%(default)s)")
    add("--timeout", type=float, default=900, help="seconds for one of them (%(default)s)")
    add("--small", action="store_true", help="take tiny sizes: a test of the benchmark")
    add("--folder", type=Path, help="keep what is built there, and take what it has")
    add("--json", type=Path, metavar="FILE", help="write all rows there, too")
    add("--join", type=Path, nargs="+", metavar="FILE", help="measure nothing; show these files")
    add(
        "--profile",
        metavar="WAYS",
        nargs="?",
        const=BEST,
        help="say where the time goes, of the best other and of ours, or of WAYS",
    )
    options = parser.parse_args(given)
    if options.calls < FEWEST:
        parser.error(f"--calls: found {options.calls}, expected at least {FEWEST}")
    if not chosen(CASES, options.models):
        expected = f"patterns of {', '.join(CASES)}"
        parser.error(f"--models: found {options.models!r}, expected {expected}")
    return options


def main() -> None:
    options = arguments()
    if options.join:
        rows = joined(options.join)
    else:
        with measure.own_folder(options.folder) as folder:
            run = Run(
                folder=folder,
                small=options.small,
                calls=options.calls,
                jobs=options.jobs,
                limit=options.timeout,
                mode=options.bucket_mode,
            )
            rows = measured(options, run)
    rows = [row for row in rows if row["table"] != "promises"]
    rows += tune_table.show(rows)
    measure.save(options.json, "tune", rows)


if __name__ == "__main__":
    main()
