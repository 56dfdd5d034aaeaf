"""Rate-limited logging of repeated events, so that nobody can fill the log."""

from __future__ import annotations

from time import monotonic
from typing import Final

PERIOD_S: Final = 10.0


class Rarely:
    """Counts an event, and tells when to log it."""

    def __init__(self, period_s: float = PERIOD_S) -> None:
        self._period_s = period_s
        self._count = 0
        self._next_s = 0.0

    def count(self) -> int:
        """Count the event; returns the number since the last log line if it is time for one, else 0."""
        self._count += 1
        now_s = monotonic()
        if now_s < self._next_s:
            return 0
        self._next_s = now_s + self._period_s
        count, self._count = self._count, 0
        return count
