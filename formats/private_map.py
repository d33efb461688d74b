"""A range of a file as memory of one's own: mapped, and copied by the system where it is written to."""

import mmap


def map_private(descriptor: int, start: int, length: int) -> memoryview:
    """Return bytes of a file as memory that may be written to.

    Nothing is read or copied here: a page that is written to is copied by the system, and never
    reaches the file. The memory lives as long as the view or a tensor over it does, whatever is
    renamed over the file.

    Args:
        descriptor: of the open file.
        start: of the first byte.
        length: in bytes; the range lies within the file.
    """
    if not length:
        return memoryview(bytearray())
    before = start % mmap.ALLOCATIONGRANULARITY
    private = mmap.mmap(descriptor, before + length, access=mmap.ACCESS_COPY, offset=start - before)
    return memoryview(private)[before:]


def forget(view: memoryview, start: int, end: int) -> None:
    """Give back the memory of the pages from `start` to `end` of a view that `map_private` gave.

    They stay in the system's page cache, and are mapped again when they are next read. Pages that the
    range has only a part of stay.

    Only for pages that were not written to: what was written is lost.
    """
    private = view.obj
    if not isinstance(private, mmap.mmap):
        return
    before = len(private) - len(view)
    first = -(-(before + start) // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (before + end) // mmap.PAGESIZE * mmap.PAGESIZE
    if first < last:
        private.madvise(mmap.MADV_DONTNEED, first, last - first)
