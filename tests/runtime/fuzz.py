"""`python -m tests.runtime.fuzz --seconds 600`: drawn calls against eager, for as long as that takes.

The same draws as in test_fast_path.py, each time other ones. A line for each thousand, and a last line
`N passed, N failed`; the first failure is shrunk and printed, and ends it.
"""

import argparse
import itertools
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import torch

from tcbuild import aot, runtime

from .. import models
from .test_fast_path import HITS, check

EXAMPLES = 500  # of two calls each


def main(argv: list[str] | None = None) -> int:
    """Fuzz; return 1 if an answer was not eager's."""
    parser = argparse.ArgumentParser(prog="python -m tests.runtime.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.tcb"
        aot.build(models.NET, path)
        served = runtime.load(path, on_miss="raise")
    stop = time.monotonic() + options.seconds
    failed = 0
    for seed in itertools.count(options.seed):
        if time.monotonic() > stop:
            break
        try:
            check(served, EXAMPLES, seed)
        except Exception:
            failed += 1
            traceback.print_exc()
            break
        print(
            f"seed {seed}: {HITS['drawn']} calls, {HITS['hit']} hits, {failed} failed", flush=True
        )
    print(f"{HITS['drawn'] - failed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
