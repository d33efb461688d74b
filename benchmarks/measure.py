"""What the benchmarks share: arguments, kept artifacts, fresh processes, turns, medians, tables."""

import argparse
import contextlib
import hashlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import torch

ROOT: Final = Path(__file__).resolve().parent.parent
KEPT: Final = ROOT / "build" / "bench"
BUILDER: Final = (ROOT / "aot", ROOT / "formats")  # what an artifact depends on, besides its model
FEW: Final = 3  # rounds of what takes seconds each time

Row = dict[str, Any]  # one line of a table, and of the JSON file
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What was asked for on the command line.

    Attributes:
        threads: the thread counts to measure with.
        rounds: how often each way takes its turn.
        json: where the rows go, too.
    """

    threads: tuple[int, ...]
    rounds: int
    json: Path | None


def options(description: str | None, *, rounds: int) -> Options:
    """Read the command line; `rounds` is what it has where it does not say."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", default="1,2", help="thread counts to measure (%(default)s)")
    parser.add_argument("--rounds", type=int, default=rounds, help="turns for each (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rows there, too")
    given = parser.parse_args()
    threads = tuple(int(count) for count in given.threads.split(","))
    return Options(threads=threads, rounds=given.rounds, json=given.json)


@contextlib.contextmanager
def own_folder(path: Path | None = None) -> Iterator[Path]:
    """Give a folder that every cache of this process and its children lies in.

    Args:
        path: of the folder; a temporary one where left out.
    """
    KEPT.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        if path is None:
            made = tempfile.TemporaryDirectory(prefix="tcbuild-bench-")
            folder = Path(stack.enter_context(made))
        else:
            folder = path.absolute()
        for variable in ("TMPDIR", "TCBUILD_CACHE", "TORCHINDUCTOR_CACHE_DIR"):
            place = folder / variable.lower()
            place.mkdir(parents=True, exist_ok=True)
            os.environ[variable] = str(place)
        tempfile.tempdir = None  # look at TMPDIR again
        try:
            yield folder
        finally:
            del os.environ["TMPDIR"]
            tempfile.tempdir = None


def kept(name: str, make: Callable[[Path], object], *sources: Path) -> Path:
    """Return a file under build/bench, made anew when torch, the processor or a source has changed.

    Args:
        name: of the file: `encoder.tcb`.
        make: writes it to the path it is given, which has the same suffix.
        sources: the files, and folders of Python files, that what is made depends on.
    """
    digest = hashlib.sha256(
        f"{torch.__version__} {torch.backends.cpu.get_cpu_capability()}".encode()
    )
    for source in sources:
        for file in sorted(source.rglob("*.py")) if source.is_dir() else [source]:
            digest.update(file.read_bytes())
    stem, suffix = Path(name).stem, Path(name).suffix
    path = KEPT / f"{stem}.{digest.hexdigest()[:16]}{suffix}"
    if not path.exists():
        print(f"Building {path.relative_to(ROOT)} ...", file=sys.stderr, flush=True)
        for old in KEPT.glob(f"{stem}.*{suffix}"):
            old.unlink()
        aside = path.with_name(f"new-{path.name}")
        make(aside)
        aside.replace(path)
    return path


def run(script: str, *arguments: str, threads: int, **environment: str) -> Any:
    """Run a script of this folder in a fresh process; return what it prints last, a JSON object.

    `started` is added to it: the `time.monotonic()` at which the process was started.
    """
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "OMP_NUM_THREADS": str(threads),
        **environment,
    }
    command = [sys.executable, str(Path(__file__).with_name(script)), *arguments]
    started = time.monotonic()
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return {**json.loads(done.stdout.splitlines()[-1]), "started": started}


def in_turn(
    ways: Mapping[str, Callable[[], T]], rounds: int, few: Collection[str] = ()
) -> dict[str, list[T]]:
    """Ask each way once a round, starting one further each round; return what each gave, in order.

    The ways named in `few` take part in the first FEW rounds only.
    """
    gave: dict[str, list[T]] = {name: [] for name in ways}
    for i in range(rounds):
        names = [name for name in ways if i < FEW or name not in few]
        first = i % len(names)
        for name in names[first:] + names[:first]:
            gave[name].append(ways[name]())
    return gave


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def ratio(values: Sequence[float], others: Sequence[float]) -> float:
    """Return the median of the ratios round by round, which a drift of the machine leaves alone."""
    return statistics.median(a / b for a, b in zip(values, others, strict=True))


def difference(values: Sequence[float], others: Sequence[float]) -> float:
    """Return the median of the differences round by round."""
    return statistics.median(a - b for a, b in zip(values, others, strict=True))


def noise(values: Sequence[float], others: Sequence[float]) -> float:
    """Return how far off the median difference may be: about one standard error of a median."""
    low, _, high = statistics.quantiles((a - b for a, b in zip(values, others, strict=True)), n=4)
    return (high - low) / math.sqrt(len(values))


def promise(what: str, threads: int, measured: float, limit: float, noise: float = 0.0) -> Row:
    """Return the row of a promise: `measured`, give or take `noise`, is to be at most `limit`."""
    verdict = "kept" if measured <= limit else "BROKEN"
    if noise > limit:
        verdict = "too noisy to tell"
    return {
        "table": "promises",
        "promise": what,
        "threads": threads,
        "measured": measured,
        "limit": limit,
        "verdict": verdict,
    }


PROMISES: Final = {
    "promise": "",
    "threads": "d",
    "measured": ".2f",
    "limit": "g",
    "verdict": "",
}


def show(title: str, rows: Sequence[Row], table: str, columns: Mapping[str, str]) -> None:
    """Print a table.

    Args:
        title: what stands above it.
        rows: of all tables; what a row does not have stays empty.
        table: whose rows to print.
        columns: the keys to print, each with its format.
    """
    print(f"\n{title}")
    cells = [list(columns)]
    for row in rows:
        if row["table"] != table:
            continue
        values = [(row.get(name), form) for name, form in columns.items()]
        cells.append(["" if value is None else format(value, form) for value, form in values])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    numeric = [bool(form) for form in columns.values()]
    for line in cells:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        print("  " + "  ".join(padded).rstrip())
    sys.stdout.flush()


def save(path: Path | None, benchmark: str, rows: Sequence[Row]) -> None:
    """Write the rows and what they were measured on to a JSON file, if one is asked for."""
    if path is None:
        return
    record = {
        "benchmark": benchmark,
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "rows": rows,
    }
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    aside.replace(path)
