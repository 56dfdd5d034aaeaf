"""The pop loops of a consumer: one for each queue or broker that it pops, one request at a time.

Rules kept here:
- A queue is popped as long as what is held of it and not acknowledged stays within its threshold.
- Whatever a broker answers, or does not, the loop goes on, unless the queue was dropped: an error costs a
  pause, a busy broker a short one.
- A pop that is under way cannot be taken back. The loop of a dropped queue lives on until its answer is
  there, and gives back what it brings.
- Messages with a tag that nobody asked for are acknowledged at once.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.client.consumer.consume_statistics import ConsumeStatistics
from cometmq.client.consumer.pop.acks import PopAcks
from cometmq.client.consumer.pop.consumption import PopConsumption
from cometmq.client.consumer.pop.queues import PopQueue
from cometmq.client.consumer.pop.requests import PopCalls, PopPlan, PopReply
from cometmq.client.names import unwrap
from cometmq.model.errors import CometError, ResponseError
from cometmq.model.message import StoredMessage
from cometmq.wire.bodies.heartbeat import SubscriptionData
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from cometmq.client.instance.instance import ClientInstance

log = logging.getLogger("cometmq.client")

_BUSY_PAUSE_S: Final = 0.02
_EMPTY_PAUSE_S: Final = 0.05
_PAUSED_S: Final = 1.0
_ATTEMPT_BYTES: Final = 16


class PopLoops:
    """Pops the queues of one consumer."""

    def __init__(
        self,
        instance: ClientInstance,
        pops: PopCalls,
        plan: PopPlan,
        threshold: int,
        error_pause_s: float,
        subscription_of: Callable[[str], SubscriptionData | None],
        acks: PopAcks,
        consumption: PopConsumption,
        statistics: ConsumeStatistics,
        namespace: str,
    ) -> None:
        self._instance = instance
        self._pops = pops
        self._plan = plan
        self._threshold = threshold
        self._error_pause_s = error_pause_s
        self._subscription_of = subscription_of
        self._acks = acks
        self._consumption = consumption
        self._statistics = statistics
        self._namespace = namespace
        self.paused = False

    def begin(self, pq: PopQueue) -> None:
        """Pop this queue until it is dropped."""
        self._instance.spawn(self._loop(pq))

    async def _loop(self, pq: PopQueue) -> None:
        attempt_id = self._new_attempt()
        while not pq.dropped:
            pq.last_pull_s = time.monotonic()
            if self.paused or pq.waiting > self._threshold:
                pq.held_back_times += not self.paused
                await pq.wait_for_room(_PAUSED_S)
                continue
            try:
                pause_s = await self._pop(pq, attempt_id)
                attempt_id = self._new_attempt()
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
        log.warning("popping %s failed: %s", pq.queue, error)
        return self._error_pause_s

    async def _pop(self, pq: PopQueue, attempt_id: str | None) -> float:
        """Pop once; the answer is how long to wait before the next time."""
        queue = pq.queue
        subscription = self._subscription_of(queue.topic)
        if subscription is None:  # no longer subscribed to, and about to be dropped
            return self._error_pause_s
        began = time.monotonic()
        reply = await self._pops.pop(queue, subscription, self._plan, attempt_id)
        now = time.monotonic()
        if reply.error is not None:
            log.error("a message of %s cannot be read, nor those behind it: %s", queue, reply.error)
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
        # A broker waits before it says that it has nothing; one that does not is not asked all the time.
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
