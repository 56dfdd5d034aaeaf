"""What a pop consumer pops: whole brokers, or queues where brokers share them out.

Rules kept here:
- A broker says what its consumers pop. One that cannot, or that would have them pull, is popped as a whole:
  brokers hand a message to one consumer only, so that nothing needs to be shared out.
- What is no longer popped is let go of when nothing more of it is under way; messages that are held are
  finished all the same, as nobody else has them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from cometmq.client.consumer.broker_calls import QueueCalls
from cometmq.client.consumer.pop.requests import PopCalls
from cometmq.client.consumer.process_queue import ProcessQueue
from cometmq.client.consumer.rebalance import Apply, Rebalancer
from cometmq.client.consumer.settings import ConsumerSettings
from cometmq.model.queue import MessageQueue

if TYPE_CHECKING:
    from cometmq.client.instance.instance import ClientInstance

WHOLE_BROKER: Final = -1


class PopQueue(ProcessQueue):
    """What is held of one queue, or of one broker."""

    __slots__ = ("waiting",)

    def __init__(self, queue: MessageQueue) -> None:
        super().__init__(queue)
        self.waiting = 0
        """How many messages were popped and are neither acknowledged nor given back."""

    def settled(self, count: int) -> None:
        """So many messages are acknowledged, given back, or lost."""
        self.waiting -= count
        self.made_room()


class PopQueues:
    """The table of a consumer's pop queues."""

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


class PopRebalancer(Rebalancer):
    """Keeps up to date what one consumer pops."""

    def __init__(
        self,
        instance: ClientInstance,
        calls: QueueCalls,
        pops: PopCalls,
        group: str,
        settings: ConsumerSettings,
        topics: Callable[[], Collection[str]],
        apply: Apply,
    ) -> None:
        super().__init__(instance, calls, group, settings, topics, apply)
        self._pops = pops

    async def _queues_of(self, topic: str) -> set[MessageQueue]:
        routes = self._instance.routes
        await routes.of(topic)
        queues = routes.subscribe_queues(topic)
        if not queues:
            return set()  # a topic that does not exist yet
        assigned = await self._pops.assignment(topic, self._settings.strategy.name)
        return {self._whole_broker(queue) for queue in queues} if assigned is None else assigned

    def _whole_broker(self, queue: MessageQueue) -> MessageQueue:
        if self._instance.routes.broker_of(queue) != queue.broker_name:
            return queue  # of a static topic, whose queues may each be at another broker
        return MessageQueue(queue.topic, queue.broker_name, WHOLE_BROKER)
