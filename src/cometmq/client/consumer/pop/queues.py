"""Queues of a pop consumer: the messages that it holds, and what was received with them."""

from __future__ import annotations

from collections.abc import Callable

from cometmq.client.consumer.process_queue import ProcessQueue
from cometmq.client.consumer.statistics import QueueStatistics
from cometmq.model.queue import MessageQueue


class PopQueue(ProcessQueue):
    """The popped messages of one queue, or of one broker."""

    def __init__(self, queue: MessageQueue) -> None:
        super().__init__(queue)
        self.waiting = 0
        """The number of popped messages that are neither acknowledged nor given back."""
        self.rest: int | None = None
        """The messages that the broker had left after the last pop."""

    def settled(self, count: int) -> None:
        """Count messages that are acknowledged, given back, or lost."""
        self.waiting -= count
        self.made_room()

    def statistics(self) -> QueueStatistics:
        """What is held, and how much is left."""
        lag = None if self.rest is None else self.rest + self.waiting
        return QueueStatistics(self.waiting, None, lag)


class PopQueues:
    """The pop queues of a consumer, by queue."""

    def __init__(self, begin: Callable[[PopQueue], None]) -> None:
        self.table: dict[MessageQueue, PopQueue] = {}
        self._begin = begin

    async def apply(self, topic: str, wanted: set[MessageQueue]) -> bool:
        """Pop exactly these queues of a topic."""
        for queue in [queue for queue in self.table if queue.topic == topic and queue not in wanted]:
            self.table.pop(queue).drop()
        for queue in sorted(wanted - self.table.keys()):
            pq = self.table[queue] = PopQueue(queue)
            self._begin(pq)
        return True

    def drop_all(self) -> None:
        """Pop nothing more."""
        for pq in self.table.values():
            pq.drop()
