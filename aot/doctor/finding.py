"""A check, and what it found."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

OK: Final = "ok"
NOTE: Final = "note"
PROBLEM: Final = "problem"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a check found.

    Attributes:
        status: OK; NOTE for what a build can do without; PROBLEM for what it cannot.
        found: what is there.
        expected: what should be there; empty where all is well.
        cure: what to do about it, such as a command to type.
    """

    status: str
    found: str
    expected: str = ""
    cure: str = ""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing to look at.

    Attributes:
        name: unique among the checks of a run.
        run: looks, and changes nothing that stays. What it raises is a problem, too.
        needs: the names of earlier checks without which this one says nothing.
    """

    name: str
    run: Callable[[], Finding]
    needs: tuple[str, ...] = ()


def brief(text: str, lines: int = 3) -> str:
    """Return the last lines of what a program said, as one line of at most 600 characters."""
    said = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(said[-lines:])[-600:]


def ok(found: object) -> Finding:
    """Return what is as it should be."""
    return Finding(status=OK, found=str(found))


def note(found: object, *, expected: str, cure: str) -> Finding:
    """Return what a build can do without."""
    return Finding(status=NOTE, found=str(found), expected=expected, cure=cure)


def problem(found: object, *, expected: str, cure: str) -> Finding:
    """Return what a build cannot do without."""
    return Finding(status=PROBLEM, found=str(found), expected=expected, cure=cure)
