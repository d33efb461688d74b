"""What was served by what."""

import itertools
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field


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


class Waste:
    """How many calls were padded, and how much of them was padding."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = 0
        self._sum = 0.0

    def add(self, share: float) -> None:
        """Count one call, of which this share, from 0 to 1, was padding."""
        with self._lock:
            self._calls += 1
            self._sum += share

    def read(self) -> tuple[int, float]:
        """Return the number of calls and the mean share."""
        with self._lock:
            return self._calls, self._sum / self._calls if self._calls else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Stats:
    """Counts since the artifact was loaded.

    Attributes:
        hits: calls that each compiled variant answered.
        misses: calls that none did, by the guards that refused.
        padded: of the calls that were padded up to a variant's bucket, how many there were, and the share
            of the padded sizes that was padding, from 0 to 1.
        fallbacks: misses that were answered all the same, by what answered them.
        graphs: of the variants that replay CUDA graphs, how many were captured, and the bytes of device
            memory that they hold.
    """

    hits: Mapping[str, int]
    misses: Mapping[str, int]
    fallbacks: Mapping[str, int]
    padded: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    graphs: Mapping[str, tuple[int, int]] = field(default_factory=dict)

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
        for name, (count, waste) in self.padded.items():
            lines.append(f"  padded up to {name}: {count}, {waste:.0%} of it padding")
        for name, (count, held) in self.graphs.items():
            lines.append(f"  CUDA graphs of {name}: {count}, holding {held / 2**20:.0f} MiB")
        return "\n".join(lines)
