"""What a spec says of a dimension that varies."""

from collections.abc import Mapping
from dataclasses import dataclass, field
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
        return max(self.min, 8 if self.max is None else min(8, self.max))


@dataclass(frozen=True, kw_only=True)
class Pad:
    """One variant for each of the listed sizes; a smaller call is padded up and its results cut back.

    The build proves that the padding changes no output, or stops.

    Attributes:
        sizes: to pad up to.
        min: the smallest size that is padded.
        fill: what the padding of an input must hold, by the input's path: a mask's 0. The padding of
            the others may hold anything, and the proof fills it at random.
    """

    policy: ClassVar[str] = "pad"
    sizes: tuple[int, ...]
    min: int = 1
    fill: Mapping[str, float] = field(default_factory=dict)

    def check(self, where: str) -> None:
        """Refuse an empty list, sizes out of order, or a minimum above the largest."""
        rising = self.sizes == tuple(sorted(set(self.sizes))) and self.sizes
        if not rising or not 1 <= self.min <= self.sizes[-1]:
            found = f"sizes = {list(self.sizes)}, min = {self.min}"
            raise SpecError(where, found=found, expected="rising sizes, and 1 <= min <= the last")

    def pieces(self) -> tuple[int | Range, ...]:
        """Return what is compiled: one bucket entry each."""
        return self.sizes

    def example(self) -> int:
        """Return a size to run the model with."""
        return self.sizes[-1]


Dim = Specialize | Dynamic | Pad
POLICIES = {kind.policy: kind for kind in (Specialize, Dynamic, Pad)}
