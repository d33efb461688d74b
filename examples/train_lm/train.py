"""Train the model on text, through the artifact, in eager or by torch.compile.

python train.py train_lm.tcb --text FILE           through the artifact
python train.py --text FILE                        in eager
python train.py --compile --text FILE              by torch.compile
"""

import argparse
import json
import time
from pathlib import Path

BEGAN = time.perf_counter()  # before torch is imported: that is part of a cold start

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from model import BATCH, LENGTH, build  # noqa: E402
from tcbuild import runtime  # noqa: E402


def batches(text: bytes, steps: int) -> list[tuple[Tensor, Tensor]]:
    """Return the same draws of BATCH texts each time, int64 [BATCH, LENGTH], with their next bytes."""
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    generator = torch.Generator().manual_seed(0)
    made = []
    for _ in range(steps):
        starts = torch.randint(len(data) - LENGTH - 1, (BATCH,), generator=generator)
        rows = torch.stack([data[start : start + LENGTH + 1] for start in starts.tolist()])
        made.append((rows[:, :-1].contiguous(), rows[:, 1:].contiguous()))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("artifact", nargs="?", help="a .tcb file; eager where left out")
    parser.add_argument("--compile", action="store_true", help="by torch.compile")
    parser.add_argument("--text", type=Path, required=True, help="a text to learn")
    parser.add_argument("--steps", type=int, default=200, help="%(default)s")
    parser.add_argument("--json", type=Path, help="write losses and times there")
    options = parser.parse_args()

    model = build().train()
    served = runtime.attach(model, options.artifact) if options.artifact else None
    call = torch.compile(model) if options.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses, took, first = [], [], 0.0
    for ids, targets in batches(options.text.read_bytes(), options.steps):
        began = time.perf_counter()
        optimizer.zero_grad()
        loss = call(ids, targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        took.append(time.perf_counter() - began)
        if len(losses) == 1:
            first = time.perf_counter() - BEGAN
        if len(losses) in (1, options.steps) or len(losses) % 50 == 0:
            print(f"step {len(losses):4}  loss {losses[-1]:.4f}")
    median = sorted(took)[len(took) // 2]
    print(f"first step after {first:.1f} s, then {1000 * median:.1f} ms a step (median)")
    if served is not None:
        print(served.stats())
    if options.json:
        made = {"losses": losses, "first": first, "step": median}
        options.json.write_text(json.dumps(made), encoding="utf-8")


if __name__ == "__main__":
    main()
