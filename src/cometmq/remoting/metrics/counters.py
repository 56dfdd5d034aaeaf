"""Counters of an endpoint by request code: plain integers on the hot path.

Unknown codes are counted together, so that a peer cannot grow the table by inventing codes. Latencies are
counted by range; those of deferred answers apart, because most of theirs is waiting. These are dataclasses:
counting in one costs a fraction of counting in a struct.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

UNKNOWN_CODE = -1
LATENCY_BOUNDS_S: Final = (0.001, 0.003, 0.005, 0.007, 0.01, 0.1, 1.0, 2.0, 3.0)
"""Upper bounds of the latency ranges, as in RocketMQ; the last range has none."""


def _no_latencies() -> list[int]:
    return [0] * (len(LATENCY_BOUNDS_S) + 1)


@dataclass(slots=True)
class AnswerTimes:
    """How long answers with one code took."""

    latencies: list[int] = field(default_factory=_no_latencies)
    seconds: float = 0.0

    def count(self, seconds: float, times: int = 1) -> None:
        self.latencies[bisect_left(LATENCY_BOUNDS_S, seconds)] += times
        self.seconds += seconds * times


@dataclass(slots=True)
class CodeMetrics:
    """Requests of one code."""

    requests: int = 0
    oneways: int = 0
    seconds: float = 0.0
    """Time from the start of the handler to its answer, summed."""
    longest_seconds: float = 0.0
    failures: dict[int, int] = field(default_factory=dict)
    """Answers by response code, without successes."""
    latencies: list[int] = field(default_factory=_no_latencies)
    """Successes by range of `LATENCY_BOUNDS_S`."""
    failure_times: dict[int, AnswerTimes] = field(default_factory=dict)
    """Times of answers with other response codes."""
    late_times: dict[int, AnswerTimes] = field(default_factory=dict)
    """Times of deferred answers, by response code."""
    held_times: dict[int, AnswerTimes] = field(default_factory=dict)
    """Times of answers to requests that waited for a message, by response code."""
    running: int = 0
    """Handlers that have not answered yet."""

    def count_failure(self, code: int, seconds: float | None = None) -> None:
        """Count an answer that is no success, and its time, if known."""
        self.failures[code] = self.failures.get(code, 0) + 1
        if seconds is not None:
            _times_of(self.failure_times, code).count(seconds)

    def count_late(self, code: int, seconds: float, *, is_held: bool = False, times: int = 1) -> None:
        """Count the time of one or more deferred answers."""
        _times_of(self.held_times if is_held else self.late_times, code).count(seconds, times)


def _times_of(table: dict[int, AnswerTimes], code: int) -> AnswerTimes:
    times = table.get(code)
    if times is None:
        times = table[code] = AnswerTimes()
    return times


@dataclass(slots=True)
class RemotingMetrics:
    """Counters of one endpoint."""

    codes: dict[int, CodeMetrics] = field(default_factory=dict)
    connections: int = 0
    accepted: int = 0
    refused: int = 0
    closed: dict[str, int] = field(default_factory=dict)
    """Closed connections by reason."""
    bytes_in: int = 0
    bytes_out: int = 0
    unreadable: int = 0
    """Frames whose header could not be read."""
    unmatched: int = 0
    """Answers that nobody waited for, mostly because their call had timed out."""
    running: int = 0
    """Handlers that have not answered yet."""

    def of(self, code: int) -> CodeMetrics:
        metrics = self.codes.get(code)
        if metrics is None:
            metrics = self.codes[code] = CodeMetrics()
        return metrics

    def count_closed(self, reason: str) -> None:
        self.closed[reason] = self.closed.get(reason, 0) + 1
