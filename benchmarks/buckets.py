"""What eight buckets cost over one: bytes in the file, and memory of the process that serves them.

The model is four linear layers, 67 MB of weights; batch is specialised for 1 or 8 sizes. Each
sample is a fresh process, the artifacts take turns, and the page cache is warm. `loaded`, and
`called` after one call in each bucket, are how much the memory has grown since before the load:
medians, in MB.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch

import measure
from measure import Row
from resident import WIDTH
from tcbuild import aot
from tcbuild.formats.container import Artifact

LAYERS: Final = 4
SIZES: Final = {1: (64,), 8: (1, 2, 4, 8, 16, 24, 32, 64)}
MEGA: Final = 1e6
LIMIT: Final = 1.05  # times one bucket's weights


def build(sizes: tuple[int, ...]) -> Callable[[Path], None]:
    """Return what builds the artifact for these batch sizes."""

    def make(path: Path) -> None:
        torch.manual_seed(0)
        layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
        model = torch.nn.Sequential(*layers).eval()
        batch = torch.export.Dim("batch", min=1, max=max(sizes))
        spec = aot.Spec.from_module(
            model,
            (torch.ones(max(sizes), WIDTH),),
            dynamic_shapes=({0: batch},),
            buckets={"batch": sizes},
            verify=False,
        )
        aot.build(spec, path)

    return make


def sections(path: Path) -> Row:
    """Return the bytes of the file, and of its weights, in MB."""
    with Artifact(path) as artifact:
        weights = artifact.manifest.weights
        assert weights is not None
        size = weights.nbytes()
    return {"file": path.stat().st_size / MEGA, "weights": size / MEGA}


def growth(report: dict[str, Any], kind: str, moment: str) -> float:
    """Return how much more memory there is than before the load, in MB."""
    return float(report[kind][moment] - report[kind]["before"]) / MEGA


def measure_threads(artifacts: dict[int, Path], threads: int, rounds: int) -> list[Row]:
    """Return the rows for one number of threads."""

    def way(count: int) -> Callable[[], Any]:
        batches = [",".join(map(str, SIZES[buckets])) for buckets in (count, 8)]
        arguments = ("resident.py", str(artifacts[count]), *batches)
        return lambda: measure.run(*arguments, threads=threads)

    reports = measure.in_turn({str(count): way(count) for count in artifacts}, rounds)
    rows = []
    for count, path in artifacts.items():
        row: Row = {"table": "buckets", "buckets": count, "threads": threads, **sections(path)}
        for kind in ("pss", "rss"):
            for moment in ("loaded", "called"):
                grown = [growth(report, kind, moment) for report in reports[str(count)]]
                row[f"{moment} {kind}"] = measure.median(grown)
        rows.append(row)
    one, many = rows
    one_weights = one["weights"]
    return [
        *rows,
        *(
            measure.promise(
                f"8 buckets over 1: {name}, x weights",
                threads,
                1 + (many[name] - one[name]) / one_weights,
                LIMIT,
            )
            for name in ("file", "loaded pss", "called pss")
        ),
    ]


def main() -> None:
    options = measure.options(__doc__, rounds=7)
    with measure.own_folder():
        artifacts = {
            count: measure.kept(
                f"linear-{count}.tcb", build(sizes), *measure.BUILDER, Path(__file__)
            )
            for count, sizes in SIZES.items()
        }
        rows = [
            row
            for threads in options.threads
            for row in measure_threads(artifacts, threads, options.rounds)
        ]
    memory = ("loaded pss", "called pss", "loaded rss", "called rss")
    columns = {"buckets": "d", "threads": "d", **dict.fromkeys(("file", "weights", *memory), ".1f")}
    measure.show("Buckets, MB", rows, "buckets", columns)
    measure.show("Promises", rows, "promises", measure.PROMISES)
    measure.save(options.json, "buckets", rows)


if __name__ == "__main__":
    main()
