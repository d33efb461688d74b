"""Where a model runs: one device, and the private surface of torch for the one in use.

On CUDA everything of a loaded model, its weights, its state and the calls it accepts, is on one GPU.
"""

import torch

from ..formats.manifest import Manifest
from ..formats.variant import COMPILED


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
    return torch.device("cpu") if device.type == "cpu" else device


def name(device: torch.device) -> str:
    """Return a device as guards name it: `cpu`, `cuda:0`."""
    return device.type if device.type == "cpu" else str(device)


def synchronize(device: torch.device) -> None:
    """Wait until all that was asked of the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
