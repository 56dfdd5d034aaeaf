"""Numbers that only grow, and how they grew lately.

Rules kept here:
- Samples are taken every ten seconds, ten minutes and hour, and kept for a minute, an hour and a day, as
  RocketMQ does. A rate is that of the span between the oldest and the newest sample, so it is 0 until the
  first sample and sinks to 0 a while after the last message.
- A number that has been sampled for a day takes about one and a half kilobytes.
"""

from __future__ import annotations

from array import array
from typing import Final

from cometmq.wire.bodies.stats import BrokerStatsData, BrokerStatsItem

_MINUTE_SAMPLES: Final = 7
_HOUR_SAMPLES: Final = 7
_DAY_SAMPLES: Final = 25
_TICKS_PER_HOUR_SAMPLE: Final = 60
_TICKS_PER_DAY_SAMPLE: Final = 360
_PARTS: Final = 3
"""A sample is a moment, and value and times then."""


class Window:
    """The samples of one span of time."""

    __slots__ = ("_interval_ms", "_most", "_samples")

    def __init__(self, interval_ms: int, most: int) -> None:
        self._interval_ms = interval_ms
        self._most = most
        self._samples = array("q")
        """One behind the other, as there are many windows."""

    def add(self, now_ms: int, value: int, times: int) -> None:
        samples = self._samples
        if not samples:
            samples.extend((now_ms - self._interval_ms, 0, 0))
        samples.extend((now_ms, value, times))
        if len(samples) > self._most * _PARTS:
            del samples[:_PARTS]

    def summary(self) -> BrokerStatsItem:
        if not self._samples:
            return BrokerStatsItem()
        first_ms, first_value, first_times = self._samples[:_PARTS]
        last_ms, value, times = self._samples[-_PARTS:]
        amount, adds, elapsed_ms = value - first_value, times - first_times, last_ms - first_ms
        return BrokerStatsItem(
            sum=amount,
            tps=amount * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0,
            avgpt=amount / adds if adds else 0.0,
        )


class Series:
    """A number that only grows, and how it grew lately."""

    __slots__ = ("day", "hour", "minute", "times", "value")

    def __init__(self) -> None:
        self.value = 0
        self.times = 0
        """How often something was added."""
        self.minute = Window(10_000, _MINUTE_SAMPLES)
        self.hour = Window(600_000, _HOUR_SAMPLES)
        self.day = Window(3_600_000, _DAY_SAMPLES)

    def add(self, amount: int) -> None:
        self.value += amount
        self.times += 1

    def sample(self, now_ms: int, tick: int) -> None:
        self.minute.add(now_ms, self.value, self.times)
        if tick % _TICKS_PER_HOUR_SAMPLE == 0:
            self.hour.add(now_ms, self.value, self.times)
        if tick % _TICKS_PER_DAY_SAMPLE == 0:
            self.day.add(now_ms, self.value, self.times)

    def sample_as(self, now_ms: int, tick: int, value: int, times: int) -> None:
        """The same of a number that is counted elsewhere."""
        self.value, self.times = value, times
        self.sample(now_ms, tick)

    def summary(self) -> BrokerStatsData:
        return BrokerStatsData(self.minute.summary(), self.hour.summary(), self.day.summary())
