"""One measurement at a time on a device, however many builds there are on the machine."""

import os
import tempfile
from pathlib import Path

import torch

from ..formats.target import Target


def lock(target: Target) -> Path:
    """Return the file that whoever measures on this machine's device for a target holds locked.

    It is the same for all builds of a user; the lock is that of flock(2), so that it ends with its holder.
    """
    device = "cpu"
    if target.device == "cuda":
        device = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
    return Path(tempfile.gettempdir()) / f"tcbuild-{os.getuid()}-measuring-{device}.lock"
