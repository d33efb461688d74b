"""What this machine and this process are, as the facts that host guards are about."""

import functools
import os
import platform
from collections.abc import Mapping

import torch

from ..formats import cpu
from ..formats.guard import HOST
from ..formats.manifest import Manifest
from ..formats.variant import LIBRARY, Variant
from .errors import HostError


@functools.cache
def observe() -> Mapping[str, object]:
    """Return the host's facts by name, with the types that guards expect."""
    return {
        "torch": torch.__version__.split("+")[0],
        "os": platform.system().lower(),
        "arch": platform.machine(),
        "isa": cpu.features(),
        "glibc": _glibc(),
    }


def refusals(variant: Variant) -> list[str]:
    """Return one line for each host guard of the variant that this host does not meet."""
    facts = observe()
    return [
        guard.refusal(_shown(guard.expected, facts[guard.fact]), {})
        for guard in variant.guards
        if guard.subject == HOST and not guard.accepts(facts[guard.fact], {})
    ]


def usable(manifest: Manifest, where: str) -> list[Variant]:
    """Return the variants that may run here, in order; checked before any native code is loaded.

    Raises:
        HostError: none of the libraries may; the message has both values of each guard that refuses.
    """
    refused = {variant.id: refusals(variant) for variant in manifest.variants}
    found = [variant for variant in manifest.variants if not refused[variant.id]]
    if not any(variant.form == LIBRARY for variant in found):
        lines = {line for lines in refused.values() for line in lines}
        raise HostError(where, found=_summary(lines), expected="a host that its guards accept")
    return found


def _summary(lines: set[str]) -> str:
    return "; ".join(sorted(lines)) or "no compiled variant at all"


def _shown(expected: object, actual: object) -> object:
    """Of a set of features show only what matters: the ones that are missing."""
    if isinstance(expected, list | tuple) and isinstance(actual, frozenset):
        return f"a host without {' '.join(sorted(set(expected) - actual))}"
    return actual


def _glibc() -> str:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "glibc 0").split()[-1]
    except (ValueError, AttributeError, OSError):  # not a glibc system
        return "0"
