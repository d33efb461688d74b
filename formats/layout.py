"""The order of a tensor's axes in memory, as text.

"contiguous" is row-major order. Any other dense order is written as its axes from the outermost to
the innermost: "0,2,3,1" is channels-last for four axes.
"""

from collections.abc import Sequence
from typing import Final

from .errors import ManifestError

CONTIGUOUS: Final = "contiguous"
MAX_RANK: Final = 64  # axes of a tensor; torch has the same limit


def axes(layout: str, rank: int, where: str = "layout") -> tuple[int, ...]:
    """Return the axes from the outermost in memory to the innermost.

    Raises:
        ManifestError: the text is not an order of `rank` axes.
    """
    if layout == CONTIGUOUS:
        return tuple(range(rank))
    parts = layout.split(",")
    if sorted(parts) != sorted(map(str, range(rank))):
        expected = f"{CONTIGUOUS!r} or an order of {rank} axes"
        raise ManifestError(where, found=repr(layout), expected=expected)
    return tuple(map(int, parts))


def layout_of(shape: Sequence[int], strides: Sequence[int]) -> str | None:
    """Return the layout of a tensor with these strides (in elements), or None if it is not dense.

    Axes of size 1 may have any stride. An empty tensor is contiguous.
    """
    if is_dense(CONTIGUOUS, shape, strides):
        return CONTIGUOUS
    order = sorted(range(len(shape)), key=lambda axis: (-strides[axis], axis))
    layout = ",".join(map(str, order))
    return layout if is_dense(layout, shape, strides) else None


def strides_of(layout: str, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, that a dense tensor of this shape has in this layout."""
    strides = [1] * len(shape)
    step = 1
    for axis in reversed(axes(layout, len(shape))):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)


def is_dense(layout: str, shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether a tensor with these strides (in elements) is dense in this layout."""
    if 0 in shape:
        return True
    step = 1
    for axis in reversed(axes(layout, len(shape))):
        if shape[axis] != 1:
            if strides[axis] != step:
                return False
            step *= shape[axis]
    return True
