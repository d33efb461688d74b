"""Where the time of a call goes on the CPU: `--profile` of tune.py.

OpenVINO and ONNX Runtime count by operator themselves. Of all others oneDNN and MKL say what they were
called for and how long it took; what is left is compiled code, and operators of torch's own. Page faults
and the time in the kernel are counted for every way: fresh memory for an output costs both.
"""

import json
import os
import re
import resource
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import torch

import cpu_ways
import measure
from cpu_ways import WARM_SECONDS, Call, Subject, seconds_of
from measure import Row

CALLS: Final = 20
TOP: Final = 10
NAME: Final = 100  # characters of what is printed; `--json` has all
SAYS: Final = {"ONEDNN_VERBOSE": "1", "DNNL_VERBOSE": "1", "MKL_VERBOSE": "1"}
# OpenVINO's own oneDNN fails where it is to speak.
COUNT: Final = ("onnxruntime", "openvino", "openvino bf16")
UNITS: Final = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
REST: Final = "the rest"
START: Final = "profile: start"
MKL: Final = re.compile(r"^MKL_VERBOSE (\w+)\(([^)]*)\) ([\d.]+)(s|ms|us|ns)\b")

Times = dict[str, list[float]]  # microseconds of each call, by what was called


def environment(way: str) -> Mapping[str, str]:
    """Return what the process that profiles a way is to be started with."""
    return {} if way in COUNT else SAYS


def run(way: str, subject: Subject) -> Row:
    """Return the profile of a way: microseconds a call, and what takes them.

    oneDNN and MKL read at their first call whether they are to speak, so that the process must have been
    started with `environment`.
    """
    with torch.inference_mode():
        if way.startswith("openvino"):
            return _openvino(subject, bf16=cpu_ways.WAYS[way].bf16)
        if way == "onnxruntime":
            return _onnxruntime(subject)
        call = cpu_ways.WAYS[way].load(subject)
        row, said = {}, ""
        with _heard() as read:
            row = _counted(call)
            said = read()
        return {**row, **_summary(_primitives(said.splitlines()), row["wall"])}


def _counted(call: Call) -> Row:
    """Call; return the wall time, the time in the kernel and the page faults, of a call."""
    end = time.monotonic() + WARM_SECONDS
    while time.monotonic() < end:
        call()
    print(START, flush=True)
    before = resource.getrusage(resource.RUSAGE_SELF)
    took = seconds_of(call, CALLS)
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "wall": statistics.median(took) * 1e6,
        "kernel": (after.ru_stime - before.ru_stime) * 1e6 / CALLS,
        "faults": (after.ru_minflt - before.ru_minflt) / CALLS,
    }


@contextmanager
def _heard() -> Iterator[Callable[[], str]]:
    """Give what returns what the libraries have written to stdout since START."""
    with tempfile.TemporaryFile() as file:
        before = os.dup(1)
        os.dup2(file.fileno(), 1)

        def read() -> str:
            _flush()
            file.seek(0)
            return file.read().decode(errors="replace").rpartition(START)[2]

        try:
            yield read
        finally:
            os.dup2(before, 1)
            os.close(before)


def _flush() -> None:
    """Let the C library write what it has kept."""
    import ctypes

    ctypes.CDLL(None).fflush(None)


def _primitives(lines: Iterable[str]) -> Times:
    """Read what oneDNN and MKL have said."""
    took: Times = defaultdict(list)
    for line in lines:
        if found := MKL.match(line):
            name, arguments, value, unit = found.groups()
            sizes = "x".join(re.findall(r"(?<=,)\d+(?=,)", f",{arguments},")[:3])
            took[f"MKL {name} {sizes}"].append(float(value) * UNITS[unit])
        elif line.startswith(("onednn_verbose", "dnnl_verbose")) and ",exec," in line:
            words = line.split(",")
            at = words.index("exec")
            kind, kernel, shape = words[at + 2], words[at + 3], words[-2]
            took[f"oneDNN {kind} {kernel} {shape}"].append(float(words[-1]) * 1e3)
    return took


def _summary(took: Mapping[str, list[float]], wall: float) -> Row:
    """Return the kernels with the most time, and what is left of the wall time.

    A time is the median of what was called, times its calls: an interruption is no kernel's.
    """
    each = {name: statistics.median(t) * len(t) / CALLS for name, t in took.items()}
    most = sorted(each.items(), key=lambda item: -item[1])
    kernels = [{"name": n, "calls": len(took[n]) / CALLS, "us": us} for n, us in most[:TOP]]
    left = wall - sum(each.values())
    named = {"name": REST if left > 0 else "less what counting has cost", "calls": 1.0, "us": left}
    return {"kernels": [*kernels, named], "names": len(took)}


def _openvino(subject: Subject, *, bf16: bool) -> Row:
    precision = {"INFERENCE_PRECISION_HINT": "bf16"} if bf16 else {}
    request = cpu_ways.openvino_request(subject, PERF_COUNT=True, **precision)
    args = [arg.numpy() for arg in subject.args()]
    row = _counted(lambda: request.infer(args, share_inputs=True, share_outputs=True))
    took: Times = defaultdict(list)
    for _ in range(CALLS):
        request.infer(args, share_inputs=True, share_outputs=True)
        for one in request.get_profiling_info():
            if one.real_time.total_seconds():
                took[f"{one.node_type} {one.exec_type}"].append(one.real_time.total_seconds() * 1e6)
    return {**row, **_summary(took, row["wall"])}


def _onnxruntime(subject: Subject) -> Row:
    row = _counted(cpu_ways.onnxruntime(subject))
    with tempfile.TemporaryDirectory() as folder:
        prefix = str(Path(folder) / "profile")
        session, feeds = cpu_ways.onnxruntime_session(
            subject, enable_profiling=True, profile_file_prefix=prefix
        )
        for _ in range(2 * CALLS):
            session.run(None, feeds)
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    nodes = [
        event
        for event in events
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")
    ]
    took: Times = defaultdict(list)
    for event in nodes[len(nodes) // 2 :]:  # warm by then
        took[event["args"]["op_name"]].append(float(event["dur"]))
    return {**row, **_summary(took, row["wall"])}


def show(row: Row) -> None:
    """Print a profile."""
    lines: list[Row] = [
        {"table": "kernels", **kernel, "what": kernel["name"][:NAME]} for kernel in row["kernels"]
    ]
    title = (
        f"{row['model']}, {row['way']}, {row['threads']} threads: {row['wall']:.0f} us a call, "
        f"{row['kernel']:.0f} us of processor time in the kernel, {row['faults']:.0f} page faults; "
        f"the first of {row['names']}"
    )
    measure.show(title, lines, "kernels", {"us": ".1f", "calls": ".1f", "what": ""})
