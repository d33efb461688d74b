"""One checkable fact about a call, a process or a host, as data.

A guard says which fact of which subject must have which value. Whoever holds the subject observes
the fact (the runtime, in observe.py and host.py); whether the observed value will do is decided
here, so that building, serving and inspecting agree.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from .errors import ManifestError, UnknownFeatureError
from .expression import evaluate
from .fact import DIMS, FACTS, HOST, MODULE, PROCESS
from .strict_json import show

__all__ = ["DIMS", "FACTS", "HOST", "MODULE", "PROCESS", "Guard", "check"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Guard:
    """One fact, and the value it must have.

    Attributes:
        subject: the path of an input leaf (`ids`, `inputs['feats'][1]`), or `@dims` (the sizes of
            the call by name), `@process` (settings of the calling thread or process), `@module` (how
            the fallback module is set) or `@host`.
        fact: the name of one of its facts (see fact.py).
        expected: what the fact must be; its form depends on the fact.
        axis: of the input, where the fact is "size".
    """

    shared: ClassVar[bool] = (
        True  # see record.py: most variants have most of their guards in common
    )

    subject: str
    fact: str
    expected: Any
    axis: int | None = None

    def accepts(self, actual: object, dims: Mapping[str, int]) -> bool:
        """Return whether the observed value will do, for a call with these sizes.

        A fact that depends on sizes which could not be read does not hold.
        """
        return FACTS[self.fact].form.accepts(self.expected, actual, dims)

    def __str__(self) -> str:
        return f"{self.name}: {FACTS[self.fact].form.words(self.expected)}"

    @property
    def name(self) -> str:
        """What the guard is about: `ids.size(1)`, `ids.dtype`, `host.torch`."""
        name = f"{self.subject.removeprefix('@')}.{self.fact}"
        return name if self.axis is None else f"{name}({self.axis})"

    def refusal(self, actual: object, dims: Mapping[str, int]) -> str:
        """Say in one line that the guard refuses the observed value, with both values."""
        form = FACTS[self.fact].form
        expected = form.words(self.expected)
        if self.fact == "size" and isinstance(self.expected, str):
            # It has no value where a size that it needs could not be read.
            with contextlib.suppress(ManifestError):
                expected = f"{expected} = {evaluate(self.expected, dims)}"
        if self.fact == "relation":
            actual = f"false for {', '.join(f'{name}={size}' for name, size in dims.items())}"
        return f"{self.name}: expected {expected}, found {form.show(actual)}"


def check(guard: Guard, where: str) -> None:
    """Refuse a guard that this version cannot evaluate.

    Raises:
        UnknownFeatureError: the fact is not one of FACTS.
        ManifestError: the expected value has not the form that the fact needs.
    """
    fact = FACTS.get(guard.fact)
    if fact is None:
        raise UnknownFeatureError(
            where, found=f"a guard on {show(guard.fact)}", expected=f"one of {', '.join(FACTS)}"
        )
    if not fact.form.well_formed(guard.expected):
        raise ManifestError(where, found=show(guard.expected), expected=fact.form.text)
    if (guard.fact == "size") != (guard.axis is not None):
        raise ManifestError(
            where, found=f"axis {guard.axis} for {guard.fact!r}", expected="an axis with a size"
        )
