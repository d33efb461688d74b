"""From the start of a process to its first result on a device; run by gpu.py.

    gpu_first.py WAY MODEL FILE DEVICE SIZE ANSWER

The model of gpu_models.py answers one call, in one of these ways: "eager", "tcbuild", "aoti"
(aoti_load_package) and "compile" (torch.compile). SIZE is "small" or "full". The JSON that is
written to the file ANSWER is:

    entered    time.monotonic() at the first line of this script
    end        the same at the result, with the device idle
    stages     milliseconds of each stage in between
"""

import time

entered = time.monotonic()

import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from first_result import Stages  # noqa: E402

Make = Callable[[], Any]


def prepare(way: str, path: str, device: str, stages: Stages, construct: Make) -> Any:
    """Make what answers the call."""
    if way == "tcbuild":
        from tcbuild import runtime

        stages.mark("import")
        model: Any = runtime.load(path, device=device, on_miss="raise")
        stages.mark("load")
        return model
    if way == "aoti":
        from torch._inductor import aoti_load_package

        stages.mark("import")
        model = aoti_load_package(path, run_single_threaded=True)
        stages.mark("load")
        return model
    module = construct()
    stages.mark("construct")
    if way == "eager":
        return module
    import torch

    return torch.compile(module)


def main(way: str, name: str, path: str, device: str, size: str, answer: str) -> None:
    """Answer the call and report."""
    stages = Stages(entered)
    import torch

    stages.mark("torch")
    import gpu_models as models

    case = models.CASES[name](size == "small")
    args = models.inputs(case, device)
    stages.mark("inputs")
    model = prepare(way, path, device, stages, lambda: models.module(case, device))
    with torch.inference_mode():
        model(*args)
    if device != "cpu":
        torch.cuda.synchronize()
    stages.mark("call")
    report = {"entered": entered, "end": stages.last, "stages": stages.took}
    Path(answer).write_text(json.dumps(report), encoding="utf-8")
    os._exit(0)  # the end of the process is not measured


if __name__ == "__main__":
    main(*sys.argv[1:])
