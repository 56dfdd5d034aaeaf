"""How often something measured fell into which range.

Rules kept here: observing is a search in a few bounds and two additions, and belongs to one thread; whoever
reads from another takes a copy of the counts, which may lack what is being observed at that moment.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """Counts of values by range; a value that is a bound belongs to the range below it."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        """The upper ends of the ranges but the last one, which has none."""
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0
        """All values together."""

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value, or so many of the same."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times
