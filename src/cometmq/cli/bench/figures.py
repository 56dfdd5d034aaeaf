"""What a load measured: counts, latencies, failures by reason, and the processor time that it took.

Rules kept here:
- However long a load runs, its figures stay the same size: latencies are counted in ranges that are at most
  1.6 % wide, from a microsecond to weeks; failures are counted by reason, and there is a limit on reasons.
- Figures of several processes are put together by adding their counts, never their percentiles.
- Moments are those of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import accumulate
from typing import Final, TypeVar

import msgspec

from cometmq.model.histogram import Histogram

T = TypeVar("T")

MOST_REASONS: Final = 20
OTHERS: Final = "others"
"""Where failures are counted once there are so many reasons."""
MEGABYTE: Final = 1_000_000

_EXACT_US: Final = 128
_LONGEST_US: Final = 2**41


def _bounds() -> tuple[int, ...]:
    """Every microsecond at first; then 64 ranges until a latency is twice as long."""
    bounds = list(range(1, _EXACT_US))
    start = _EXACT_US
    while start < _LONGEST_US:
        bounds.extend(range(start, 2 * start, start // 64))
        start *= 2
    return tuple(bounds)


BOUNDS_US: Final = _bounds()


class Percentiles(msgspec.Struct, rename={"p999": "p99.9"}):
    """Latencies as they are shown, in milliseconds."""

    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0
    p999: float = 0.0
    max: float = 0.0
    mean: float = 0.0

    def cells(self) -> tuple[str, ...]:
        """As they stand in a table."""
        return tuple(map(milliseconds_text, (self.p50, self.p90, self.p99, self.p999, self.max)))


class Latencies(Histogram):
    """How long things took, in microseconds."""

    __slots__ = ("longest_us",)

    def __init__(self) -> None:
        super().__init__(BOUNDS_US)
        self.longest_us = 0

    def took(self, seconds: float, times: int = 1) -> None:
        """Count something that took so long, or so many at once; what ended before it began took no time."""
        microseconds = int(seconds * 1e6) if seconds > 0 else 0
        self.observe(microseconds, times)
        if microseconds > self.longest_us:
            self.longest_us = microseconds

    def add(self, other: Latencies) -> None:
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.total += other.total
        self.longest_us = max(self.longest_us, other.longest_us)

    def percentiles(self) -> Percentiles:
        """The upper end of the range that each share falls into, and what is known exactly."""
        count = sum(self.counts)
        if not count:
            return Percentiles()
        sums = list(accumulate(self.counts))

        def at(share: float) -> float:
            place = next(index for index, below in enumerate(sums) if below >= count * share)
            bound = self.bounds[place] if place < len(self.bounds) else self.longest_us
            return min(bound, self.longest_us) / 1000

        mean = round(self.total / count / 1000, 3)
        return Percentiles(at(0.5), at(0.9), at(0.99), at(0.999), self.longest_us / 1000, mean)


class Failure(msgspec.Struct):
    """How often something failed for a reason, and what was said the first time."""

    reason: str
    count: int = 0
    example: str = ""


class Tally(msgspec.Struct):
    """What a load has done so far."""

    messages: int = 0
    bytes: int = 0
    """Of bodies."""
    latencies: Latencies = msgspec.field(default_factory=Latencies)
    failures: dict[str, Failure] = msgspec.field(default_factory=dict)
    early: int = 0
    """Messages that were born after they arrived: the clocks of the machines differ."""
    begun_s: float | None = None
    ended_s: float = 0.0
    cpu_s: float = 0.0
    """Processor time of the clients."""

    @property
    def seconds(self) -> float:
        return 0.0 if self.begun_s is None else max(self.ended_s - self.begun_s, 0.0)

    @property
    def rate(self) -> float:
        """Messages a second; 0 if there was no time to measure it."""
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
    """The figures of several processes as those of one."""
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
    """The processor time that this process has used since a moment, until it is stopped."""

    def __init__(self) -> None:
        self._begun_s = time.process_time()
        self._used_s: float | None = None

    def stop(self) -> None:
        self._used_s = self.seconds()

    def seconds(self) -> float:
        return time.process_time() - self._begun_s if self._used_s is None else self._used_s


# Between processes.


def _plain(value: object) -> object:
    assert isinstance(value, Latencies)
    filled = [(index, count) for index, count in enumerate(value.counts) if count]
    return {"counts": filled, "total": value.total, "longest": value.longest_us}


class _PlainLatencies(msgspec.Struct):
    counts: list[tuple[int, int]]
    total: float
    longest: int


def _latencies(kind: type, value: object) -> Latencies:
    plain = msgspec.convert(value, _PlainLatencies)
    found = Latencies()
    for index, count in plain.counts:
        found.counts[index] = count
    found.total, found.longest_us = plain.total, plain.longest
    return found


ENCODER: Final = msgspec.json.Encoder(enc_hook=_plain)


def decoder_of(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Reads a structure that has figures in it."""
    return msgspec.json.Decoder(kind, dec_hook=_latencies)


# For people.


def milliseconds_text(value: float) -> str:
    """Three figures that mean something: `0.412`, `4.12`, `41.2`, `412`."""
    decimals = 3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{decimals}f}"


def progress_text(tally: Tally, rate: float) -> str:
    """How far a load is, in one line; `rate` is that of the last moment."""
    found = tally.latencies.percentiles()
    return (
        f"{tally.messages:,} messages, {rate:,.0f} a second, p50 {milliseconds_text(found.p50)} ms, "
        f"p99 {milliseconds_text(found.p99)} ms, {tally.failed:,} failed"
    )
