"""The entry points of a model that has several: its methods."""

from collections.abc import Sequence
from typing import Final

from .errors import ManifestError
from .strict_json import show
from .text import is_identifier
from .variant import Variant

FEATURE: Final = "methods"

# What a loaded model itself is asked for; a method of that name could not be called.
RESERVED: Final = frozenset(
    {"device", "explain", "load_weights", "manifest", "methods", "state", "stats", "warmup"}
)


def problem(name: str) -> str:
    """Return what is expected in place of a method's name; empty where the name is good."""
    if not is_identifier(name) or name.startswith("_"):
        return "the name of a public method"
    if name in RESERVED:
        return f"another name: a loaded model has {name} itself"
    return ""


def check(variants: Sequence[Variant], requires: Sequence[str], where: str) -> None:
    """Refuse entry points that are no names of methods, or of which a reader is not told.

    Raises:
        ManifestError: which one.
    """
    names = {variant.entry for variant in variants}
    if names <= {""}:
        return
    for name in sorted(names):
        expected = problem(name)
        if expected:
            raise ManifestError(where, found=f"the entry {show(name)}", expected=expected)
    if FEATURE not in requires:
        expected = f"{FEATURE!r} among requires"
        raise ManifestError(where, found=show(list(requires)), expected=expected)
