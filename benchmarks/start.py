"""From the start of a process to its first result, and what `load` costs of it.

The model is the text encoder of examples/, 90 MB of random weights; the call has batch 1 and 128
tokens. Each sample is a fresh process, the ways take turns, and the page cache is warm. `construct`,
in which the eager module draws its weights, is shown and not part of `total`. All times are medians
in ms.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch

import measure
from measure import Row
from tcbuild import aot

EXAMPLE: Final = measure.ROOT / "examples" / "text_encoder"
SOURCES: Final = (EXAMPLE, EXAMPLE / "tcbuild.toml", Path(__file__))
STAGES: Final = ("python", "torch", "inputs", "construct", "import", "load", "call")
SLOW: Final = ("tcbuild, nothing cached", "torch.compile, cached")

Report = dict[str, Any]
Way = Callable[..., Report]  # called with "audit", or with nothing


def build_artifact(path: Path) -> None:
    """Build the encoder with the two variants of its spec."""
    aot.build(replace(aot.Spec.load(EXAMPLE / "tcbuild.toml"), verify=False), path)


def build_package(path: Path) -> None:
    """Compile the same graph, for batch 1, to a package of torch's own."""
    spec = aot.Spec.load(EXAMPLE / "tcbuild.toml")
    _, inputs = spec.inputs({"batch": 1, "seq": 128})
    seq = torch.export.Dim("seq", min=2, max=512)
    with torch.no_grad():
        program = torch.export.export(
            spec.model(), (), inputs, dynamic_shapes={name: {1: seq} for name in inputs}
        )
        torch._inductor.aoti_compile_and_package(program, package_path=str(path))


def ways_to_start(artifact: Path, package: Path, cache: Path, threads: int) -> dict[str, Way]:
    """Return the ways to a first result; what torch.compile makes is kept in `cache`."""

    def way(name: str, path: object, **environment: str) -> Way:
        def start(*flags: str) -> Report:
            arguments = ("first_result.py", name, str(path), *flags)
            report: Report = measure.run(*arguments, threads=threads, **environment)
            took = report["stages"]
            took["python"] = (report["entered"] - report["started"]) * 1e3
            report["total"] = sum(took.values()) - took.get("construct", 0.0)
            return report

        return start

    return {
        "eager": way("eager", "-"),
        "tcbuild": way("tcbuild", artifact),
        "tcbuild, nothing cached": way("tcbuild", artifact, TCBUILD_CACHE="/dev/null"),
        "aoti_load_package": way("aoti", package),
        "torch.compile, cached": way("compile", "-", TORCHINDUCTOR_CACHE_DIR=str(cache)),
    }


def totals(reports: list[Report]) -> list[float]:
    """Return the time of each run."""
    return [report["total"] for report in reports]


def time_row(way: str, threads: int, reports: list[Report], eager: list[Report]) -> Row:
    """Return the median of each stage, and how many times eager's the total is."""
    row: Row = {"table": "start", "way": way, "threads": threads, "runs": len(reports)}
    for stage in STAGES:
        if stage in reports[0]["stages"]:
            row[stage] = measure.median([report["stages"][stage] for report in reports])
    row["total"] = measure.median(totals(reports))
    row["cpu"] = measure.median([report["cpu"] for report in reports])
    row["x eager"] = measure.ratio(totals(reports), totals(eager)[: len(reports)])
    return row


def audit_row(way: str, threads: int, report: Report) -> Row:
    """Return what a process of that way has started and imported."""
    return {
        "table": "audit",
        "way": way,
        "threads": threads,
        "processes started": len(report["processes"]),
        "imported": ", ".join(report["imported"]) or "no compiler",
    }


def measure_threads(folder: Path, threads: int, rounds: int) -> list[Row]:
    """Return the rows for one number of threads."""
    artifact = measure.kept("encoder.tcb", build_artifact, *measure.BUILDER, *SOURCES)
    package = measure.kept("encoder.pt2", build_package, *SOURCES)
    ways = ways_to_start(artifact, package, folder / f"compiled-{threads}", threads)
    # The first process of each way is audited and fills its cache: a cold start of torch.compile.
    audited = {name: way("audit") for name, way in ways.items()}
    reports = measure.in_turn(ways, rounds, few=SLOW)
    eager, ours = reports["eager"], reports["tcbuild"]
    reports["torch.compile, cold"] = [audited["torch.compile, cached"]]
    load = measure.median([report["stages"]["load"] for report in ours])
    size = artifact.stat().st_size / 1e6
    report = audited["tcbuild"]
    unwanted = len(report["processes"]) + len(report["imported"])
    return [
        *(time_row(name, threads, found, eager) for name, found in reports.items()),
        *(audit_row(name, threads, report) for name, report in audited.items()),
        measure.promise(
            "start, x eager", threads, measure.ratio(totals(ours), totals(eager)), 1.15
        ),
        measure.promise(f"load of {size:.0f} MB, ms", threads, load, 50),
        measure.promise("processes started, compilers imported", threads, unwanted, 0),
    ]


def main() -> None:
    options = measure.options(__doc__, rounds=7)
    with measure.own_folder() as folder:
        rows = [
            row
            for threads in options.threads
            for row in measure_threads(folder, threads, options.rounds)
        ]
    times = dict.fromkeys((*STAGES, "total", "cpu"), ".0f")
    columns = {"way": "", "threads": "d", "runs": "d", **times, "x eager": ".2f"}
    measure.show("Start to first result, ms", rows, "start", columns)
    columns = {"way": "", "threads": "d", "processes started": "d", "imported": ""}
    measure.show("What a first process does", rows, "audit", columns)
    measure.show("Promises", rows, "promises", measure.PROMISES)
    measure.save(options.json, "start", rows)


if __name__ == "__main__":
    main()
