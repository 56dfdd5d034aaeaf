"""Statistics of a consumer: pulls, listener calls and results of each topic, what is held of each queue.

Rules kept here:
- Counting costs an addition; rates come from totals that are noted every few seconds.
- How far a queue goes is what its broker said with the last pull; nobody asks for it.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.consumer_info import ConsumeStatus

_WINDOW_S: Final = 60.0
NOTE_EVERY_S: Final = 5.0


class TopicStatistics(msgspec.Struct, frozen=True):
    """What became of the messages of one topic; rates and times are those of the last minute."""

    consumed: int
    """Messages that are done, since the start."""
    failed: int
    """Deliveries after which messages come again, or become dead letters, since the start."""
    pulled: int
    """Messages that came from brokers, since the start."""
    consumed_per_s: float
    failed_per_s: float
    pulled_per_s: float
    consume_ms: float
    """The mean time of a call of the listener; 0 for a pull consumer."""
    pull_ms: float
    """The mean time of a pull, which includes waiting for messages."""


class QueueStatistics(msgspec.Struct, frozen=True):
    """What is held of one queue."""

    held_messages: int
    held_bytes: int | None
    """Messages that were pulled and are not done, and the bytes of their bodies; None for popped ones."""
    lag: int | None
    """Messages that are not done, as of the last pull; None if no broker has said yet."""


class ConsumerStatistics(msgspec.Struct, frozen=True):
    """What a consumer has done since its start, and what it holds."""

    topics: Mapping[str, TopicStatistics]
    """By topic; failed messages come back through the retry topic, `%RETRY%` and the group."""
    queues: Mapping[MessageQueue, QueueStatistics]
    running_listeners: int
    connections: int
    """Open connections of this client id, to brokers and name servers."""

    @property
    def held_messages(self) -> int:
        return sum(queue.held_messages for queue in self.queues.values())

    @property
    def held_bytes(self) -> int:
        return sum(queue.held_bytes or 0 for queue in self.queues.values())

    @property
    def lag(self) -> int:
        """Of all queues whose lag is known."""
        return sum(queue.lag or 0 for queue in self.queues.values())


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

    def topics(self, plain: Callable[[str], str]) -> dict[str, TopicStatistics]:
        """The totals and rates of all topics, under the names that the application knows."""
        now = time.monotonic()
        found: dict[str, TopicStatistics] = {}
        for topic, totals in self._topics.items():
            rates, name = _status(totals, now), plain(topic)
            this = TopicStatistics(
                totals.consumed,
                totals.failed,
                totals.pulled,
                rates.consume_ok_tps,
                rates.consume_failed_tps,
                rates.pull_tps,
                rates.consume_rt,
                rates.pull_rt,
            )
            # With a namespace, pulls are counted under the broker's name of the topic, results under this.
            found[name] = _sum(found[name], this) if name in found else this
        return found


def _sum(one: TopicStatistics, other: TopicStatistics) -> TopicStatistics:
    return TopicStatistics(
        *(getattr(one, name) + getattr(other, name) for name in TopicStatistics.__struct_fields__)
    )


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
