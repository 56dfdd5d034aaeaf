"""Saying now and then what happens again and again, so that nobody can fill the log with it."""

from __future__ import annotations

from time import monotonic
from typing import Final

PERIOD_S: Final = 10.0


class Rarely:
    """Counts something, and tells when it is time to say so."""

    def __init__(self, period_s: float = PERIOD_S) -> None:
        self._period_s = period_s
        self._count = 0
        self._next_s = 0.0

    def count(self) -> int:
        """It happened once more; how often since it was said last if it is to be said now, 0 otherwise."""
        self._count += 1
        now_s = monotonic()
        if now_s < self._next_s:
            return 0
        self._next_s = now_s + self._period_s
        count, self._count = self._count, 0
        return count
