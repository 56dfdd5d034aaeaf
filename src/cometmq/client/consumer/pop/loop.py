"""Pop loops: one for each queue or broker that a consumer pops, one request at a time.

Rules kept here:
- A broker says which queues its consumers pop. One that cannot, or that would have them pull, is popped as a
  whole: a broker hands each message to one consumer only, so nothing needs to be shared out.
- A queue is popped as long as its messages that are not acknowledged stay within the threshold.
- An error costs a pause, a busy broker a short one; the loop continues until its queue is dropped.
- A pop under way cannot be cancelled. The loop of a dropped queue waits for the response and gives the
  messages back. Messages that were popped before are finished, because nobody else has them.
- Messages whose tag is not subscribed to are acknowledged at once.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.client.consumer.pop.queues import PopQueue
from cometmq.client.consumer.pop.requests import PopPlan, PopReply, PopRequests
from cometmq.client.consumer.rebalance import Rebalancer
from cometmq.client.consumer.statistics import ConsumeStatistics
from cometmq.client.names import unwrap
from cometmq.model.errors import CometError, ResponseError
from cometmq.model.message import StoredMessage
from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.heartbeat import SubscriptionData
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from cometmq.client.consumer.pop.acks import PopAcks
    from cometmq.client.consumer.pop.consumption import PopConsumption
    from cometmq.client.instance.instance import ClientInstance

log = logging.getLogger("cometmq.client")

WHOLE_BROKER: Final = -1
_BUSY_PAUSE_S: Final = 0.02
_EMPTY_PAUSE_S: Final = 0.05
_PAUSED_S: Final = 1.0
_ATTEMPT_BYTES: Final = 16


@dataclass(eq=False, repr=False)
class PopRebalancer(Rebalancer):
    """Keeps the queues that one consumer pops up to date."""

    _pops: PopRequests

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
            return queue  # the queues of a static topic may be at different brokers
        return MessageQueue(queue.topic, queue.broker_name, WHOLE_BROKER)


@dataclass(eq=False, repr=False)
class PopLoops:
    """Pops the queues of one consumer."""

    _instance: ClientInstance
    _pops: PopRequests
    _plan: PopPlan
    _threshold: int
    _error_pause_s: float
    _subscription_of: Callable[[str], SubscriptionData | None]
    _acks: PopAcks
    _consumption: PopConsumption
    _statistics: ConsumeStatistics
    _namespace: str
    paused: bool = False

    def begin(self, pq: PopQueue) -> None:
        """Pop this queue until it is dropped."""
        self._instance.spawn(self._loop(pq))

    async def _loop(self, pq: PopQueue) -> None:
        attempt_id = self._new_attempt()
        while not pq.dropped:
            pq.last_pull_s = time.monotonic()
            if self.paused or pq.waiting > self._threshold:
                pq.flow_control_times += not self.paused
                await pq.wait_for_room(_PAUSED_S)
                continue
            try:
                pause_s = await self._pop(pq, attempt_id)
                attempt_id = self._new_attempt()
                if self._instance.troubles:
                    self._instance.troubles.over_at("popping from", pq.queue)
            except CometError as error:
                pause_s = self._pause_after(pq, error)
            except Exception:
                log.exception("popping %s failed", pq.queue)
                pause_s = self._error_pause_s
            if pause_s:
                await asyncio.sleep(pause_s)

    def _new_attempt(self) -> str | None:
        return secrets.token_hex(_ATTEMPT_BYTES) if self._plan.ordered else None

    def _pause_after(self, pq: PopQueue, error: CometError) -> float:
        if isinstance(error, ResponseError) and error.code == ResponseCode.FLOW_CONTROL:
            return _BUSY_PAUSE_S
        self._instance.troubles.met_at("popping from", pq.queue, error)
        return self._error_pause_s

    async def _pop(self, pq: PopQueue, attempt_id: str | None) -> float:
        """Pop once; returns the pause before the next time."""
        queue = pq.queue
        subscription = self._subscription_of(queue.topic)
        if subscription is None:  # no longer subscribed, and about to be dropped
            return self._error_pause_s
        began = time.monotonic()
        reply = await self._pops.pop(queue, subscription, self._plan, attempt_id)
        now = time.monotonic()
        pq.rest = reply.rest
        if reply.error is not None:
            log.error("a message of %s cannot be read, nor those after it: %s", queue, reply.error)
        if reply.messages:
            self._statistics.of(queue.topic).count_pull(len(reply.messages), now - began)
            pq.waiting += len(reply.messages)
            if pq.dropped:
                await self._consumption.give_back(pq, reply.messages, reply.handles)
            else:
                self._take(pq, reply, subscription, now + reply.invisible_ms / 1000)
            return 0.0
        if reply.crowded:
            return self._error_pause_s
        # A broker waits before an empty response; one that does not is not asked in a busy loop.
        return _EMPTY_PAUSE_S if now - began < _EMPTY_PAUSE_S else 0.0

    def _take(self, pq: PopQueue, reply: PopReply, subscription: SubscriptionData, expires_s: float) -> None:
        topic = unwrap(self._namespace, pq.queue.topic)
        messages, handles = [], []
        tags = subscription.tags_set
        for message, handle in zip(reply.messages, reply.handles, strict=True):
            if tags and message.tags not in tags:
                self._acks.add(pq, (handle,), expires_s)
            else:
                messages.append(_under(topic, message))
                handles.append(handle)
        if messages:
            self._consumption.submit(pq, messages, handles, expires_s)


def _under(topic: str, message: StoredMessage) -> StoredMessage:
    """The message under the topic that its sender named."""
    return message if message.topic == topic else msgspec.structs.replace(message, topic=topic)
