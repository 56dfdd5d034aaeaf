"""Latencies of millions of requests in a fixed amount of memory.

Up to 65 ms every microsecond has its own counter, so a percentile there is exact to the microsecond;
beyond that every millisecond has one, up to a minute. The load generator counts into `fine` by itself,
because a call for each answer would cost more than the answer, and calls `record` only for slow ones.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

FINE_US = 65_536
_COARSE_US = 1_000
_COARSE_COUNT = 60_000


def _zeros(count: int) -> array[int]:
    return array("Q", bytes(8 * count))


@dataclass(slots=True)
class LatencyHistogram:
    """Counts per microsecond, then per millisecond; the last counter also takes everything longer."""

    fine: array[int] = field(default_factory=lambda: _zeros(FINE_US))
    coarse: array[int] = field(default_factory=lambda: _zeros(_COARSE_COUNT))

    def record(self, latency_us: int) -> None:
        if latency_us < FINE_US:
            self.fine[latency_us] += 1
        else:
            self.coarse[min(latency_us // _COARSE_US, _COARSE_COUNT - 1)] += 1

    @property
    def count(self) -> int:
        return sum(self.fine) + sum(self.coarse)

    def percentile_us(self, share: float) -> int:
        """The latency that `share` of the requests did not exceed; 0 when nothing was recorded."""
        wanted = max(1.0, self.count * share)
        seen = 0
        for counts, width in ((self.fine, 1), (self.coarse, _COARSE_US)):
            for index, count in enumerate(counts):
                seen += count
                if count and seen >= wanted:
                    return index * width
        return 0
