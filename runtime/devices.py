"""Where a model runs: one device, and the private surface of torch for the one in use.

On CUDA everything of a loaded model, its weights, its state and the calls it accepts, is on one GPU.
"""

from contextlib import AbstractContextManager
from typing import Final

import torch

from ..formats.manifest import Manifest
from ..formats.variant import COMPILED

CPU: Final = torch.device("cpu")


def choose(manifest: Manifest, wanted: str | torch.device | None) -> torch.device:
    """Return the device to load an artifact for, with its index.

    Args:
        manifest: the artifact's.
        wanted: what the caller asks for; where it is None, the kind of device that the artifact's
            libraries are for, the CPU where they are for several.
    """
    if wanted is None:
        kinds = {variant.device for variant in manifest.variants if variant.form in COMPILED}
        wanted = kinds.pop() if len(kinds) == 1 else "cpu"
    return indexed(wanted)


def indexed(wanted: str | torch.device) -> torch.device:
    """Return a device with its index: of "cuda" the current GPU's."""
    device = torch.device(wanted)
    if device.type == "cuda" and device.index is None:
        index = torch.cuda.current_device() if torch.cuda.is_available() else 0
        return torch.device("cuda", index)
    return CPU if device.type == "cpu" else device


def name(device: torch.device) -> str:
    """Return a device as guards name it: `cpu`, `cuda:0`."""
    return device.type if device.type == "cpu" else str(device)


def random_state(device: torch.device) -> tuple[torch.Tensor, ...]:
    """Return the states of the random generators that a model on the device may draw from, as bytes."""
    cpu = torch.get_rng_state()
    return (cpu, torch.cuda.get_rng_state(device)) if device.type == "cuda" else (cpu,)


def keep_random_state(device: torch.device) -> AbstractContextManager[None]:
    """Put the states of these generators back as they were when the block ends."""
    devices = [device] if device.type == "cuda" else []
    return torch.random.fork_rng(devices=devices)


def synchronize(device: torch.device) -> None:
    """Wait until all that was asked of the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
