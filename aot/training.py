"""Whether and how training steps are built: `[training]` in the spec file."""

from dataclasses import dataclass
from typing import Final

from .errors import SpecError

MIN_CUT: Final = "min_cut"
PARTITIONS: Final = (MIN_CUT, "default")


@dataclass(frozen=True, kw_only=True)
class Training:
    """How forward and backward are cut apart.

    Attributes:
        inference: whether there are variants for calls that record no gradients, too.
        partition: who decides what the backward computes anew instead of taking it from the forward:
            "min_cut" saves as little as it can without much to compute; "default" saves all that the
            backward needs.
        activation_memory_budget: the part of what "min_cut" would save that it may, from 0, which
            computes nearly all anew, to 1.
    """

    inference: bool = True
    partition: str = MIN_CUT
    activation_memory_budget: float = 1.0

    def check(self, where: str) -> None:
        """Refuse values that cannot be.

        Raises:
            SpecError: naming the first.
        """
        if self.partition not in PARTITIONS:
            expected = f"one of {', '.join(PARTITIONS)}"
            raise SpecError(f"{where}.partition", found=self.partition, expected=expected)
        if not 0 <= self.activation_memory_budget <= 1:
            found, expected = self.activation_memory_budget, "a number from 0 to 1"
            raise SpecError(f"{where}.activation_memory_budget", found=found, expected=expected)
