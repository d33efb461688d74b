"""One way of one model in a process of its own; run by tune.py.

    tune_cell.py REQUEST

REQUEST is JSON: `model`, `way`, `threads`, `folder`, `small`, and `task`. Of `make` the answer is what was
built. Of `serve` the first answer says how far its results are `off` of float64, and the
memory of the process in bytes, with what it has `grown` by since torch was imported and the inputs were
made. Then each number that is asked for is answered with the seconds of so many calls. Of `profile` the
answer is where a call's time goes.
"""

import gc
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Final

import torch

import cpu_profile
import cpu_ways
from cpu_models import CASES
from cpu_ways import EVERY, WARM_SECONDS, WAYS, Subject, Way, seconds_of
from resident import memory
from turns import Answers, questions

WARM_CALLS: Final = 3


def make(way: Way, subject: Subject, answers: Answers) -> None:
    """Build the file of a way; one that is half written is never found under its name."""
    path = way.path(subject)
    assert path is not None
    assert way.make is not None
    began = time.monotonic()
    aside = path.with_name(f"new-{path.name}")
    notes = way.make(subject, aside)
    aside.replace(path)
    answers.give({"notes": notes, "seconds": time.monotonic() - began})


def serve(name: str, subject: Subject, answers: Answers) -> None:
    """Load, call, and answer with times."""
    subject.args()
    torch.nn.Linear(64, 64)(torch.ones(1, 64))
    before = memory()["rss"]
    with torch.inference_mode():
        began = time.monotonic()
        call = EVERY[name].load(subject)
        call()
        row: dict[str, Any] = {"first": time.monotonic() - began}
        end = time.monotonic() + WARM_SECONDS
        while time.monotonic() < end:
            seconds_of(call, WARM_CALLS)
        gc.collect()
        now = memory()["rss"]
        if name in WAYS:  # after the memory is known, as comparing takes some that may be kept
            row["off"] = cpu_ways.off(subject, call())
        answers.give({**row, "rss": now, "grown": now - before, "each": min(seconds_of(call, 2))})
        for calls in questions():
            seconds_of(call, 2)
            answers.give({"seconds": seconds_of(call, calls)})


def main() -> None:
    """Do what is asked for."""
    request = json.loads(sys.argv[1])
    answers = Answers()
    torch.set_num_threads(request["threads"])
    torch._inductor.config.compile_threads = 1  # no processes that wait beside what is timed
    name = request["way"]
    subject = Subject(
        model=request["model"],
        case=CASES[request["model"]](request["small"]),
        threads=request["threads"],
        folder=Path(request["folder"]),
    )
    try:
        if request["task"] == "make":
            make(EVERY[name], subject, answers)
        elif request["task"] == "profile":
            answers.give(cpu_profile.run(name, subject))
        else:
            serve(name, subject, answers)
    except Exception as error:
        traceback.print_exc()
        answers.fail(error)
    sys.stderr.flush()
    os._exit(0)  # what compiles may still be waited for


if __name__ == "__main__":
    main()
