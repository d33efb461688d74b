"""A part of a build that is done on several machines: what it holds, and what it was made of."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from .errors import ManifestError
from .strict_json import show
from .text import is_label
from .variant import COMPILED, Variant

FEATURE: Final = "shard"  # in the manifest's `requires`: a part must not be served as the whole


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """Which jobs of a plan an artifact has, for `tcbuild merge` to join it with the others.

    Attributes:
        index: which part it is, from 1.
        count: how many parts there are.
        jobs: the ids of the plan's jobs, in order; part i has every count-th of them, from the i-th on.
        origin: digests of what all parts must have been made of, by name: the spec, each source file,
            the weights.
        renamed: for each weight that is stored under another name than the model's, the model's: the
            artifact has another weight of that name.
        tied: for each weight that the model has under several names, the first of these.
        external: whether the whole artifact is to have its weights in a file of their own; a part has
            them in itself.
    """

    index: int
    count: int
    jobs: tuple[str, ...]
    origin: dict[str, str]
    renamed: dict[str, str] = field(default_factory=dict)
    tied: dict[str, str] = field(default_factory=dict)
    external: bool = False

    def mine(self) -> tuple[str, ...]:
        """Return the ids of the jobs that this part has."""
        return self.jobs[self.index - 1 :: self.count]

    def __str__(self) -> str:
        return f"part {self.index} of {self.count}"


def check(shard: Shard, variants: Sequence[Variant], where: str) -> None:
    """Refuse a part that is none of those it counts, or that has other jobs than it says.

    Raises:
        ManifestError: it is, or has.
    """
    if not 1 <= shard.index <= shard.count:
        expected = "part 1 to count of count"
        raise ManifestError(where, found=str(shard), expected=expected)
    for id in shard.jobs:
        if not is_label(id):
            raise ManifestError(f"{where}: jobs", found=show(id), expected="printable text")
    if len(set(shard.jobs)) != len(shard.jobs):
        raise ManifestError(f"{where}: jobs", found="an id twice", expected="unique ids")
    there = tuple(variant.id for variant in variants if variant.form in COMPILED)
    if there != shard.mine():
        expected = f"those of {shard}: {show(list(shard.mine()))}"
        raise ManifestError(f"{where}: variants", found=show(list(there)), expected=expected)
