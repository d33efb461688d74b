"""Which parts of a model are in training mode, as a guard writes it."""

from collections.abc import Iterable
from typing import Final

NONE: Final = "none"
ALL: Final = "all"


def describe(flags: Iterable[tuple[str, bool]]) -> str:
    """Return "none", "all", or "all but NAMES".

    Args:
        flags: for each part by its path (the model itself is ""), whether it is in training mode.
    """
    parts = list(flags)
    still = sorted(name or "the model itself" for name, training in parts if not training)
    if len(still) == len(parts):
        return NONE
    return f"{ALL} but {', '.join(still)}" if still else ALL
