"""Serve the built encoder: python serve.py encoder.tcb"""

import logging
import sys
import time

import torch

from model import build, example_inputs
from tcbuild import runtime

SIZES = [(8, 128), (1, 16), (1, 512), (8, 40), (3, 40)]  # batch, seq; the last one is a miss


def main(path: str) -> None:
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    model = runtime.load(path, fallback=build(), on_miss="fallback")

    with torch.inference_mode():
        for batch, seq in SIZES:
            _, inputs = example_inputs(batch, seq)
            print(f"\nbatch={batch} seq={seq}: {model.explain(**inputs)}")
            for _ in range(3):
                start = time.perf_counter()
                model(**inputs)
                print(f"  {(time.perf_counter() - start) * 1e3:.2f} ms")

    print(f"\n{model.stats()}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
