"""`python -m tcbuild.runtime FILE [--weights PATH]`: load an artifact, answer one drawn call for each variant."""

import sys
import time

import torch

from ..formats.errors import TcbuildError
from ..formats.variant import LIBRARY
from . import devices, samples
from .load import load


def main(argv: list[str]) -> int:
    """Serve the artifact; return the exit code."""
    path, *rest = argv or [""]
    if not path or (rest and (len(rest) != 2 or rest[0] != "--weights")):
        print("usage: python -m tcbuild.runtime FILE [--weights PATH]", file=sys.stderr)
        return 2
    weights = rest[1] if rest else None
    try:
        start = time.perf_counter()
        models = [load(path, on_miss="raise", weights=weights)]
        print(f"{path}: loaded in {(time.perf_counter() - start) * 1e3:.1f} ms")
        variants = [
            variant
            for variant in models[0].manifest.variants
            if variant.form == LIBRARY and variant.device == models[0].device.type
        ]
        if any(variant.training for variant in variants):
            models.append(load(path, on_miss="raise", training=True, weights=weights))
        for variant in variants:
            model = models[variant.training]
            call = samples.draw(model.manifest, variant, device=model.device)
            with torch.enable_grad() if variant.grad else torch.inference_mode():
                model(*call.args, **call.kwargs)
                devices.synchronize(model.device)
                start = time.perf_counter()
                model(*call.args, **call.kwargs)
                devices.synchronize(model.device)
            sizes = ", ".join(f"{name}={size}" for name, size in call.dims.items())
            took = (time.perf_counter() - start) * 1e3
            print(f"  {variant.id}: answered {sizes or 'a call'} in {took:.2f} ms")
        for model in models:
            print(model.stats())
    except TcbuildError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
