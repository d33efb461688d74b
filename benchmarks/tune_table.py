"""The tables of tune.py: times beside their limit, who is best, memory."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import cpu_models
import cpu_profile
import measure
from cpu_ways import HELD, OTHERS, OURS, WAYS
from measure import Row

OFF: Final = 1e-4  # of the largest value: far above what float32 explains, far below bfloat16
OFF_BF16: Final = 5e-2  # the same of bfloat16 in all layers of a deep model
MEGA: Final = 1e6
LONGEST: Final = 160  # characters of an error; `--json` has all


def right(cell: Row) -> bool:
    """Return whether a cell has a time, of answers that are right."""
    return "ms" in cell and bool(cell["off"] <= (OFF_BF16 if WAYS[cell["way"]].bf16 else OFF))


def best(cells: Sequence[Row], ways: Collection[str]) -> Row | None:
    """Return the quickest of the ways."""
    timed = [cell for cell in cells if right(cell) and cell["way"] in ways]
    return min(timed, key=lambda cell: float(cell["ms"]), default=None)


def contest(cells: Sequence[Row]) -> list[str]:
    """Return the best of the others, and of ours."""
    pair = (best(cells, OTHERS), best(cells, OURS))
    return [cell["way"] for cell in pair if cell is not None]


def line(cells: Sequence[Row], rows: Sequence[Row]) -> str:
    """Say in a few words what came of a row."""
    row = compared(cells, rows)
    said = [f"{cell['way']} {cell['ms']:.3g}" for cell in cells if right(cell)]
    ratio = f"; ours {row['x best']:.2f}x of {row['best']}" if "x best" in row else ""
    return f"{', '.join(said)} ms{ratio}"


def compared(cells: Sequence[Row], rows: Sequence[Row]) -> Row:
    """Return the row of a model and a number of threads: times in ms, and how ours compares.

    Args:
        cells: of all its ways.
        rows: all that there are, for the rates.
    """
    model, threads = cells[0]["model"], cells[0]["threads"]
    bf16 = WAYS[cells[0]["way"]].bf16
    row: Row = {"table": "times", "model": model, "threads": threads, "bf16": bf16}
    for rate in rows:
        if rate["table"] == "rates" and rate["threads"] == threads:
            memory, work = cells[0]["bytes"] / rate["copy"], cells[0]["flops"] / rate["product"]
            row["limit"] = 1e3 * max(memory, work)
    for cell in cells:
        mark = "" if right(cell) else " OFF"
        row[cell["way"]] = f"{cell['ms']:.3g}{mark}" if "ms" in cell else "failed"
    other, ours = best(cells, OTHERS), best(cells, OURS)
    if other is not None:
        row["best"] = other["way"]
        for cell in cells:
            if cell["way"] in OURS and right(cell):
                row[f"x best, {cell['way']}"] = measure.ratio(other["rounds"], cell["rounds"])
    if other is not None and ours is not None:
        row["x best"] = measure.ratio(other["rounds"], ours["rounds"])
    return row


def rows_of(cells: Sequence[Row]) -> list[list[Row]]:
    """Return the cells by model, threads and precision."""
    by_row: dict[tuple[str, int, bool], list[Row]] = {}
    for cell in cells:
        key = cell["model"], cell["threads"], WAYS[cell["way"]].bf16
        by_row.setdefault(key, []).append(cell)
    return list(by_row.values())


def memory(cells: Sequence[Row]) -> Row:
    """Return what each way of a row holds in memory, in MB."""
    grown = {cell["way"]: cell["grown"] / MEGA for cell in cells if "grown" in cell}
    first = cells[0]
    return {"table": "memory", "model": first["model"], "threads": first["threads"], **grown}


def buckets(rows: Sequence[Row]) -> list[Row]:
    """Return what several buckets hold in memory against one."""
    held: dict[str, Mapping[str, Row]] = {}
    for row in rows:
        if row["table"] == "held":
            held[row["model"]] = {**held.get(row["model"], {}), row["way"]: row}
    lines = []
    for model, found in held.items():
        made: Row = {"table": "buckets", "model": model}
        one, several = (found.get(way, {}) for way in HELD)
        for way, row in found.items():
            made[way] = row["grown"] / MEGA if "grown" in row else None
        if "grown" in one and "grown" in several:
            made["ratio"] = several["grown"] / one["grown"]
            made["of the process"] = several["rss"] / one["rss"]
        lines.append(made)
    return lines


def accuracy(cells: Sequence[Row]) -> Row:
    """Return how far off each way of a row is, in thousandths of the largest value."""
    found = {cell["way"]: 1e3 * cell["off"] for cell in cells if "off" in cell}
    first = cells[0]
    return {"table": "off", "model": first["model"], "threads": first["threads"], **found}


def _times(cells: Sequence[Row], lines: Sequence[Row], *, bf16: bool) -> None:
    """Print the tables of the ways of one precision."""
    ways = [way for way in WAYS if any(cell["way"] == way for cell in cells)]
    if not ways:
        return
    shown = [line for line in lines if line["bf16"] == bf16]
    floor = {} if bf16 else {"limit": ".3g"}
    ratios = {f"x best, {way}": ".2f" for way in ways if way in OURS}
    columns = {"model": "", "threads": "d", **floor, **dict.fromkeys(ways, ">")}
    allowed = ", with products in bfloat16" if bf16 else ""
    title = (
        f"Median ms a call{allowed}; x best: how many times as long the best of the others takes"
    )
    measure.show(title, shown, "times", {**columns, "best": "", **ratios})
    columns = {"model": "", "threads": "d", **dict.fromkeys(ways, ".0f")}
    title = f"Memory of the process{allowed}, MB more than before it loaded"
    measure.show(title, [memory(each) for each in rows_of(cells)], "memory", columns)
    if bf16:
        columns = {"model": "", "threads": "d", **dict.fromkeys(ways, ".2f")}
        title = "Largest error, in thousandths of the largest value"
        measure.show(title, [accuracy(each) for each in rows_of(cells)], "off", columns)


def show(rows: Sequence[Row]) -> list[Row]:
    """Print the tables; return the rows of the promises."""
    cells = [row for row in rows if row["table"] == "cells"]
    lines = [compared(each, rows) for each in rows_of(cells)]
    for bf16 in (False, True):
        _times([cell for cell in cells if WAYS[cell["way"]].bf16 == bf16], lines, bf16=bf16)
    held = buckets(rows)
    if held:
        columns = {
            "model": "",
            **dict.fromkeys(HELD, ".0f"),
            "ratio": ".2f",
            "of the process": ".2f",
        }
        measure.show("The same of artifacts with several buckets", held, "buckets", columns)
    for row in rows:
        if row["table"] == "rates":
            print(
                f"  {row['threads']} threads: copy {row['copy'] / 1e9:.1f} GB/s, "
                f"product {row['product'] / 1e9:.0f} GFLOP/s"
            )
    failed = [
        {
            "table": "failed",
            **{name: row[name] for name in ("model", "way", "threads") if name in row},
            "why": said,
        }
        for row in rows
        if row["table"] in ("built", "cells", "held", "profiles") and (said := _why(row))
    ]
    if failed:
        columns = {"model": "", "way": "", "threads": "d", "why": ""}
        measure.show("Without a time", failed, "failed", columns)
    for row in rows:
        if row["table"] == "profiles" and "kernels" in row:
            cpu_profile.show(row)
    promises = [
        measure.promise(
            f"{made['model']}{', bf16' if made['bf16'] else ''}: ours / the best of the others",
            made["threads"],
            1 / made["x best"],
            1.0,
        )
        for made in lines
        if "x best" in made
    ]
    for made in held:
        if "ratio" in made:
            what = f"{made['model']}: memory of {len(cpu_models.BUCKETS)} buckets / one"
            promises.append(measure.promise(what, 0, made["ratio"], 1.1))
    measure.show("Aims", promises, "promises", measure.PROMISES)
    return promises


def _why(row: Row) -> str:
    if "failed" in row:
        return str(row["failed"])[:LONGEST]
    if row["table"] == "cells" and not right(row):
        return f"off by {row['off']:.2g} of the largest value"
    return ""
