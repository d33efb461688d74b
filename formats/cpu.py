"""What the processor can do: builder and runtime must read it alike, since a guard compares the two."""

import functools


@functools.cache
def features() -> frozenset[str]:
    """Return this processor's features as Linux names them, empty where it does not say."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name.strip() in ("flags", "Features"):
                    return frozenset(value.split())
    except OSError:
        pass
    return frozenset()
