"""Histograms: counts of measured values by range.

Rules kept here: one thread observes, by a search in a few bounds and two additions. Readers on other threads
copy the counts, which may lack the current observation.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """Counts of values by range; a value that is a bound belongs to the range below it."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        """Upper bounds of all ranges but the last."""
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0
        """The sum of all values."""

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value, `times` times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times
