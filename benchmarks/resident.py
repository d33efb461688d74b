"""The memory of a process that serves an artifact; run by buckets.py: resident.py FILE CALLS WARM

CALLS and WARM are batch sizes, with commas. An eager layer of the same width is called with those
of WARM first: the math library keeps buffers for the sizes that it has seen, whoever calls it. The
artifact is loaded, and called with each of CALLS. The last line printed is JSON: `pss` and `rss` in
bytes, by moment, as the kernel counts them in /proc/self/smaps_rollup.
"""

import json
import sys

import torch

from tcbuild import runtime

WIDTH = 2048
KINDS = {"Pss:": "pss", "Rss:": "rss"}


def memory() -> dict[str, int]:
    """Return the resident memory in bytes: `rss`, and `pss`, with its part of what is shared."""
    found = {}
    with open("/proc/self/smaps_rollup", encoding="utf-8") as file:
        for line in file:
            name, *words = line.split()
            if name in KINDS:
                found[KINDS[name]] = int(words[0]) * 1024
    return found


def main(path: str, calls: str, warm: str) -> None:
    """Load, call, and report."""
    layer = torch.nn.Linear(WIDTH, WIDTH)
    with torch.inference_mode():
        for size in warm.split(","):
            layer(torch.ones(int(size), WIDTH))
        moments = {"before": memory()}
        model = runtime.load(path, on_miss="raise")
        moments["loaded"] = memory()
        for size in calls.split(","):
            model(torch.ones(int(size), WIDTH))
        moments["called"] = memory()
    print(json.dumps({kind: {at: moments[at][kind] for at in moments} for kind in KINDS.values()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
