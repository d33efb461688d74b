"""Build the text encoder, serve it, let a call miss, and compare the speed. Run by `make demo`."""

import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from tcbuild import runtime
from text_encoder.model import build, example_inputs

ROOT = Path(__file__).parent.parent
SPEC = ROOT / "examples" / "text_encoder" / "tcbuild.toml"
ARTIFACT = ROOT / "build" / "demo" / "encoder.tcb"
HIT, MISS = (8, 40), (3, 40)  # batch, seq; the spec has no batch of 3
TIMED = [(1, 64), (8, 128)]
ROUNDS = 15

Model = Callable[..., object]


def build_artifact() -> None:
    """Build in a process of its own, by the command a user would type."""
    ARTIFACT.parent.mkdir(parents=True, exist_ok=True)
    arguments = ["build", os.path.relpath(SPEC), "-o", os.path.relpath(ARTIFACT)]
    print("$ tcbuild", *arguments, flush=True)
    subprocess.run([sys.executable, "-m", "tcbuild.aot.cli", *arguments], check=True)


def serve(eager: torch.nn.Module) -> None:
    """Make one call that hits and one that misses; print the reasons and the counts."""
    model = runtime.load(ARTIFACT, fallback=eager, on_miss="fallback")
    for batch, seq in (HIT, MISS):
        _, inputs = example_inputs(batch, seq)
        print(f"\nA call of batch {batch}, seq {seq}:")
        print(model.explain(**inputs))
        difference = (model(**inputs) - eager(**inputs)).abs().max()
        print(f"Largest difference from eager: {difference:.1e}")
    print(f"\n{model.stats()}\n", flush=True)


def milliseconds(model: Model, size: tuple[int, int]) -> float:
    """Time one call."""
    _, inputs = example_inputs(*size)
    start = time.perf_counter()
    model(**inputs)
    return 1e3 * (time.perf_counter() - start)


def first_results(make: Callable[[], Model]) -> tuple[Model, list[float]]:
    """Return the model that `make` makes, and the milliseconds to its first result of each size.

    The first of them includes making it.
    """
    start = time.perf_counter()
    model = make()
    made = 1e3 * (time.perf_counter() - start)
    first, *others = [milliseconds(model, size) for size in TIMED]
    return model, [made + first, *others]


def medians(models: dict[str, Model]) -> dict[str, list[float]]:
    """Call the models in turn, round after round; return the median of each, size by size."""
    result: dict[str, list[float]] = {name: [] for name in models}
    for size in TIMED:
        rounds = [[milliseconds(model, size) for model in models.values()] for _ in range(ROUNDS)]
        for name, times in zip(models, zip(*rounds, strict=True), strict=True):
            result[name].append(statistics.median(times))
    return result


def compare(eager: torch.nn.Module) -> None:
    """Print the time to the first result and of the median call, for eager and both compilers."""
    for size in TIMED:
        milliseconds(eager, size)
    print("Load, and a first call of each size ...", flush=True)
    loaded, loaded_first = first_results(lambda: runtime.load(ARTIFACT))
    print("torch.compile from an empty cache, and a first call of each size ...", flush=True)
    compiled, compiled_first = first_results(lambda: torch.compile(eager, dynamic=True))

    models: dict[str, Model] = {"eager": eager, "torch.compile": compiled, "tcbuild": loaded}
    first = {"torch.compile": compiled_first, "tcbuild": loaded_first}
    median = medians(models)
    print(f"\nMilliseconds, {torch.get_num_threads()} threads, median of {ROUNDS} calls in turn")
    for i, (batch, seq) in enumerate(TIMED):
        print(f"\n{f'batch {batch}, seq {seq}':20}{'first result':>14}{'median call':>14}")
        for name in models:
            start = f"{first[name][i]:.1f}" if name in first else ""
            print(f"{name:20}{start:>14}{median[name][i]:>14.1f}")


def main() -> None:
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", stream=sys.stdout)
    build_artifact()
    eager = build()
    with tempfile.TemporaryDirectory() as cache, torch.inference_mode():
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        serve(eager)
        compare(eager)


if __name__ == "__main__":
    main()
