"""Which queue a message goes to.

Rules kept here:
- Queues take turns, from a random beginning. After a failure the turn goes to the next queue of another
  broker, if there is one.
- With latency faults switched on, brokers that are having a break are passed over, then those that cannot be
  reached; if that leaves nobody, it is plain turns again.
- A key always gives the same queue while the queues stay the same, and the same one as in Java.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from cometmq.client.producer.broker_latency import BrokerFaults
from cometmq.model.queue import MessageQueue
from cometmq.wire.java_hash import java_hash

_RANDOM_START: Final = 1_000_000

QueueSelector = Callable[[Sequence[MessageQueue], object, object], MessageQueue]
"""Chooses among the queues of a topic, given the message and an argument of the caller."""


class PublishTopic:
    """The queues of one topic, and whose turn it is."""

    __slots__ = ("_turn", "queues", "topic")

    def __init__(self, topic: str, queues: Sequence[MessageQueue]) -> None:
        self.topic = topic
        self.queues = queues
        self._turn = random.randrange(_RANDOM_START)

    def next_queue(self) -> MessageQueue:
        """Whose turn it is."""
        turn = self._turn
        self._turn = turn + 1
        return self.queues[turn % len(self.queues)]

    def queue_at(self, broker_name: str) -> MessageQueue | None:
        """The next queue of this broker; None if it has none."""
        return self._first(lambda queue: queue.broker_name == broker_name)

    def choose(self, last_failed: str | None, faults: BrokerFaults | None) -> MessageQueue:
        """The queue to try now, with the name of the broker that has just failed if one has."""
        if faults is not None:
            return self._choose_by_latency(last_failed, faults)
        if last_failed is None:
            return self.next_queue()
        return self._first(lambda queue: queue.broker_name != last_failed) or self.next_queue()

    def _choose_by_latency(self, last_failed: str | None, faults: BrokerFaults) -> MessageQueue:
        if last_failed is not None:
            self._turn = random.randrange(_RANDOM_START)

        def available(queue: MessageQueue) -> bool:
            return queue.broker_name != last_failed and faults.is_available(queue.broker_name)

        def reachable(queue: MessageQueue) -> bool:
            return queue.broker_name != last_failed and faults.is_reachable(queue.broker_name)

        return self._first(available) or self._first(reachable) or self.next_queue()

    def _first(self, wanted: Callable[[MessageQueue], bool]) -> MessageQueue | None:
        for _ in self.queues:
            queue = self.next_queue()
            if wanted(queue):
                return queue
        return None


def by_hash(queues: Sequence[MessageQueue], message: object, key: object) -> MessageQueue:
    """The selector that keeps messages of one key in one queue: by the key's hash, as Java computes it."""
    return queues[abs(java_hash(str(key))) % len(queues)]


def by_random(queues: Sequence[MessageQueue], message: object, key: object) -> MessageQueue:
    """The selector that takes any queue."""
    return random.choice(queues)
