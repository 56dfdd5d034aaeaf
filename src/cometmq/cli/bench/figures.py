"""Figures of a load: counts, latency percentiles, failures by reason, processor time.

`cometmq bench` and the load generators of the repository's `bench/` use them.

Rules kept here:
- Figures have a fixed size, however long a load runs: latencies are counted in ranges at most 1.6 % wide,
  from a microsecond to weeks; failures are counted by reason, and the number of reasons is limited.
- Figures of several processes are added as counts, never as percentiles.
- Moments are those of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from typing import Annotated, Final

import msgspec

from cometmq.cli.common.output import Column

MOST_REASONS: Final = 20
OTHERS: Final = "others"
"""The reason of failures beyond `MOST_REASONS`."""

_EXACT_US: Final = 128
_LONGEST_US: Final = 2**41


def _bounds() -> tuple[int, ...]:
    """Each microsecond at first, then 64 ranges for each doubling."""
    bounds = list(range(1, _EXACT_US))
    start = _EXACT_US
    while start < _LONGEST_US:
        bounds.extend(range(start, 2 * start, start // 64))
        start *= 2
    return tuple(bounds)


BOUNDS_US: Final = _bounds()


class Percentiles(msgspec.Struct, rename={"p999": "p99.9"}):
    """Latencies in milliseconds."""

    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0
    p999: float = 0.0
    max: float = 0.0
    mean: float = 0.0

    def cells(self) -> tuple[str, ...]:
        """The cells of a table."""
        return tuple(map(milliseconds_text, (self.p50, self.p90, self.p99, self.p999, self.max)))


class Latencies(msgspec.Struct):
    """A histogram of latencies in microseconds."""

    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BOUNDS_US) + 1))
    total_us: int = 0
    longest_us: int = 0

    def took(self, seconds: float, times: int = 1) -> None:
        """Count a latency; a negative one, of clocks that differ, counts as none."""
        self.took_us(int(seconds * 1e6) if seconds > 0 else 0, times)

    def took_us(self, microseconds: int, times: int = 1) -> None:
        """Count a latency in microseconds."""
        self.counts[bisect_left(BOUNDS_US, microseconds)] += times
        self.total_us += microseconds * times
        if microseconds > self.longest_us:
            self.longest_us = microseconds

    def add(self, other: Latencies) -> None:
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.total_us += other.total_us
        self.longest_us = max(self.longest_us, other.longest_us)

    def percentiles(self) -> Percentiles:
        """Percentiles as upper bounds of their ranges; maximum and mean are exact."""
        count = sum(self.counts)
        if not count:
            return Percentiles()
        sums = list(accumulate(self.counts))

        def at(share: float) -> float:
            index = next(index for index, below in enumerate(sums) if below >= count * share)
            bound = BOUNDS_US[index] if index < len(BOUNDS_US) else self.longest_us
            return min(bound, self.longest_us) / 1000

        mean = round(self.total_us / count / 1000, 3)
        return Percentiles(at(0.5), at(0.9), at(0.99), at(0.999), self.longest_us / 1000, mean)


class Failure(msgspec.Struct):
    """The number of failures of one reason, and the first message."""

    reason: Annotated[str, Column("failure")]
    count: Annotated[int, Column("messages")] = 0
    example: Annotated[str, Column("for example")] = ""


class Tally(msgspec.Struct):
    """The figures of a load so far."""

    messages: int = 0
    bytes: int = 0
    """Of bodies."""
    latencies: Latencies = msgspec.field(default_factory=Latencies)
    failures: dict[str, Failure] = msgspec.field(default_factory=dict)
    early: int = 0
    """Messages that arrived before they were born: the clocks of the machines differ."""
    begun_s: float | None = None
    ended_s: float = 0.0
    cpu_s: float = 0.0
    """Processor time of the clients."""

    @property
    def seconds(self) -> float:
        return 0.0 if self.begun_s is None else max(self.ended_s - self.begun_s, 0.0)

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds if self.seconds else 0.0

    @property
    def byte_rate(self) -> float:
        return self.bytes / self.seconds if self.seconds else 0.0

    @property
    def cpu_per_million(self) -> float:
        return self.cpu_s / self.messages * 1e6 if self.messages else 0.0

    @property
    def failed(self) -> int:
        return sum(each.count for each in self.failures.values())

    def fail(self, reason: str, example: str, times: int = 1) -> None:
        """Count messages that failed."""
        if reason not in self.failures and len(self.failures) >= MOST_REASONS:
            reason = OTHERS
        failure = self.failures.setdefault(reason, Failure(reason, example=example))
        failure.count += times


def together(tallies: Iterable[Tally]) -> Tally:
    """The sum of the figures of several processes."""
    whole = Tally()
    for each in tallies:
        whole.messages += each.messages
        whole.bytes += each.bytes
        whole.latencies.add(each.latencies)
        whole.early += each.early
        whole.cpu_s += each.cpu_s
        whole.ended_s = max(whole.ended_s, each.ended_s)
        if each.begun_s is not None:
            whole.begun_s = each.begun_s if whole.begun_s is None else min(whole.begun_s, each.begun_s)
        for failure in each.failures.values():
            whole.fail(failure.reason, failure.example, failure.count)
    return whole


class CpuClock:
    """Processor time of this process from now until `stop`."""

    def __init__(self) -> None:
        self._begun_s = time.process_time()
        self._used_s: float | None = None

    def stop(self) -> None:
        self._used_s = self.seconds()

    def seconds(self) -> float:
        return time.process_time() - self._begun_s if self._used_s is None else self._used_s


# For people.


def milliseconds_text(value: float) -> str:
    """Three significant digits: `0.412`, `4.12`, `41.2`, `412`."""
    decimals = 3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{decimals}f}"


def progress_text(tally: Tally, rate: float) -> str:
    """One line of progress; `rate` is that of the last second."""
    found = tally.latencies.percentiles()
    return (
        f"{tally.messages:,} messages, {rate:,.0f} a second, p50 {milliseconds_text(found.p50)} ms, "
        f"p99 {milliseconds_text(found.p99)} ms, {tally.failed:,} failed"
    )
