"""What was served by what."""

import itertools
import threading
from collections.abc import Mapping
from dataclasses import dataclass


class Counter:
    """A count that many threads may raise; `add` costs tens of nanoseconds and loses nothing."""

    __slots__ = ("_lock", "_reads", "_ticks", "add")

    def __init__(self) -> None:
        self._ticks = itertools.count()
        self.add = self._ticks.__next__  # atomic, unlike `+= 1`
        self._lock = threading.Lock()
        self._reads = 0

    def read(self) -> int:
        """Return how often `add` was called."""
        with self._lock:
            total = next(self._ticks) - self._reads
            self._reads += 1
            return total


@dataclass(frozen=True, kw_only=True, slots=True)
class Stats:
    """Counts since the artifact was loaded.

    Attributes:
        hits: calls that each compiled variant answered.
        misses: calls that none did, by the guards that refused.
        fallbacks: misses that were answered all the same, by what answered them.
    """

    hits: Mapping[str, int]
    misses: Mapping[str, int]
    fallbacks: Mapping[str, int]

    @property
    def calls(self) -> int:
        """All calls."""
        return sum(self.hits.values()) + sum(self.misses.values())

    @property
    def fallback_share(self) -> float:
        """The share of calls, from 0 to 1, that no compiled variant answered."""
        return sum(self.misses.values()) / self.calls if self.calls else 0.0

    def __str__(self) -> str:
        lines = [f"{self.calls} calls, {self.fallback_share:.1%} missed"]
        for title, counts in (
            ("hit", self.hits),
            ("miss", self.misses),
            ("served by", self.fallbacks),
        ):
            lines.extend(f"  {title} {name}: {count}" for name, count in counts.items())
        return "\n".join(lines)
