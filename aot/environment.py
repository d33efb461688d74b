"""What a build depends on besides its inputs."""

import platform

import torch

from ..formats.target import Target
from . import inductor, structure, toolchain


def describe(*targets: Target) -> dict[str, str]:
    """Return the environment of builds for the targets, by name: for cache keys, and the manifest."""
    environment = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "compiler": toolchain.version(),
        "default_dtype": structure.dtype_name(torch.get_default_dtype()),
        "deterministic": str(torch.are_deterministic_algorithms_enabled()),
    }
    for target in targets:
        if target.device == "cuda":
            environment |= _cuda()
        else:
            environment["vector_flags"] = inductor.vector_flags(target)
    return environment


def _cuda() -> dict[str, str]:
    import triton

    return {
        "triton": triton.__version__,
        "cuda": str(torch.version.cuda),
        "gpu": torch.cuda.get_device_name(),
        "matmul_precision": torch.get_float32_matmul_precision(),
    }
