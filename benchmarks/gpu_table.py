"""The tables of gpu.py: times beside their floor, ratios, and what they were aimed at."""

import math
import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

import measure
from gpu_cell import COMPILED, WAYS
from gpu_lanes import NO_TIME
from measure import Row

OURS: Final = ("tcbuild", "tcbuild borrowed")
SHORT: Final = {"tcbuild": "", "tcbuild borrowed": " (b)"}
LONGEST: Final = 160  # characters of an error; `--json` has all
REFERENCE: Final = "bare replay"
OTHERS: Final = tuple(way for way in WAYS if way not in OURS and way != REFERENCE)

Figure = Callable[[Sequence[Row], str], float | None]


def timed(cell: Row) -> bool:
    """Return whether a cell has a time, of right answers."""
    return "us" in cell and not cell["wrong"]


def why(cell: Row) -> str:
    """Return why a cell has no time."""
    if "failed" in cell:
        text = str(cell["failed"])
        return text if len(text) < LONGEST else f"{text[:LONGEST]} ..."
    return f"wrong: off by {cell['off']:.2g} of the largest value"


def best(times: dict[str, float], ways: Collection[str]) -> str | None:
    """Return which of the ways is the quickest."""
    return min((way for way in ways if way in times), key=times.__getitem__, default=None)


def model_row(model: str, cells: Sequence[Row], rates: Row) -> Row:
    """Return the line of a model.

    Its times are microseconds; `floor` is what the bytes take at the rate of a copy or the
    operations at that of a matrix product, whichever is more. Each ratio says how many times the
    quickest of the others takes as long.
    """
    times = {cell["way"]: cell["us"] for cell in cells if timed(cell)}
    row: Row = {"table": "models", "model": model, "times": times}
    row["tried"] = [cell["way"] for cell in cells if NO_TIME not in str(cell.get("failed"))]
    sized = next((cell for cell in cells if "bytes" in cell), None)
    if sized and "copy" in rates:
        memory, work = sized["bytes"] / rates["copy"], sized["flops"] / rates["product"]
        row["floor"] = max(memory, work) * 1e6
        row["bound"] = "copy" if memory >= work else "product"
    row["best"], row["best compile"] = best(times, OTHERS), best(times, tuple(COMPILED))
    for ours in OURS:
        if ours not in times:
            continue
        for name, other in (("x best", row["best"]), ("x compile", row["best compile"])):
            if other:
                row[name + SHORT[ours]] = times[other] / times[ours]
        if "floor" in row:
            row["of floor" + SHORT[ours]] = row["floor"] / times[ours]
    return row


@dataclass(frozen=True, kw_only=True)
class Aim:
    """What is aimed at, and the figure that says whether it is met.

    Attributes:
        what: in words.
        limit: the least figure, or the largest where `most`.
        figure: of the models' rows and one of OURS; None where nothing was measured.
    """

    what: str
    limit: float
    figure: Figure
    most: bool = False

    def row(self, rows: Sequence[Row]) -> Row:
        """Return the line of the aim."""
        row: Row = {"table": "aims", "aim": self.what, "limit": self.limit}
        met = {}
        for ours in OURS:
            figure = self.figure(rows, ours)
            if figure is None:
                continue
            row[ours] = figure
            met[ours] = figure <= self.limit if self.most else figure >= self.limit
        row["verdict"] = "unmet" if met else "not measured"
        if met.get("tcbuild borrowed"):
            row["verdict"] = "met where borrowed"
        if met.get("tcbuild"):
            row["verdict"] = "met"
        return row


def ratios(rows: Sequence[Row], ours: str, name: str, other: str) -> list[float]:
    """Return a ratio of each model that was measured; 0 where ours has no time."""
    return [row.get(name + SHORT[ours], 0.0) for row in rows if row[other] and ours in row["tried"]]


def least(name: str, other: str) -> Figure:
    """Return the figure that is a ratio's smallest over all models."""
    return lambda rows, ours: min(ratios(rows, ours, name, other), default=None)


def mean(name: str, other: str) -> Figure:
    """Return the figure that is a ratio's geometric mean over all models."""

    def figure(rows: Sequence[Row], ours: str) -> float | None:
        found = ratios(rows, ours, name, other)
        if not found or not all(found):
            return 0.0 if found else None
        return statistics.geometric_mean(found)

    return figure


def of_floor(model: str) -> Figure:
    """Return the figure that is a model's part of its floor."""

    def figure(rows: Sequence[Row], ours: str) -> float | None:
        found = [row for row in rows if row["model"] == model and "floor" in row]
        found = [row for row in found if ours in row["tried"]]
        return float(found[0].get("of floor" + SHORT[ours], 0.0)) if found else None

    return figure


def over_replay(rows: Sequence[Row], ours: str) -> float | None:
    """Return how many times a bare replay the MLP takes: the quicker of two, eager's and compiled."""
    for row in rows:
        replay = best(row["times"], ("eager graph", REFERENCE))
        if row["model"] == "mlp" and replay and ours in row["tried"]:
            return float(row["times"].get(ours, math.inf) / row["times"][replay])
    return None


AIMS: Final = (
    Aim(what="best other / ours, worst row", limit=1.0, figure=least("x best", "best")),
    Aim(what="best other / ours, mean", limit=1.0, figure=mean("x best", "best")),
    Aim(
        what="best torch.compile / ours, mean",
        limit=1.25,
        figure=mean("x compile", "best compile"),
    ),
    Aim(what="mlp: ours / bare graph replay", limit=1.15, figure=over_replay, most=True),
    Aim(what="chain: part of the floor", limit=0.85, figure=of_floor("chain")),
    Aim(what="decode: part of the floor", limit=0.85, figure=of_floor("decode")),
    Aim(what="prefill: part of the floor", limit=0.75, figure=of_floor("prefill")),
)


def printed(row: Row, cells: Sequence[Row]) -> Row:
    """Return the line of a model as text."""
    line: Row = {"table": "printed", "model": row["model"], "floor": "?"}
    if "floor" in row:
        line["floor"] = f"{row['floor']:.1f}"
    for cell in cells:
        if cell["model"] == row["model"]:
            failed = "wrong" if "us" in cell else "failed"
            line[cell["way"]] = f"{cell['us']:.1f}" if timed(cell) else failed
    for short in SHORT.values():
        for name in ("x best", "x compile"):
            if name + short in row:
                line[name + short] = f"{row[name + short]:.2f}"
        if "of floor" + short in row:
            line["of floor" + short] = f"{row['of floor' + short]:.0%}"
    return line


def back_to_back(model: str, cells: Sequence[Row]) -> Row:
    """Return the times of a model's calls where none waits for the one before."""
    line: Row = {"table": "back to back", "model": model}
    for cell in cells:
        if cell["model"] == model and timed(cell):
            line[cell["way"]] = cell["back to back"]
    return line


def show(rows: Sequence[Row]) -> list[Row]:
    """Print the tables of the cells, and return the rows of the aims."""
    cells = [row for row in rows if row["table"] == "cells" and row["way"] in WAYS]
    of_models = [row for row in rows if row["table"] == "models"]
    ways = [way for way in WAYS if any(cell["way"] == way for cell in cells)]
    names = ("x best", "x compile", "of floor")
    compared = [name + short for short in SHORT.values() for name in names]
    columns = {"model": "", **dict.fromkeys(("floor", *ways, *compared), ">")}
    lines = [printed(row, cells) for row in of_models]
    title = "Median us a call; x: how many times as long the others take; (b): borrowed"
    measure.show(title, lines, "printed", columns)
    lines = [back_to_back(row["model"], cells) for row in of_models]
    columns = {"model": "", **dict.fromkeys(ways, ".1f")}
    measure.show("The same calls back to back, us a call", lines, "back to back", columns)
    for row in rows:
        if row["table"] == "rates" and "copy" in row:
            rate = (
                f"copy {row['copy'] / 1e12:.3f} TB/s, product {row['product'] / 1e12:.1f} TFLOP/s"
            )
            print(f"  {row['device']}: {rate}")
    failed = [
        {"table": "failed", "model": cell["model"], "way": cell["way"], "why": why(cell)}
        for cell in cells
        if not timed(cell)
    ]
    if failed:
        measure.show("Without a time", failed, "failed", {"model": "", "way": "", "why": ""})
    aims = [aim.row(of_models) for aim in AIMS]
    columns = {"aim": "", "limit": "g", **dict.fromkeys(OURS, ".2f"), "verdict": ""}
    measure.show("Aims", aims, "aims", columns)
    return aims
