"""Training steps: tcbuild against eager and torch.compile, time and memory.

A step of a GPT-like model is forward, backward and AdamW. Each way is a process of its own, which takes
its turn round by round and keeps what is compiled in a cache of this run; the first round of
torch.compile fills it. A time is the median over the steps of all rounds, a ratio the median round by
round. `memory` is the peak during the steps over what the weights, their gradients and the optimizer
hold: what the step itself needs. `first` is from the start of the process to the end of the first step.

On the CPU in float32: 4 layers, d=256, 4x128 tokens. With `--device cuda` in bfloat16: 12 layers, d=768,
8x512 tokens. With `--small`, tiny sizes: a test of the benchmark.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

import measure
import training_cell
from measure import Row
from tcbuild import aot
from tcbuild.aot.training import PARTITIONS, Training

COMPILE: Final = ("default", "reduce-overhead", "max-autotune")
COLUMNS: Final = {
    "way": "",
    "ms": ".2f",
    "x eager": ".2f",
    "x best compile": ".2f",
    "memory MB": ".1f",
    "first s": ".1f",
    "last loss": ".4f",
}


def build(path: Path, size: training_cell.Size, device: str, partition: str, mode: str) -> str:
    """Build the artifact of a way; return what its cut saves."""
    module = training_cell.model(size).eval()
    spec = aot.Spec.from_module(
        module,
        training_cell.batch(size),
        name="gpt",
        targets=(device,),
        mode=mode,
        step=Training(inference=False, partition=partition),
        embed_graph=False,
        verify=False,  # the last loss is held against eager's
    )
    (job,) = aot.build(spec, path).jobs
    return str(job.cuts[partition])


def measured(options: argparse.Namespace, folder: Path) -> list[Row]:
    """Build, measure in turn, and return the rows."""
    size = training_cell.size(options.device, small=options.small)
    ways = [
        "eager",
        *(f"compile {mode}" for mode in COMPILE[: 3 if options.device == "cuda" else 1]),
    ]
    saved = {}
    for partition in PARTITIONS:
        path = folder / f"{partition}.tcb"
        saved[f"tcbuild {partition}"] = build(path, size, options.device, partition, options.mode)
        ways.append(f"tcbuild {partition}")

    def run(way: str) -> Row:
        arguments = [way, options.device, str(folder), str(options.steps)]
        if options.small:
            arguments.append("small")
        made = measure.run("training_cell.py", *arguments, threads=options.threads)
        print(f"  {way:24} {1e3 * made['median']:9.2f} ms a step", flush=True)
        return {**made, "first": made["ended"] - made["started"]}

    gave = measure.in_turn({way: partial(run, way) for way in ways}, options.rounds)
    times = {way: [made["median"] for made in gave[way]] for way in ways}
    best = min((w for w in ways if w.startswith("compile")), key=lambda w: measure.median(times[w]))
    return [
        {
            "table": "steps",
            "way": way,
            "ms": 1e3 * measure.median(times[way]),
            "x eager": measure.ratio(times["eager"], times[way]),
            "x best compile": measure.ratio(times[best], times[way]),
            "memory MB": measure.median([made["memory"] for made in gave[way]]) / 1e6,
            "first s": measure.median([made["first"] for made in gave[way][1:] or gave[way]]),
            "last loss": gave[way][-1]["loss"],
            "cut": saved.get(way, ""),
        }
        for way in ways
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add: Any = parser.add_argument
    add("--device", choices=("cpu", "cuda"), default="cpu", help="%(default)s")
    add("--mode", default="default", help="of tcbuild (%(default)s)")
    add("--threads", type=int, default=2, help="%(default)s")
    add("--rounds", type=int, default=3, help="turns for each (%(default)s)")
    add("--steps", type=int, default=20, help="timed steps of a turn (%(default)s)")
    add("--small", action="store_true", help="take tiny sizes: a test of the benchmark")
    add("--json", type=Path, metavar="FILE", help="write all rows there, too")
    options = parser.parse_args()
    with measure.own_folder() as folder:
        rows = measured(options, folder)
    name = (
        torch.cuda.get_device_name() if options.device == "cuda" else f"{options.threads} threads"
    )
    measure.show(f"Training steps, {name}, torch {torch.__version__}", rows, "steps", COLUMNS)
    for row in rows:
        if row["cut"]:
            print(f"  {row['way']}: {row['cut']}")
    measure.save(options.json, "training", rows)


if __name__ == "__main__":
    main()
