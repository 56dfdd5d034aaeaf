"""The topics that a producer sends to.

Rules kept here:
- A topic's name is checked once, when its route is looked for; what is found serves until the route changes.
- Names and queues are wrapped in the namespace towards brokers and come without it to the application.
- A table of topics is bounded: one more takes the place of the one that was first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from cometmq.client.instance.routes import Routes
from cometmq.client.names import check_topic, unwrap, wrap_topic
from cometmq.client.producer.queue_selection import PublishTopic, QueueSelector, by_hash
from cometmq.model.errors import CallTimeoutError, MessageError, RouteNotFoundError
from cometmq.model.message import Message
from cometmq.model.names import NOT_FOR_CLIENTS
from cometmq.model.queue import MessageQueue

MAX_TOPICS: Final = 10_000


class PublishTopics:
    """Finds topics, and the queues that messages are meant for."""

    routes: Routes
    """Set when the client instance is there."""

    def __init__(self, namespace: str, template_queue_nums: int) -> None:
        self.known: dict[str, PublishTopic] = {}
        """What was found, by the name that the application uses."""
        self._namespace = namespace
        self._template_queue_nums = template_queue_nums

    async def find(self, name: str, deadline: float) -> PublishTopic:
        """The queues of a topic; asked for if they are not known yet."""
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
            late.maybe_applied = False
            raise late from None
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
        """The queue that a message has to go to; None if any will do."""
        if queue is not None:
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
            else:  # the next send asks again, and says what is wrong if that does not help
                del self.known[name]
