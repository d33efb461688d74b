"""For each dimension that varies, one value or one closed range."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """A closed range of sizes.

    Attributes:
        min: the smallest, at least 0.
        max: the largest; None where there is no upper bound.
    """

    min: int
    max: int | None = None

    def __contains__(self, size: int) -> bool:
        return self.min <= size and (self.max is None or size <= self.max)

    def __str__(self) -> str:
        return f"{self.min}..{'' if self.max is None else self.max}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """The sizes one variant serves. `str(bucket)` is how identifiers have it: `batch=8,seq=2..512`.

    Attributes:
        dims: one size or one range for each dimension, by its name.
    """

    dims: dict[str, int | Range]

    def __str__(self) -> str:
        return ",".join(f"{name}={size}" for name, size in self.dims.items())

    def fixed(self) -> dict[str, int]:
        """Return the dimensions that have one size."""
        return {name: size for name, size in self.dims.items() if isinstance(size, int)}

    def ranges(self) -> dict[str, Range]:
        """Return the dimensions that have a range of sizes."""
        return {name: size for name, size in self.dims.items() if isinstance(size, Range)}
