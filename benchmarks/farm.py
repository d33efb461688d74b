"""What many buckets and many machines cost: builds, files, memory, dispatch.

`buckets`: 16 buckets against one: seconds of a build (a fresh process, headers precompiled, nothing else
cached), bytes of the file, and memory of a process that has called each.
`ray`: a search for fast code on Ray, on this machine, with two workers against one; with a worker killed
half-way, and then the same artifact from a local build with what the search has found.
`many`: 10,000 variants in a manifest against 8.
"""

import argparse
import importlib.util
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch

import measure
from measure import Row
from tcbuild import aot
from tcbuild.formats.bucket import Bucket
from tcbuild.formats.container import Artifact, Content, write
from tcbuild.formats.variant import LIBRARY

MODEL: Final = Path(__file__).with_name("farm_model.py")
SPEC: Final = """
[model]
name = "farm"
source = "model:build"
inputs = "model:example_inputs"
[dims.batch]
policy = "specialize"
values = {values}
[shapes]
input = ["batch"]
[build]
mode = "{mode}"
[tune]
candidates = 2
"""
MANY: Final = 10_000
LIBRARIES: Final = 100  # different ones among them
MEGA: Final = 1e6


def spec(folder: Path, values: list[int], mode: str = "default") -> Path:
    """Write a spec for these batch sizes; return its path."""
    folder.mkdir()
    shutil.copy(MODEL, folder / "model.py")
    path = folder / "tcbuild.toml"
    path.write_text(SPEC.format(values=values, mode=mode), encoding="utf-8")
    return path


def forget() -> None:
    """Empty the job cache, but for the compiler's driver and headers."""
    for name in ("jobs", "tuned", "verified"):
        shutil.rmtree(Path(os.environ["TCBUILD_CACHE"]) / name, ignore_errors=True)


def cell(*arguments: object, threads: int = 2) -> dict[str, Any]:
    """Run farm_cell.py."""
    made: dict[str, Any] = measure.run("farm_cell.py", *map(str, arguments), threads=threads)
    return made


def buckets(folder: Path, rounds: int) -> list[Row]:
    """Measure 16 buckets against one."""
    specs = {n: spec(folder / f"spec-{n}", list(range(1, n + 1))) for n in (1, 16)}
    cell("build", specs[1], folder / "warm.tcb")  # the headers

    def way(count: int) -> Callable[[], Any]:
        def run() -> Any:
            forget()
            return cell("build", specs[count], folder / f"{count}.tcb")

        return run

    built = measure.in_turn({str(n): way(n) for n in specs}, rounds)
    rows: list[Row] = []
    for count in specs:
        path = folder / f"{count}.tcb"
        served = [
            cell("serve", path, ",".join(map(str, range(1, count + 1))))
            for _ in range(max(3, rounds))
        ]
        rows.append(
            {
                "table": "buckets",
                "buckets": count,
                "build s": measure.median([report["seconds"] for report in built[str(count)]]),
                "capture s": measure.median([r["stages"]["capture"] for r in built[str(count)]]),
                "compile s": measure.median([r["stages"]["compile"] for r in built[str(count)]]),
                "file MB": path.stat().st_size / MEGA,
                "memory MB": measure.median([report["rss"] / MEGA for report in served]),
            }
        )
    one, several = rows
    over: Row = {
        name: several[name] / one[name] for name in one if name not in ("table", "buckets")
    }
    return [
        *rows,
        {"table": "ratios", "ratio": "16 buckets over 1", **over},
        measure.promise("16 buckets over 1: build", 2, over["build s"], 6),
    ]


def on_ray(folder: Path) -> list[Row]:
    """Measure a search with one worker and with two, of which one is killed in a second run."""
    if importlib.util.find_spec("ray") is None:
        print("\nRay: skipped, it is not installed: pip install 'tcbuild[ray]'")
        return []
    path = spec(folder / "spec-ray", [1, 2, 4, 8], "max-autotune")
    rows: list[Row] = []
    made = {}
    for way, workers, kill in (
        ("1 worker", 1, ()),
        ("2 workers", 2, ()),
        ("2, one killed", 2, ("kill",)),
    ):
        forget()
        made[way] = cell("ray", path, folder / "ray.tcb", workers, *kill)
        rows.append({"table": "ray", "way": way, "build s": made[way]["seconds"]})
        rows[-1]["killed"] = made[way]["killed"]
    again = cell("build", path, folder / "local.tcb")
    rows.append({"table": "ray", "way": "local, same record", "build s": again["seconds"]})
    killed = made["2, one killed"]
    rows[-1]["same"] = "yes" if again["sha256"] == killed["sha256"] else "NO"
    gain = made["1 worker"]["seconds"] / made["2 workers"]["seconds"]
    print(f"\nRay: a search is {gain:.2f}x as fast with 2 workers as with 1")
    return rows


def single(path: Path) -> None:
    """Build a small model for 2 to 20,000 rows, as one variant."""
    torch.manual_seed(0)
    layers = torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 64)
    rows = torch.export.Dim("rows", min=2, max=2 * MANY)
    model = torch.nn.Sequential(*layers).eval()
    call = (torch.randn(8, 64),)
    aot.build(aot.Spec.from_module(model, call, dynamic_shapes=({0: rows},), verify=False), path)


def multiplied(source: Path, count: int) -> Callable[[Path], None]:
    """Return what writes the variant again as one for each of so many sizes, the smallest last."""

    def make(path: Path) -> None:
        with Artifact(source) as artifact:
            manifest = artifact.manifest
            (ranged,) = (v for v in manifest.variants if v.form == LIBRARY)
            name = ranged.files["model.so"]
            library = bytes(artifact.read(name))
            contents = [
                Content(name=s.name, parts=[bytes(artifact.read(s.name))], encoding=s.encoding)
                for s in manifest.sections
                if s.name != name
            ]
        for number in range(min(count, LIBRARIES)):
            mark = number.to_bytes(8, "little")  # behind the end of the library: other bytes
            contents.append(Content(name=f"model.so-{number}", parts=[library, mark]))
        variants = [
            replace(
                ranged,
                id=f"rows={rows}",
                bucket=Bucket(dims={"rows": rows}),
                guards=tuple(
                    replace(g, expected=rows) if g.fact == "size" and g.axis == 0 else g
                    for g in ranged.guards
                ),
                files={**ranged.files, "model.so": f"model.so-{rows % min(count, LIBRARIES)}"},
            )
            for rows in range(count + 1, 1, -1)
        ]
        graphs = [variant for variant in manifest.variants if variant.form != LIBRARY]
        write(path, replace(manifest, variants=(*variants, *graphs)), contents)

    return make


def many(rounds: int) -> list[Row]:
    """Measure 10,000 variants against 8."""
    source = measure.kept("farm-one.tcb", single, *measure.BUILDER, Path(__file__))
    paths = {
        count: measure.kept(
            f"farm-{count}-variants.tcb",
            multiplied(source, count),
            *measure.BUILDER,
            Path(__file__),
        )
        for count in (8, MANY)
    }

    def way(path: Path) -> Callable[[], Any]:
        return lambda: cell("dispatch", path, 2, threads=1)

    ways = {str(count): way(path) for count, path in paths.items()}
    found = measure.in_turn(ways, max(5, rounds))
    rows: list[Row] = []
    for count in paths:
        reports = found[str(count)]
        row: Row = {"table": "many", "variants": count}
        row["load s"] = measure.median([report["load"] for report in reports])
        for name in ("first", "call", "miss"):
            row[f"{name} us"] = measure.median([report[name] for report in reports])
        row["memory MB"] = measure.median([report["rss"] / MEGA for report in reports])
        rows.append(row)
    few, most = rows
    ratio = most["call us"] / few["call us"]
    return [*rows, measure.promise(f"{MANY} variants over 8: a call", 1, ratio, 1.2)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default="many,buckets,ray", help="what to measure (%(default)s)")
    parser.add_argument("--rounds", type=int, default=1, help="builds of each kind (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rows there, too")
    options = parser.parse_args()
    parts = options.parts.split(",")
    rows: list[Row] = []
    with measure.own_folder() as folder:
        if "many" in parts:
            rows += many(options.rounds)
            columns = {"variants": "d", "load s": ".2f", "first us": ".0f", "call us": ".1f"}
            columns |= {"miss us": ".0f", "memory MB": ".0f"}
            measure.show("Variants", rows, "many", columns)
        if "buckets" in parts:
            rows += buckets(folder, options.rounds)
            seconds = dict.fromkeys(("build s", "capture s", "compile s"), ".1f")
            sizes = dict.fromkeys(("file MB", "memory MB"), ".1f")
            measure.show("Buckets", rows, "buckets", {"buckets": "d", **seconds, **sizes})
            ratios = dict.fromkeys([*seconds, *sizes], ".2f")
            measure.show("Ratios", rows, "ratios", {"ratio": "", **ratios})
        if "ray" in parts:
            rows += on_ray(folder)
            ray = {"way": "", "build s": ".1f", "killed": "d", "same": ""}
            measure.show("Ray, max-autotune, 4 buckets", rows, "ray", ray)
    measure.show("Promises", rows, "promises", measure.PROMISES)
    measure.save(options.json, "farm", rows)


if __name__ == "__main__":
    main()
