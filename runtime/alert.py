"""One event for the operator: logged, at a bounded rate, and given to a callback."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

logger = logging.getLogger("tcbuild.runtime")

EVERY_SECONDS: Final = 60.0  # at most one line for the same kind of miss
MAX_KINDS: Final = 256  # of misses that are told apart


@dataclass(frozen=True, kw_only=True, slots=True)
class Alert:
    """A call was not answered by a compiled variant, or not as it was built to be.

    Attributes:
        model: name of the artifact's model.
        kind: "miss", or "trouble": a variant answers, slower than it should.
        guards: what refused: `ids.size(0)`; of trouble, what it is with: `cuda_graph`. Alerts are
            counted and rate-limited by it.
        reason: one line with each of these guards and both of its values; of trouble, what happened.
        served_by: "fallback module", "embedded graph", or "nothing": the call raised.
        count: how many there were of these so far.
    """

    model: str
    kind: str = "miss"
    guards: str
    reason: str
    served_by: str
    count: int

    def __str__(self) -> str:
        told = f"{self.model}: {self.kind}, served by {self.served_by}"
        return f"{told}: {self.reason} (seen {self.count}x)"


class Alerter:
    """Sends alerts: each to the callback, and at most one a minute and kind of miss to the log.

    Args:
        callback: called with each alert, in the thread of the call; what it raises is logged.
    """

    def __init__(self, model: str, callback: Callable[[Alert], None] | None = None) -> None:
        self._model = model
        self._callback = callback
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._troubles: dict[str, int] = {}
        self._logged: dict[tuple[str, str], float] = {}

    def miss(self, guards: str, reason: str, served_by: str) -> None:
        """Tell the operator of one miss."""
        self._tell("miss", guards, reason, served_by, self._counts)

    def trouble(self, what: str, reason: str, served_by: str) -> None:
        """Tell the operator that a variant answers, but not as it was built to."""
        self._tell("trouble", what, reason, served_by, self._troubles)

    def _tell(
        self, kind: str, guards: str, reason: str, served_by: str, counts: dict[str, int]
    ) -> None:
        with self._lock:
            key = guards if guards in counts or len(counts) < MAX_KINDS else "other"
            counts[key] = count = counts.get(key, 0) + 1
            now = time.monotonic()
            due = now - self._logged.get((kind, key), -EVERY_SECONDS) >= EVERY_SECONDS
            if due:
                self._logged[kind, key] = now
        alert = Alert(
            model=self._model,
            kind=kind,
            guards=key,
            reason=reason,
            served_by=served_by,
            count=count,
        )
        if due:
            logger.warning("%s", alert)
        if self._callback is not None:
            try:
                self._callback(alert)
            except Exception:
                logger.exception("the on_alert callback failed")

    def counts(self) -> dict[str, int]:
        """Return how many misses there were by what refused; past 256 kinds, under "other"."""
        with self._lock:
            return dict(self._counts)
