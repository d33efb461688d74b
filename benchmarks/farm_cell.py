"""One process of farm.py.

    farm_cell.py build SPEC OUT            build here
    farm_cell.py ray SPEC OUT WORKERS [kill]  build on Ray, on this machine; kill a worker half-way
    farm_cell.py serve FILE BATCHES        load, call each batch, and say what memory it took
    farm_cell.py dispatch FILE ROWS        time a load, a first call, calls like it, and a miss

The last line printed is JSON.
"""

import hashlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from resident import memory
from tcbuild import aot, runtime
from tcbuild.aot import cluster
from tcbuild.aot.progress import Event
from tcbuild.aot.report import Report

CALLS = 4000


def described(report: Report) -> dict[str, Any]:
    """Return what a build came to."""
    return {
        "seconds": report.seconds,
        "bytes": report.bytes,
        "sha256": hashlib.sha256(report.artifact.read_bytes()).hexdigest(),
        "stages": {
            stage: sum(job.seconds.get(stage, 0.0) for job in report.jobs)
            for stage in ("capture", "compile", "tune")
        },
    }


def build(spec: str, out: str) -> dict[str, Any]:
    """Build here."""
    return described(aot.build(aot.Spec.load(spec), out))


def on_ray(spec: str, out: str, workers: str, kill: str = "") -> dict[str, Any]:
    """Build on Ray, started with so many workers; kill one at work once a part is there."""
    import ray

    ray.init(
        num_cpus=int(workers),
        include_dashboard=False,
        logging_level=logging.ERROR,
        log_to_driver=False,
    )
    killed: list[int] = []

    def watch(event: Event) -> None:
        if kill and not killed and event.stage == "build" and event.seconds is not None:
            found = at_work()
            if found:
                killed.append(found[0])
                os.kill(found[0], signal.SIGKILL)

    report = cluster.build(spec, out, progress=watch)
    ray.shutdown()
    return {**described(report), "killed": len(killed)}


def at_work() -> list[int]:
    """Return the ids of Ray's processes that build a part, of this session."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                name = (folder / "cmdline").read_bytes().split(b"\0")[0]
                session = (folder / "environ").read_bytes()
            except OSError:
                continue
            mine = f"TCBUILD_CACHE={os.environ['TCBUILD_CACHE']}".encode() in session
            if name.startswith(b"ray::part") and mine:
                found.append(int(folder.name))
    return found


def serve(path: str, batches: str) -> dict[str, Any]:
    """Load, and call each batch."""
    from farm_model import example_inputs

    torch.nn.Linear(64, 64)(torch.ones(1, 64))
    before = memory()
    model = runtime.load(path, on_miss="raise")
    with torch.inference_mode():
        for batch in batches.split(","):
            args, _ = example_inputs(int(batch))
            model(*args)
    after = memory()
    return {kind: after[kind] for kind in after} | {"grown": after["rss"] - before["rss"]}


def dispatch(path: str, rows: str) -> dict[str, Any]:
    """Time a load, a first call, calls like it and a miss; microseconds, but for the load."""
    began = time.perf_counter()
    model = runtime.load(path, fallback=lambda x: x, on_alert=lambda _: None)
    loaded = time.perf_counter() - began
    x, other = torch.randn(int(rows), 64), torch.randn(1, 64)  # no variant is for 1 row
    with torch.inference_mode():
        began = time.perf_counter()
        model(x)
        first = time.perf_counter() - began
        took = []
        for _ in range(CALLS):
            began = time.perf_counter()
            model(x)
            took.append(time.perf_counter() - began)
        missed = []
        for _ in range(5):
            began = time.perf_counter()
            model(other)
            missed.append(time.perf_counter() - began)
    return {
        "load": loaded,
        "first": first * 1e6,
        "call": sorted(took)[CALLS // 2] * 1e6,
        "miss": sorted(missed)[2] * 1e6,
        "rss": memory()["rss"],
    }


COMMANDS: dict[str, Callable[..., dict[str, Any]]] = {
    "build": build,
    "ray": on_ray,
    "serve": serve,
    "dispatch": dispatch,
}

if __name__ == "__main__":
    print(json.dumps(COMMANDS[sys.argv[1]](*sys.argv[2:])))
