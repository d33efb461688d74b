"""`python -m tests.conformance.soak --seconds 60`: threads, buckets, misses and weight swaps at once.

Eight threads call one loaded model at sizes that hit one of four buckets or miss, while the weights are
replaced every 50 ms by one of two sets. Every answer must be the one of either set, never of a mix; and
the memory of the process must not grow.
"""

import argparse
import copy
import logging
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from tcbuild import aot, runtime
from tcbuild.aot.dims import Specialize

SIZES = (2, 4, 8, 16)
MISSES = (3, 11)
WIDTH = 96
THREADS = 8
SWAP_SECONDS = 0.05
GROWTH_MB = 48  # what allocators keep for threads, and no more


class Net(nn.Module):
    """Two layers: weights of one set and of the other would show at once."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Map float32 [batch, WIDTH] to the same."""
        made: Tensor = self.second(torch.relu(self.first(x)))
        return made


def main(argv: list[str] | None = None) -> int:
    """Run the soak; return 1 if an answer was wrong or the memory grew."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    seconds = parser.parse_args(argv).seconds
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sets = [Net().eval(), Net().eval()]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.tcb"
        aot.build(_spec(sets[0]), path)
        model = runtime.load(path)
    soak = _Soak(model, sets)
    soak.run(min(5.0, seconds / 4))
    before = _resident_mb()
    calls, swaps = soak.run(seconds)
    grown = _resident_mb() - before
    share = model.stats().fallback_share
    print(f"{calls} calls, {share:.0%} missed, {swaps} swaps, {grown:+.1f} MB in {seconds:.0f} s")
    for line in soak.wrong[:10]:
        print(line)
    failed = len(soak.wrong) + int(grown > GROWTH_MB)
    print(f"{calls - len(soak.wrong)} passed, {failed} failed")
    return int(failed > 0)


class _Soak:
    def __init__(self, model: runtime.Dispatcher, sets: list[Net]) -> None:
        self._model = model
        self._states = [copy.deepcopy(net.state_dict()) for net in sets]
        self._calls = []
        self.wrong: list[str] = []
        for size in (*SIZES, *MISSES):
            for _ in range(4):
                x = torch.randn(size, WIDTH)
                with torch.no_grad():
                    self._calls.append((x, [net(x) for net in sets]))

    def run(self, seconds: float) -> tuple[int, int]:
        """Call and swap for so long; return how many of each there were."""
        stop = time.monotonic() + seconds
        counts = [0] * THREADS
        threads = [
            threading.Thread(target=self._call, args=(stop, counts, i)) for i in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        swaps = 0
        while time.monotonic() < stop:
            time.sleep(SWAP_SECONDS)
            self._model.load_weights(self._states[swaps % 2])
            swaps += 1
        for thread in threads:
            thread.join()
        return sum(counts), swaps

    def _call(self, stop: float, counts: list[int], number: int) -> None:
        chosen = random.Random(number)
        while time.monotonic() < stop:
            x, answers = chosen.choice(self._calls)
            with torch.inference_mode():
                made = self._model(x)
                errors = [float((made - answer).abs().max()) for answer in answers]
            if min(errors) > 1e-5:
                self.wrong.append(f"batch {len(x)}: {errors} off from either set of weights")
            counts[number] += 1


def _spec(net: Net) -> aot.Spec:
    return aot.Spec(
        name="soak",
        model=lambda: net,
        inputs=lambda sizes: ((torch.randn(sizes["batch"], WIDTH),), {}),
        dims={"batch": Specialize(values=SIZES)},
        shapes={"x": ("batch",)},
    )


def _resident_mb() -> float:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


if __name__ == "__main__":
    sys.exit(main())
