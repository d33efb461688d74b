"""How many processors this process may use."""

import math
import os
from pathlib import Path
from typing import Final

_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")


VARIABLE: Final = "TCBUILD_PROCESSORS"


def count() -> int:
    """Return the number that are left by the affinity, in a container by its quota, and by
    $TCBUILD_PROCESSORS; at least 1.
    """
    asked = os.environ.get(VARIABLE, "")
    return max(1, min(_usable(), int(asked))) if asked.isdecimal() else _usable()


def _usable() -> int:
    try:
        usable = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        usable = os.cpu_count() or 1
    try:
        quota, period = _QUOTA.read_text(encoding="utf-8").split()
        return max(1, min(usable, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no container, or "max": no quota
        return usable
