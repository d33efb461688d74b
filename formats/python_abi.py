"""Which extension modules a Python loads: builder and runtime must read it alike, since a guard
compares the two."""

import sysconfig


def name() -> str:
    """Return the name of this Python's ABI, `cpython-311-x86_64-linux-gnu`; "none" without one."""
    return str(sysconfig.get_config_var("SOABI") or "none")
