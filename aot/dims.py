"""What a spec says of a dimension that varies."""

from dataclasses import dataclass
from typing import ClassVar

from ..formats.bucket import Range
from .errors import SpecError


@dataclass(frozen=True, kw_only=True)
class Specialize:
    """One variant for each of the listed sizes."""

    policy: ClassVar[str] = "specialize"
    values: tuple[int, ...]

    def check(self, where: str) -> None:
        """Refuse an empty list, a negative size or a size twice."""
        good = self.values and min(self.values) >= 0 and len(set(self.values)) == len(self.values)
        if not good:
            raise SpecError(
                f"{where}.values", found=list(self.values), expected="different sizes, 0 or more"
            )

    def pieces(self) -> tuple[int | Range, ...]:
        """Return what is compiled: one bucket entry each."""
        return self.values

    def example(self) -> int:
        """Return a size to run the model with."""
        return self.values[-1]


@dataclass(frozen=True, kw_only=True)
class Dynamic:
    """One variant for a closed range of sizes.

    The sizes 0 and 1 are compiled on their own where the range has them: torch's tracing treats them
    as special, and a graph traced for 2 and more would be wrong for them.

    Attributes:
        min, max: the ends of the range; `max` is None where there is no upper end.
        tune: the size to optimise for; within the range.
    """

    policy: ClassVar[str] = "dynamic"
    min: int = 2
    max: int | None = None
    tune: int | None = None

    def check(self, where: str) -> None:
        """Refuse an empty range, or a tuning size outside it."""
        if self.min < 0 or (self.max is not None and self.max < self.min):
            found = f"min = {self.min}, max = {self.max}"
            raise SpecError(where, found=found, expected="0 <= min <= max")
        if self.tune is not None and self.tune not in Range(min=self.min, max=self.max):
            expected = f"within {Range(min=self.min, max=self.max)}"
            raise SpecError(f"{where}.tune", found=self.tune, expected=expected)

    def pieces(self) -> tuple[int | Range, ...]:
        """Return what is compiled: one bucket entry each."""
        special = [size for size in (0, 1) if size in Range(min=self.min, max=self.max)]
        low = max(self.min, 2)
        if self.max is not None and self.max <= low:
            return (*special, *([low] if self.max == low else []))
        return (*special, Range(min=low, max=self.max))

    def example(self) -> int:
        """Return a size to run the model with."""
        if self.tune is not None:
            return self.tune
        return max(self.min, min(8, self.max or 8))


Dim = Specialize | Dynamic
POLICIES = {kind.policy: kind for kind in (Specialize, Dynamic)}
