"""Statistics of a consumer: pulls, listener calls and results of each topic.

Rule kept here: counting costs an addition; rates come from totals that are noted every few seconds.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from typing import Final

from cometmq.wire.bodies.consumer_info import ConsumeStatus

_WINDOW_S: Final = 60.0
NOTE_EVERY_S: Final = 5.0


class TopicTotals:
    """Counters of one topic."""

    __slots__ = ("call_ms", "calls", "consumed", "failed", "notes", "pull_ms", "pulled", "pulls")

    def __init__(self) -> None:
        self.pulls = 0
        self.pulled = 0
        self.pull_ms = 0.0
        self.calls = 0
        self.call_ms = 0.0
        self.consumed = 0
        self.failed = 0
        self.notes: deque[tuple[float, tuple[float, ...]]] = deque([(time.monotonic(), (0,) * 7)])

    def count_pull(self, messages: int, seconds: float) -> None:
        self.pulls += 1
        self.pulled += messages
        self.pull_ms += seconds * 1000

    def count_call(self, done: int, seconds: float) -> None:
        """Count one call of a listener, and the messages that are done with it."""
        self.calls += 1
        self.call_ms += seconds * 1000
        self.consumed += done

    def count_results(self, done: int, failed: int) -> None:
        """Count more messages of a call that was counted."""
        self.consumed += done
        self.failed += failed

    def totals(self) -> tuple[float, ...]:
        return self.pulls, self.pulled, self.pull_ms, self.calls, self.call_ms, self.consumed, self.failed

    def note(self, now: float) -> None:
        if now - self.notes[-1][0] >= NOTE_EVERY_S:
            self.notes.append((now, self.totals()))
        while len(self.notes) > 1 and now - self.notes[0][0] > _WINDOW_S:
            self.notes.popleft()


class ConsumeStatistics:
    """Statistics of one consumer."""

    def __init__(self) -> None:
        self._topics: defaultdict[str, TopicTotals] = defaultdict(TopicTotals)

    def of(self, topic: str) -> TopicTotals:
        return self._topics[topic]

    def note(self) -> None:
        """Note the totals; call it every few seconds."""
        now = time.monotonic()
        for totals in self._topics.values():
            totals.note(now)

    def status(self) -> dict[str, ConsumeStatus]:
        """The rates of all topics."""
        now = time.monotonic()
        return {topic: _status(totals, now) for topic, totals in self._topics.items()}


def _status(totals: TopicTotals, now: float) -> ConsumeStatus:
    began, before = totals.notes[0]
    seconds = max(now - began, 0.001)
    pulls, pulled, pull_ms, calls, call_ms, consumed, failed = (
        after - earlier for after, earlier in zip(totals.totals(), before, strict=True)
    )
    return ConsumeStatus(
        pull_rt=pull_ms / pulls if pulls else 0.0,
        pull_tps=pulled / seconds,
        consume_rt=call_ms / calls if calls else 0.0,
        consume_ok_tps=consumed / seconds,
        consume_failed_tps=failed / seconds,
        consume_failed_msgs=int(failed),
    )
