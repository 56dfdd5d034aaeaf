"""Statistics of a producer: messages sent and failed, attempts again, response times.

Rule kept here: counting a send costs an addition, and the time of only one request in eight is measured.
"""

from __future__ import annotations

from typing import Final

import msgspec

from cometmq.model.histogram import Histogram

MEASURED_MASK: Final = 7
"""A request whose number has only the last bit of these is measured."""
_STEP: Final = 1.25
_LEAST_S: Final = 0.000_1
_RANGES: Final = 60
"""Up to 52 s; a longer response time counts as that."""


class ProducerStatistics(msgspec.Struct, frozen=True):
    """What a producer has done since its start; the messages of a batch count one by one."""

    sent: int
    """Messages that a broker has stored."""
    failed: int
    """Messages whose send raised an error; messages that were sent one-way count nowhere."""
    retries: int
    """Attempts after the first, on the same or another broker."""
    send_ms: float
    """The mean time between a request and its response, of one request in eight."""
    send_ms_p99: float
    """99 of 100 of these took no longer; at most a quarter too high."""
    in_flight_messages: int
    in_flight_bytes: int
    """What waits for a response now, or for room."""
    connections: int
    """Open connections of this client id, to brokers and name servers."""


class SendStatistics:
    """The counters of one producer."""

    __slots__ = ("failed", "in_batches", "response_s", "retries", "stored")

    def __init__(self) -> None:
        self.stored = 0
        """Requests with a good response."""
        self.in_batches = 0
        """The messages in them after the first."""
        self.failed = 0
        self.retries = 0
        self.response_s = Histogram([_LEAST_S * _STEP**number for number in range(_RANGES)])

    def mean_ms(self) -> float:
        return self.response_s.total * 1000 / max(1, sum(self.response_s.counts))

    def p99_ms(self) -> float:
        """The upper bound of the range with the 99th percentile; 0 without any response."""
        counts, bounds = self.response_s.counts, self.response_s.bounds
        left = sum(counts) * 0.99
        for count, bound in zip(counts, (*bounds, bounds[-1]), strict=True):
            left -= count
            if left <= 0:
                return bound * 1000 if any(counts) else 0.0
        return bounds[-1] * 1000
