"""Generate with the built decoder, and with the model itself: python generate.py decoder.tcb"""

import logging
import sys
import time
from typing import Any

import torch
from torch import Tensor

from model import VOCABULARY, build, empty_cache
from tcbuild import runtime

PROMPTS = [5, 32, 100, 150]  # tokens; the last one is longer than any bucket
NEW_TOKENS = 24
TOP = 50  # the next token is drawn from as many


def sampled(logits: Tensor, random: torch.Generator) -> Tensor:
    """Draw the next token, int64 [1, 1], from logits, float32 [1, VOCABULARY]."""
    best, ids = logits.topk(TOP)
    return ids.gather(1, torch.multinomial(best.softmax(-1), 1, generator=random))


def generate(model: Any, prompt: Tensor) -> tuple[list[int], float]:
    """Return the tokens that follow a prompt, and the milliseconds for each of them."""
    random = torch.Generator().manual_seed(0)
    size = prompt.shape[1]
    logits, keys, values = model.prefill(prompt)
    cache = empty_cache()
    for held, made in zip((*cache.keys, *cache.values), (*keys, *values), strict=True):
        held[:, :, :size] = made
    tokens = [sampled(logits[:, -1], random)]
    start = time.perf_counter()
    for position in range(size, size + NEW_TOKENS - 1):
        logits = model.decode(tokens[-1], torch.tensor([position]), cache.keys, cache.values)
        tokens.append(sampled(logits, random))
    spent = time.perf_counter() - start
    return [int(token) for token in tokens], 1e3 * spent / (NEW_TOKENS - 1)


def main(path: str) -> None:
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    eager = build()
    model = runtime.load(path, fallback=eager, on_miss="fallback")
    model.warmup()

    with torch.inference_mode():
        for size in PROMPTS:
            prompt = torch.randint(
                VOCABULARY, (1, size), generator=torch.Generator().manual_seed(size)
            )
            print(f"\nprompt of {size}: {model.methods['prefill'].explain(prompt)}")
            tokens, spent = generate(model, prompt)
            expected, spent_eager = generate(eager, prompt)
            print(f"  {tokens[:8]}... {'as' if tokens == expected else 'NOT as'} eager's")
            print(f"  {spent:.2f} ms a token, eager {spent_eager:.2f} ms")

    print(f"\n{model.stats()}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
