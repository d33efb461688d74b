"""Freed memory is kept for the next call: a process that hands it back pays for fresh pages each time.

glibc gives large blocks back to the system when they are freed, and a program that is bound by memory then
spends most of its time on page faults: 116 ms a call in place of 55, for three tensors of 64 MiB in and two out.
"""

import ctypes
import functools
import os
from typing import Final

LIMIT: Final = (
    1 << 30
)  # bytes: blocks up to this size come from the heap, which keeps as much at its top
_MMAP_THRESHOLD: Final = -3  # of malloc.h
_TRIM_THRESHOLD: Final = -1
_OWN: Final = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_")


@functools.cache
def keep_freed() -> bool:
    """Let the whole process keep what it frees, up to LIMIT; return whether it does.

    Nothing is done, here or later, where the environment says how glibc's malloc is to do it
    (`MALLOC_TRIM_THRESHOLD_` and the like, `GLIBC_TUNABLES`), or where the C library is another one.
    Another allocator that was loaded before glibc's has its own ways. Blocks of more than 32 MiB in other
    threads than the main one are given back as before.
    """
    if any(name in os.environ for name in _OWN) or "malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_MMAP_THRESHOLD, LIMIT)) and bool(mallopt(_TRIM_THRESHOLD, LIMIT))
