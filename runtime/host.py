"""What this machine and this process are, as the facts that host guards are about."""

import functools
import os
import platform
from collections.abc import Mapping, Sequence

import torch

from ..formats import cpu, gpu, python_abi
from ..formats.guard import HOST, Guard
from ..formats.manifest import Manifest
from ..formats.variant import COMPILED, Variant
from . import devices
from .errors import HostError


@functools.cache
def observe(device: torch.device) -> Mapping[str, object]:
    """Return the facts of this host, with `device`, by name, with the types that guards expect."""
    return {
        "python": python_abi.name(),
        "torch": torch.__version__.split("+")[0],
        "os": platform.system().lower(),
        "arch": platform.machine(),
        "isa": cpu.features(),
        "onednn": torch._C._has_mkldnn,
        "glibc": _glibc(),
        **_gpu(device),
    }


def refusals(variant: Variant, device: torch.device) -> list[str]:
    """Return one line for each host guard of the variant that this host does not meet."""
    if variant.device != device.type:
        return [f"device: expected {variant.device}, found {devices.name(device)}"]
    return unmet([guard for guard in variant.guards if guard.subject == HOST], device)


def unmet(guards: Sequence[Guard], device: torch.device) -> list[str]:
    """Return one line for each of some host guards that this host does not meet."""
    facts = observe(device)
    return [
        guard.refusal(_shown(guard.expected, facts[guard.fact]), {})
        for guard in guards
        if not guard.accepts(facts[guard.fact], {})
    ]


def usable(manifest: Manifest, device: torch.device, where: str) -> list[Variant]:
    """Return the variants that may run on the device, in order; checked before native code is loaded.

    Raises:
        HostError: none of the libraries may; the message has both values of each guard that refuses.
    """
    refused = {variant.id: refusals(variant, device) for variant in manifest.variants}
    found = [variant for variant in manifest.variants if not refused[variant.id]]
    if not any(variant.form in COMPILED for variant in found):
        libraries = [variant for variant in manifest.variants if variant.form in COMPILED]
        lines = {line for variant in libraries for line in refused[variant.id]}
        raise HostError(where, found=_summary(lines), expected="a host that its guards accept")
    return found


def _summary(lines: set[str]) -> str:
    return "; ".join(sorted(lines)) or "no compiled variant at all"


def _shown(expected: object, actual: object) -> object:
    """Of a set of features show only what matters: the ones that are missing."""
    if isinstance(expected, list | tuple) and isinstance(actual, frozenset):
        return f"a host without {' '.join(sorted(set(expected) - actual))}"
    return actual


def _gpu(device: torch.device) -> dict[str, str]:
    """Return the facts of a GPU; "none", and version 0, where there is none."""
    found = torch.cuda.device_count() if device.type == "cuda" else 0
    if device.index is None or device.index >= found:
        return {"gpu": "none", "cuda": torch.version.cuda or "none", "driver": "0"}
    major, minor = torch.cuda.get_device_capability(device)
    return {
        "gpu": f"sm_{major}{minor}",
        "cuda": torch.version.cuda or "none",
        "driver": ".".join(map(str, gpu.driver_version())),
    }


def _glibc() -> str:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "glibc 0").split()[-1]
    except (ValueError, AttributeError, OSError):  # not a glibc system
        return "0"
