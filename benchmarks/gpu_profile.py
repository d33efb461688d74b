"""Where the time of a call goes, by kernel: `--profile` of gpu.py."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

import gpu_cell
import measure
from gpu_cell import Report, Setting, Subject
from measure import Row

PROFILE: Final = "profile "  # before the name of the way
CALLS: Final = 20
TOP: Final = 8
NAME: Final = 90  # characters of a kernel's name; `--json` has all


def run(model: str, way: str, setting: Setting, report: Report) -> None:
    """Profile the calls of a way, and report the kernels that take the longest.

    The wall time is that of calls without the profiler. `busy` is how much of the device's time the
    kernels and copies of a call take, those that overlap counted once. On the CPU the kernels are
    operators, each without those that it calls.
    """
    subject = Subject.make(model, setting)
    on_cpu = setting.device == "cpu"
    activities = [ProfilerActivity.CPU if on_cpu else ProfilerActivity.CUDA]
    row: Row = {}
    with torch.inference_mode():
        call = gpu_cell.prepared(subject, way, row)
        with setting.gate.alone():
            gpu_cell.warm_up(call, setting)
            row["wall"] = statistics.median(gpu_cell.one_by_one(call, setting))
            with profile(activities=activities) as profiler:
                for _ in range(CALLS):
                    call()
                    setting.synchronize()
    kind = DeviceType.CPU if on_cpu else DeviceType.CUDA
    events: list[Any] = [event for event in profiler.events() if event.device_type == kind]
    if not events:
        message = "the profiler saw nothing on the device"
        raise RuntimeError(message)
    report({**row, **summary(events, CALLS, on_cpu=on_cpu)})


def summary(events: Iterable[Any], calls: int, *, on_cpu: bool) -> Row:
    """Return the busy time a call in microseconds, and the kernels with the most time."""
    spans, by_name = [], defaultdict(list)
    for event in events:
        span = event.time_range
        took = event.self_cpu_time_total if on_cpu else span.end - span.start
        spans.append((span.start, span.end))
        by_name[event.name].append(took)
    most = sorted(by_name.items(), key=lambda item: -sum(item[1]))
    kernels = [
        {"name": name, "calls": len(took) / calls, "us": sum(took) / calls}
        for name, took in most[:TOP]
    ]
    return {"busy": covered(spans) / calls, "kernels": kernels, "names": len(by_name)}


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return how much is within at least one of the spans."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def show(row: Row) -> None:
    """Print the kernels of a profile."""
    lines: Sequence[Row] = [
        {"table": "kernels", **kernel, "kernel": kernel["name"][:NAME]} for kernel in row["kernels"]
    ]
    title = (
        f"{row['model']}, {row['way']}: {row['wall']:.1f} us a call, {row['busy']:.1f} us of them "
        f"busy; the first of {row['names']} kernels"
    )
    columns = {"us": ".1f", "calls": ".1f", "kernel": ""}
    measure.show(title, lines, "kernels", columns)
