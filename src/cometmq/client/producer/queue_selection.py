"""Queue selection: which queue of a topic a message goes to.

Rules kept here:
- Queues are used round-robin from a random start. After a failure the next queue of another broker is used,
  if there is one.
- With `send_latency_fault_enable`, brokers on a break are skipped, then unreachable ones; if none is left,
  selection is round-robin again.
- A sharding key always selects the same queue while the queues stay the same, and the one that Java selects.
- A topic name is checked once, when its route is looked up. The route serves until it changes.
- Brokers see names and queues with the namespace, the application without it.
- The table of topics is bounded: a new topic replaces the oldest.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, TypedDict

from cometmq.client.instance.routes import Routes
from cometmq.client.names import check_topic, unwrap, wrap_topic
from cometmq.client.producer.broker_latency import BrokerFaults
from cometmq.model.errors import CallTimeoutError, MessageError, RouteNotFoundError
from cometmq.model.message import Message
from cometmq.model.names import NOT_FOR_CLIENTS
from cometmq.model.queue import MessageQueue
from cometmq.remoting.calls import never_sent
from cometmq.wire.java_hash import java_hash

_RANDOM_START: Final = 1_000_000

QueueSelector = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue]
"""Chooses among the queues of a topic, given the message and the `selector_arg` of the send."""


class SendOptions(TypedDict, total=False):
    """The keywords of `Producer.send`, for methods that pass them on."""

    timeout_s: float | None
    queue: MessageQueue | None
    selector: QueueSelector | None
    selector_arg: object


MAX_TOPICS: Final = 10_000


class PublishTopic:
    """The queues of one topic, used round-robin."""

    __slots__ = ("_turn", "queues", "topic")

    def __init__(self, topic: str, queues: Sequence[MessageQueue]) -> None:
        self.topic = topic
        self.queues = queues
        self._turn = random.randrange(_RANDOM_START)

    def next_queue(self) -> MessageQueue:
        """The next queue, round-robin."""
        turn = self._turn
        self._turn = turn + 1
        return self.queues[turn % len(self.queues)]

    def queue_at(self, broker_name: str) -> MessageQueue | None:
        """The next queue of this broker; None if it has none."""
        return self._first(lambda queue: queue.broker_name == broker_name)

    def choose(self, last_failed: str | None, faults: BrokerFaults | None) -> MessageQueue:
        """The queue to try now; `last_failed` is the name of the broker that has just failed, if any."""
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
    """A selector that keeps the messages of one key in one queue, by the key's hash as Java computes it."""
    return queues[abs(java_hash(str(key))) % len(queues)]


def by_random(queues: Sequence[MessageQueue], message: object, key: object) -> MessageQueue:
    """A selector that takes a random queue."""
    return random.choice(queues)


class PublishTopics:
    """The topics that a producer sends to."""

    routes: Routes
    """Set when the producer starts."""

    def __init__(self, namespace: str, template_queue_nums: int) -> None:
        self.known: dict[str, PublishTopic] = {}
        """By the name that the application uses."""
        self._namespace = namespace
        self._template_queue_nums = template_queue_nums

    async def find(self, name: str, deadline: float) -> PublishTopic:
        """The queues of a topic, looked up if they are not known yet."""
        known = self.known.get(name)
        if known is not None:
            return known
        check_topic(name)
        if name in NOT_FOR_CLIENTS:
            raise MessageError(f"topic {name} is the brokers' own; nobody else sends to it")
        topic = wrap_topic(self._namespace, name)
        try:
            async with asyncio.timeout_at(deadline):
                found = await self.routes.for_publishing(topic, self._template_queue_nums)
        except TimeoutError:
            late = CallTimeoutError(f"the route of topic {name} was not found in time")
            raise never_sent(late) from None
        if found is None:
            raise RouteNotFoundError(
                f"no name server knows topic {name}, and brokers do not make new topics by themselves; "
                "create the topic first"
            )
        if not found.publish:
            raise RouteNotFoundError(f"topic {name} has no queue that can be written to now")
        if len(self.known) >= MAX_TOPICS:
            del self.known[next(iter(self.known))]
        return self.known.setdefault(name, PublishTopic(topic, found.publish))

    def choose(
        self,
        topic: PublishTopic,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        selector_arg: object,
    ) -> MessageQueue | None:
        """The queue that a message has to go to; None for round-robin."""
        if queue is not None:
            if not isinstance(queue, MessageQueue):
                raise MessageError(
                    f"{queue!r} is no queue; producer.queues({message.topic!r}) has the queues"
                )
            if queue.topic not in (message.topic, topic.topic):
                raise MessageError(f"queue {queue} does not belong to topic {message.topic}")
            return MessageQueue(topic.topic, queue.broker_name, queue.queue_id)
        if selector is not None:
            chosen = selector([self.plain(each) for each in topic.queues], message, selector_arg)
            if not isinstance(chosen, MessageQueue):
                raise MessageError(f"the selector chose {chosen!r}, which is no queue")
            return MessageQueue(topic.topic, chosen.broker_name, chosen.queue_id)
        if message.sharding_key is not None:
            return by_hash(topic.queues, message, message.sharding_key)
        return None

    def plain(self, queue: MessageQueue) -> MessageQueue:
        """A queue as the application knows it."""
        if not self._namespace:
            return queue
        return MessageQueue(unwrap(self._namespace, queue.topic), queue.broker_name, queue.queue_id)

    def names(self) -> Collection[str]:
        """The topics as brokers know them."""
        return [topic.topic for topic in self.known.values()]

    def route_changed(self, topic: str) -> None:
        """Use the new queues of a topic."""
        for name, known in list(self.known.items()):
            if known.topic != topic:
                continue
            queues = self.routes.publish_queues(topic)
            if queues:
                known.queues = queues
            else:  # the next send looks it up again, and raises if that does not help
                del self.known[name]
