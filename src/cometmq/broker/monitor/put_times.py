"""Put latency as `brokerStatus` shows it: by range, quantiles, maximum.

Rules kept here:
- What was put in one go is counted in one go, each of its messages with the time of all: two additions and a
  search in a few bounds. With synchronous flush the time ends when the messages are on the disk.
- What is told is of the last minute that is over; in the first one, of what was so far.
- Apache's broker counts whole milliseconds, so that its first range holds everything below one.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import Final

_RANGES_MS: Final = (
    *((1, "[<=0ms]"), (10, "[0~10ms]"), (50, "[10~50ms]"), (100, "[50~100ms]"), (200, "[100~200ms]")),
    *((500, "[200~500ms]"), (1000, "[500ms~1s]"), (2000, "[1~2s]"), (3000, "[2~3s]"), (4000, "[3~4s]")),
    *((5000, "[4~5s]"), (10_000, "[5~10s]"), (None, "[10s~]")),
)
"""Apache's ranges, in the words that exporters read: the end of each, and its name."""
_BOUNDS_MS: Final = (
    *(0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 4, 5, 7, 10),
    *(15, 20, 30, 40, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 1500, 2000, 3000, 4000, 5000, 7000, 10_000),
)
"""Ends of narrower ranges, all of Apache's among them; from these the slow ones are found."""
_BOUNDS_S: Final = tuple(bound / 1000 for bound in _BOUNDS_MS)
MINUTE_MS: Final = 60_000


class PutTimes:
    """Times of puts; belongs to the event loop."""

    __slots__ = ("_counts", "_last", "_minute_began_ms", "longest_s")

    def __init__(self) -> None:
        self._counts = [0] * (len(_BOUNDS_S) + 1)
        self._last: list[int] | None = None
        self._minute_began_ms = 0
        self.longest_s = 0.0
        """Since the start."""

    def took(self, seconds: float, messages: int) -> None:
        """Messages were put together in this time."""
        self._counts[bisect_left(_BOUNDS_S, seconds)] += messages
        if seconds > self.longest_s:
            self.longest_s = seconds

    def tick(self, now_ms: int) -> None:
        """Begin the next minute if the last one is over; called about once a second."""
        if not self._minute_began_ms:
            self._minute_began_ms = now_ms
        elif now_ms - self._minute_began_ms >= MINUTE_MS:
            self._minute_began_ms = now_ms
            self._last, self._counts = self._counts, [0] * (len(_BOUNDS_S) + 1)

    @property
    def _told(self) -> list[int]:
        return self._counts if self._last is None else self._last

    def by_range(self) -> str:
        """How many messages were in each of Apache's ranges: `[<=0ms]:12 [0~10ms]:0 …`."""
        counts, start, texts = self._told, 0, []
        for end_ms, name in _RANGES_MS:
            end = len(counts) if end_ms is None else _BOUNDS_MS.index(end_ms) + 1
            texts.append(f"{name}:{sum(counts[start:end])} ")
            start = end
        return "".join(texts)

    def quantile_ms(self, share: float) -> float:
        """The time that this share of the messages did not exceed; 0 if there were none."""
        counts = self._told
        wanted = sum(counts) * share
        passed = 0.0
        for count, (below_ms, above_ms) in zip(counts, pairwise((0.0, *_BOUNDS_MS)), strict=False):
            if count and passed + count >= wanted:
                return below_ms + (above_ms - below_ms) * (wanted - passed) / count
            passed += count
        return self.longest_s * 1000 if counts[-1] else 0.0
