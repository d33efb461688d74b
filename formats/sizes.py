"""Sizes that a variant serves: within its bucket, and as its relations require."""

import itertools
from collections.abc import Mapping
from typing import Final

from .bucket import Range
from .errors import ManifestError
from .variant import Variant

MAX_TRIED: Final = 1 << 16  # combinations of sizes


def served(variant: Variant, wanted: Mapping[str, int]) -> dict[str, int]:
    """Return a size that the variant serves for each dimension, near the wanted ones.

    Args:
        variant: its relations are among its guards.
        wanted: sizes by dimension; what is left out gets a small size.

    Raises:
        ManifestError: there are none, or none near enough.
    """
    relations = [guard for guard in variant.guards if guard.fact == "relation"]
    count = len(variant.bucket.ranges())
    reach = int(MAX_TRIED ** (1 / count)) if count else 1
    spans = [
        [size] if isinstance(size, int) else _near(size, wanted.get(name, 2), reach)
        for name, size in variant.bucket.dims.items()
    ]
    for choice in itertools.product(*spans):
        dims = dict(zip(variant.bucket.dims, choice, strict=True))
        if all(guard.accepts(True, dims) for guard in relations):
            return dims
    found = f"no size near {dict(wanted)} that its relations allow"
    raise ManifestError(f"variant {variant.id!r}", found=found, expected="one")


def _near(span: Range, wanted: int, reach: int) -> list[int]:
    """Return sizes of the range, at most `reach` of them, the nearest to the wanted one first."""
    middle = max(span.min, wanted)
    middle = middle if span.max is None else min(middle, span.max)
    around = (middle + step for i in range(reach) for step in ((i, -i) if i else (0,)))
    return [size for size in itertools.islice(around, reach) if size in span]
