"""A Python extension module that an artifact carries, and what it needs of a host."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from . import guard
from .errors import ManifestError, TooLargeError
from .fact import FACTS, HOST
from .guard import Guard
from .strict_json import show
from .variant_check import MAX_GUARDS

# It calls into Python and torch with the layouts that their headers had where it was built.
REQUIRED: Final = ("python", "torch", "os", "arch")


@dataclass(frozen=True, kw_only=True, slots=True)
class Extension:
    """A module that a reader may use in the place of slower code of its own, or leave.

    Attributes:
        section: name of the section with the shared library.
        guards: what must hold for the host; each on `@host`.
    """

    section: str
    guards: tuple[Guard, ...]


def check(extension: Extension, sections: Collection[str], where: str) -> None:
    """Refuse an extension that is not there, or that could be loaded where it does not fit.

    Args:
        extension: the record.
        sections: the names of the artifact's sections.
        where: for messages.

    Raises:
        ManifestError: its section does not exist, or a guard is missing or not on the host.
        UnknownFeatureError: it has a guard that this version does not know.
        TooLargeError: it has too many guards.
    """
    if extension.section not in sections:
        found, expected = f"section {show(extension.section)}", f"one of {show(sorted(sections))}"
        raise ManifestError(where, found=found, expected=expected)
    if len(extension.guards) > MAX_GUARDS:
        found = f"{len(extension.guards)} guards"
        raise TooLargeError(where, found=found, expected=f"at most {MAX_GUARDS}")
    for item in extension.guards:
        place = f"{where}: guard {show(item.name)}"
        guard.check(item, place)
        if (item.subject, FACTS[item.fact].subject) != (HOST, HOST):
            expected = f"a fact of {HOST}"
            raise ManifestError(place, found=f"subject {show(item.subject)}", expected=expected)
    for name in REQUIRED:
        if all(item.fact != name for item in extension.guards):
            found = f"no guard on host.{name}"
            raise ManifestError(where, found=found, expected="one in each extension")
