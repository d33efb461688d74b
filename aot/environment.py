"""What a build depends on besides its inputs."""

import platform

import torch

from . import inductor, structure, toolchain


def describe() -> dict[str, str]:
    """Return the environment by name: part of cache keys, and recorded in the manifest."""
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "compiler": toolchain.version(),
        "vector_flags": inductor.vector_flags(),
        "default_dtype": structure.dtype_name(torch.get_default_dtype()),
        "deterministic": str(torch.are_deterministic_algorithms_enabled()),
    }
