"""From the start of a process to its first result; run by start.py: first_result.py WAY FILE [audit]

The text encoder answers one call of batch 1 and 128 tokens, in one of these ways: "eager",
"tcbuild", "aoti" (aoti_load_package) and "compile" (torch.compile). The last line printed is JSON:

    entered    time.monotonic() at the first line of this script
    end        the same at the result
    stages     milliseconds of each stage in between
    cpu        milliseconds of processor time that all its threads have used by then
    processes  with "audit", which costs some time: the processes that were started
    imported   the compilers and command-line packages that were imported
"""

import time

entered = time.monotonic()

import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable  # noqa: E402
from typing import Any  # noqa: E402

HEAVY = ("torch._inductor", "torch._dynamo", "triton", "click", "rich", "onnx")
STARTS = {
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "os.system",
    "pty.spawn",
    "subprocess.Popen",
}

Model = Callable[..., Any]


class Stages:
    """The milliseconds from each mark to the next."""

    def __init__(self, start: float) -> None:
        self.last = start
        self.took: dict[str, float] = {}

    def mark(self, name: str) -> None:
        """End the stage of that name."""
        now = time.monotonic()
        self.took[name] = (now - self.last) * 1e3
        self.last = now


def make(way: str, path: str, stages: Stages) -> Model:
    """Make what answers the call."""
    if way == "tcbuild":
        from tcbuild import runtime

        stages.mark("import")
        model: Model = runtime.load(path, on_miss="raise")
        stages.mark("load")
        return model
    if way == "aoti":
        from torch._inductor import aoti_load_package

        stages.mark("import")
        model = aoti_load_package(path)
        stages.mark("load")
        return model
    from examples.text_encoder.model import build

    module = build()
    stages.mark("construct")
    if way == "eager":
        return module
    import torch

    compiled: Model = torch.compile(module)
    return compiled


def main(way: str, path: str, *flags: str) -> None:
    """Answer the call and report."""
    processes: list[str] = []

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event in STARTS:
            processes.append(f"{event} {arguments[0] if arguments else ''}".strip())

    if "audit" in flags:
        sys.addaudithook(audit)
    stages = Stages(entered)
    import torch

    stages.mark("torch")
    from examples.text_encoder.model import example_inputs

    _, inputs = example_inputs(batch=1, seq=128)
    stages.mark("inputs")
    model = make(way, path, stages)
    with torch.inference_mode():
        model(**inputs)
    stages.mark("call")
    cpu = time.process_time() * 1e3
    report = {
        "entered": entered,
        "end": stages.last,
        "stages": stages.took,
        "cpu": cpu,
        "processes": processes,
        "imported": [name for name in HEAVY if name in sys.modules],
    }
    print(json.dumps(report), flush=True)
    os._exit(0)  # the end of the process is not measured


if __name__ == "__main__":
    main(*sys.argv[1:])
