"""Rates of a broker: messages in and out a second, over 10 s, 1 min and 10 min.

A rate over a span is empty until the broker has run for that long, as RocketMQ's tools know it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Final

import msgspec

from cometmq.broker.monitor.counters import Traffic
from cometmq.broker.timers.service import TimerService
from cometmq.ports.clock import Clock

SAMPLE_S: Final = 1.0
_SPANS_S: Final = (10, 60, 600)
_DAY_MS: Final = 86_400_000


class _Sample(msgspec.Struct, frozen=True):
    """The counters at a moment."""

    at_ms: int
    put: int
    found: int
    missed: int
    got: int
    timers_set: int
    timers_delivered: int


class Rates:
    """How many messages a second went in and out, over the last seconds and minutes."""

    def __init__(self, clock: Clock, traffic: Traffic, timers: TimerService) -> None:
        self._traffic = traffic
        self._clock = clock
        self._timers = timers
        self._samples: deque[_Sample] = deque(maxlen=_SPANS_S[-1] + 1)
        self.day = 0
        self.put_total_yesterday = self.put_total_today = self.got_total_yesterday = self.got_total_today = 0

    def sample(self) -> None:
        """Note the counters; called once a second."""
        counters, now_ms = self._traffic, self._clock.now_ms()
        self._samples.append(
            _Sample(
                self._clock.monotonic_ms(),
                counters.put_messages,
                counters.found_pulls,
                counters.missed_pulls,
                counters.got_messages,
                self._timers.enqueuer.taken,
                self._timers.delivery.delivered,
            )
        )
        self._traffic.put_times.tick(self._samples[-1].at_ms)
        if now_ms // _DAY_MS != self.day:
            if self.day:
                self.put_total_yesterday = self.put_total_today
                self.got_total_yesterday = self.got_total_today
                self.put_total_today, self.got_total_today = counters.put_messages, counters.got_messages
            self.day = now_ms // _DAY_MS

    def texts(self) -> dict[str, str]:
        """The rates over ten seconds, a minute and ten minutes, under RocketMQ's names."""
        found, missed = self._rates(attrgetter("found")), self._rates(attrgetter("missed"))
        total = [(a or 0.0) + (b or 0.0) for a, b in zip(found, missed, strict=True)]
        return {
            "putTps": _joined(self._rates(attrgetter("put"))),
            "getFoundTps": _joined(found),
            "getMissTps": _joined(missed),
            "getTotalTps": _joined(total),
            "getTransferredTps": _joined(self._rates(attrgetter("got"))),
            "timerEnqueueTps": str(self._over(attrgetter("timers_set"), _SPANS_S[0]) or 0.0),
            "timerDequeueTps": str(self._over(attrgetter("timers_delivered"), _SPANS_S[0]) or 0.0),
        }

    def _rates(self, counter: Callable[[_Sample], int]) -> list[float | None]:
        return [self._over(counter, span_s) for span_s in _SPANS_S]

    def _over(self, counter: Callable[[_Sample], int], span_s: int) -> float | None:
        samples = self._samples
        if len(samples) <= span_s:
            return None
        first, last = samples[-1 - span_s], samples[-1]
        return (counter(last) - counter(first)) * 1000 / max(last.at_ms - first.at_ms, 1)


def _joined(rates: Iterable[float | None]) -> str:
    return " ".join("" if rate is None else str(rate) for rate in rates)
