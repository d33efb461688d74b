"""The machine that builds, as a target, and the host guards that follow from it."""

import platform
import re
from collections.abc import Mapping
from typing import Final

from ..formats import cpu
from ..formats.guard import HOST, Guard
from ..formats.target import Target
from .errors import ToolError

# The x86-64 psABI's micro-architecture levels, by the features Linux names for them.
LEVELS: Final = {
    "x86-64-v2": ["cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"],
    "x86-64-v3": ["abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"],
    "x86-64-v4": ["avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"],
}
# Where the compiler's flag is spelled otherwise than Linux's feature.
_FEATURES: Final = {
    "avx512vnni": "avx512_vnni",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
    "amx-tile": "amx_tile",
    "amx-bf16": "amx_bf16",
    "amx-int8": "amx_int8",
    "amx-fp16": "amx_fp16",
}


CUDA_BASE: Final = "x86-64-v2"  # what the host's part of a CUDA library needs of a processor


def resolve(name: str) -> Target:
    """Return the target that a spec's name stands for on this machine.

    Raises:
        ToolError: it is for a GPU that this machine does not have: kernels are tuned on the GPU itself.
    """
    if name.startswith("cuda"):
        return _cuda(name)
    arch = platform.machine()
    if arch != "x86_64":
        return Target(device=name, arch=arch, isa="native")
    features = cpu.features()
    level = "x86-64"
    for candidate, needed in LEVELS.items():
        if not features.issuperset(needed):
            break
        level = candidate
    return Target(device=name, arch=arch, isa=level)


def march(target: Target) -> str:
    """Return what the C++ compiler takes as `-march=` for the target."""
    if target.device == "cuda":
        return CUDA_BASE if target.arch == "x86_64" else "native"
    return target.isa


def host_guards(
    target: Target, library: bytes, compiler_flags: str, *, packed: bool = False
) -> tuple[Guard, ...]:
    """Return what a host must have to run a library.

    Args:
        target: what it was compiled for.
        library: its bytes, for the newest glibc symbol that they need.
        compiler_flags: the flags that chose instruction sets beyond the target's.
        packed: whether weights are packed for it.
    """
    import torch

    facts: dict[str, object] = {"isa": _features(march(target), compiler_flags)}
    if packed:
        facts["onednn"] = True
    if target.device == "cuda":
        cuda = str(torch.version.cuda)
        # Within a major version, kernels run on every driver of it.
        facts |= {"gpu": target.isa, "cuda": cuda, "driver": f"{cuda.split('.')[0]}.0"}
    return (*base_guards(target.arch, library), *_guards(facts))


def base_guards(arch: str, library: bytes) -> tuple[Guard, ...]:
    """Return what a host must have to run a library that needs no more than the base of `arch`."""
    import torch

    return _guards(
        {
            "os": platform.system().lower(),
            "arch": arch,
            "glibc": _glibc(library),
            "torch": torch.__version__.split("+")[0],
        }
    )


def _guards(facts: Mapping[str, object]) -> tuple[Guard, ...]:
    return tuple(
        Guard(subject=HOST, fact=name, expected=expected) for name, expected in facts.items()
    )


def _cuda(name: str) -> Target:
    import torch

    if not torch.cuda.is_available():
        raise ToolError(
            f"target {name!r}",
            found="no GPU that torch can use",
            expected="one of the target's architecture",
            tip="build on a machine with that GPU: kernels are measured and tuned on it",
        )
    major, minor = torch.cuda.get_device_capability()
    target = Target(device="cuda", arch=platform.machine(), isa=f"sm_{major}{minor}")
    if name not in ("cuda", str(target)):
        found = f"{torch.cuda.get_device_name()}, {target}"
        raise ToolError(
            f"target {name!r}",
            found=found,
            expected=name,
            tip="build on a machine with that GPU, or for the target 'cuda': the one that is here",
        )
    return target


def _features(level_name: str, compiler_flags: str) -> list[str]:
    if level_name not in LEVELS:
        return sorted(cpu.features())  # compiled for exactly this processor
    needed: set[str] = set()
    for level, features in LEVELS.items():
        needed.update(features)
        if level == level_name:
            break
    for flag in re.findall(r"-m(\S+)", compiler_flags):
        if not flag.startswith(("arch=", "tune=")):
            needed.add(_FEATURES.get(flag, flag))
    return sorted(needed)


def _glibc(library: bytes) -> str:
    """Return the newest glibc version whose symbols the library asks for."""
    versions = {tuple(map(int, v.split(b"."))) for v in re.findall(rb"GLIBC_(\d+\.\d+)", library)}
    return ".".join(map(str, max(versions, default=(2, 17))))
