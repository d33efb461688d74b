"""Which extension modules a Python loads: builder and runtime must read it alike, since a guard
compares the two."""

from importlib.machinery import EXTENSION_SUFFIXES


def name() -> str:
    """Return the name of this Python's ABI, as in the names of its modules; "none" without one."""
    parts = EXTENSION_SUFFIXES[0].split(".") if EXTENSION_SUFFIXES else []
    return parts[1] if len(parts) == 3 else "none"
