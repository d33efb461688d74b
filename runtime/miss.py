"""One call that no variant accepts, with the reason for each variant."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one variant does not accept a call.

    Attributes:
        guard: what was looked at: `ids.size(1)`, `process.autocast`, `structure`.
        text: one line with the guard, what it expects and what was found.
    """

    guard: str
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """What the artifact makes of a call.

    Attributes:
        variant: identifier of the variant that answers; None where none accepts the call.
        refusals: for each variant that was asked and does not, every reason.
        others: how many more refuse, further from accepting it than one of these.
    """

    variant: str | None
    refusals: Mapping[str, tuple[Refusal, ...]]
    others: int = 0

    def __str__(self) -> str:
        lines = [f"answered by {self.variant}" if self.variant else "no variant accepts this call"]
        for variant, reasons in self.refusals.items():
            lines.append(f"  {variant} refuses:")
            lines.extend(f"    {reason}" for reason in reasons)
        return "\n".join(lines)

    @property
    def reason(self) -> str:
        """One line: why the variant that came nearest refuses, and how many others do."""
        nearest = self._nearest()
        if nearest is None:
            return "the artifact has no variant for this host"
        others = len(self.refusals) - 1 + self.others
        more = f" (and {others} more variant{'s' if others > 1 else ''})" if others else ""
        return f"{'; '.join(map(str, self.refusals[nearest]))} [{nearest}]{more}"

    @property
    def guards(self) -> str:
        """The guards that `reason` is about, without values: the kind of miss this is."""
        nearest = self._nearest()
        if nearest is None:
            return "host"
        return ", ".join(refusal.guard for refusal in self.refusals[nearest])

    def _nearest(self) -> str | None:
        # Of equals the last: variants for ranges stand behind those for single sizes.
        names = reversed(list(self.refusals))
        return min(names, key=lambda name: len(self.refusals[name]), default=None)
