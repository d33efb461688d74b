"""How long to search for the fastest code."""

import math
from dataclasses import dataclass

from .errors import SpecError


@dataclass(frozen=True, kw_only=True)
class Tune:
    """The limits of a search.

    Attributes:
        minutes: for all variants of a build together; each gets an equal part of what is left. The
            compiler's own choice is compiled and checked in any case.
        candidates: ways to compile a variant, at most.
    """

    minutes: float = 30.0
    candidates: int = 16

    def check(self, where: str) -> None:
        """Refuse limits that are none.

        Raises:
            SpecError: naming the key, under `where`.
        """
        if not 0 < self.minutes < math.inf:
            expected = "a number above 0"
            raise SpecError(f"{where}.minutes", found=self.minutes, expected=expected)
        if self.candidates < 1:
            expected = "a whole number, at least 1"
            raise SpecError(f"{where}.candidates", found=self.candidates, expected=expected)
