"""The pull consumer: the application polls for messages, in asyncio.

Rules kept here:
- It either shares topics with its group (`subscribe`) or reads the queues that it is given (`assign`), never
  both.
- Messages are finished when the application asks for more: with the next poll, or the next turn of a loop
  over the consumer. With `auto_commit`, what is finished is committed every few seconds and at the end; so is
  the last poll, unless the block ended with an error.
- `pull` reads a queue at an offset and touches none of this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import datetime
from typing import Generic, Unpack

from cometmq.client.consumer.base import ConsumerBase
from cometmq.client.consumer.lite_pull.engine import PullEngine
from cometmq.client.consumer.lite_pull.message_loop import MessageLoop
from cometmq.client.consumer.pull_request import PullKind, PullReply
from cometmq.client.consumer.rebalance import RebalanceListener
from cometmq.client.consumer.send_back import SendBack
from cometmq.client.consumer.settings import PullOptions, PullSettings
from cometmq.client.instance.instance import ClientInstance
from cometmq.client.names import wrap_topic
from cometmq.client.options import documented
from cometmq.client.serializer import Serializer, with_value
from cometmq.client.settings import ServiceState, settings_of
from cometmq.client.subscription import Expression, subscription_of
from cometmq.client.trace.records import ConsumeOutcome
from cometmq.model.errors import ClientError, RouteNotFoundError
from cometmq.model.message import StoredMessage, V
from cometmq.model.queue import MessageQueue
from cometmq.model.times import time_ms
from cometmq.ports.clock import SystemClock
from cometmq.wire.bodies.consumer_info import ConsumeDirectlyResult
from cometmq.wire.bodies.heartbeat import ALL, ConsumeType, SubscriptionData
from cometmq.wire.codes import ResponseCode


@documented(PullSettings, ("serializer", "rebalance_listener"))
class PullConsumer(ConsumerBase, Generic[V]):
    """Reads messages when it is asked to."""

    consume_type = ConsumeType.CONSUME_ACTIVELY
    _engine: PullEngine | None

    def __init__(
        self,
        group: str,
        settings: PullSettings | None = None,
        *,
        serializer: Serializer[V] | None = None,
        rebalance_listener: RebalanceListener | None = None,
        **options: Unpack[PullOptions],
    ) -> None:
        self.settings = settings_of(PullSettings, settings, options, type(self))
        super().__init__(group, self.settings, rebalance_listener)
        self._serializer = serializer
        self._assigned: dict[str, SubscriptionData] = {}
        self._send_back: SendBack
        self._stopping = asyncio.Lock()

    # Subscriptions and assignment.

    async def subscribe(self, topic: str, expression: Expression = ALL) -> None:
        """Share a topic with the other members of the group."""
        if self._assigned:
            raise ClientError("this consumer has queues assigned to it; it cannot share topics as well")
        first = not self._subscriptions
        self._add_subscription(topic, expression)
        if self._engine is not None:
            await self._announce(self._running_instance())
            if first:
                self._engine.start_sharing()
            self._engine.rebalancer.trigger()

    async def assign(self, queues: Collection[MessageQueue], expression: Expression = ALL) -> None:
        """Read exactly these queues, whatever other members of the group read."""
        if self._subscriptions:
            raise ClientError("this consumer shares topics; it cannot have queues assigned as well")
        engine, instance = self._running(), self._running_instance()
        inner = [self._wrapped(queue) for queue in queues]
        self._assigned = {
            queue.topic: subscription_of(queue.topic, expression, SystemClock().now_ms()) for queue in inner
        }
        for topic in self._assigned:
            await instance.routes.of(topic)
        await instance.heartbeats.send_to_all()
        await engine.assign(inner)

    def assignment(self) -> set[MessageQueue]:
        """The queues that are read now."""
        engine = self._running()
        return {self._plain(queue) for queue in engine.queues.table}

    async def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic."""
        instance = self._running_instance()
        wrapped = wrap_topic(self._namespace, topic)
        await instance.routes.refresh(wrapped)
        queues = instance.routes.subscribe_queues(wrapped)
        if not queues:
            raise RouteNotFoundError(f"topic {topic} has no queue that can be read")
        return [self._plain(queue) for queue in queues]

    def _subscription_of(self, topic: str) -> SubscriptionData | None:
        return self._subscriptions.get(topic) or self._assigned.get(topic)

    # Lifecycle.

    def _make_engine(self, instance: ClientInstance) -> PullEngine:
        engine = PullEngine(
            instance,
            self._group,
            self.settings,
            self._namespace,
            self._subscriptions,
            self._subscription_of,
            self._queue_changes,
        )
        self._send_back = SendBack(instance, engine.calls, self._group, self.settings, self._namespace)
        return engine

    async def stop(self) -> None:
        """Commit what is finished, and leave the group; loops end, and a second call does nothing."""
        async with self._stopping:
            if self.state is ServiceState.RUNNING:
                await self._running().leave()
            await super().stop()

    async def __aexit__(self, error_type: object = None, *_: object) -> None:
        if error_type is not None and self._engine is not None:
            self._engine.ended_well = False
        await self.stop()

    def _running(self) -> PullEngine:
        super()._running()
        assert self._engine is not None
        return self._engine

    def _reading(self) -> PullEngine:
        """The engine of a consumer that was told what to read."""
        engine = self._running()
        if not engine.queues.table and not self.topics():
            raise ClientError("the consumer reads nothing; subscribe to a topic, or assign queues, first")
        return engine

    # Messages.

    async def poll(
        self, timeout_s: float | None = None, *, max_count: int | None = None
    ) -> list[StoredMessage[V]]:
        """The next messages of one queue; empty if there are none in time."""
        engine = self._reading()
        timeout_s = self.settings.poll_timeout_ms / 1000 if timeout_s is None else timeout_s
        messages = await engine.poll(timeout_s, max_count or self.settings.pull_batch_size)
        if messages and self._trace is not None:  # polled messages count as consumed
            self._trace.began(messages)(ConsumeOutcome.SUCCESS)
        if self._serializer is None:
            return messages  # type: ignore[return-value]  # values are bodies
        return [with_value(message, self._serializer) for message in messages]

    def __aiter__(self) -> MessageLoop[V]:
        """`async for message in consumer` gets every message until the consumer stops, one loop at a time."""
        engine = self._reading()
        return MessageLoop(engine.handed_out, engine.await_messages, self._trace, self._serializer)

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_count: int = 32,
        *,
        expression: Expression = ALL,
        wait: bool = False,
        timeout_s: float | None = None,
    ) -> PullReply:
        """Read a queue at an offset; with `wait`, a broker that has no message there waits for one."""
        engine = self._running()
        inner, settings = self._wrapped(queue), self.settings
        if timeout_s is None:
            usual_ms = (
                settings.consumer_timeout_when_suspend_ms if wait else settings.consumer_pull_timeout_ms
            )
            timeout_s = usual_ms / 1000
        subscription = subscription_of(inner.topic, expression, SystemClock().now_ms())
        raw = await engine.pulls.pull_raw(
            inner,
            subscription,
            offset,
            max_count,
            kind=PullKind.PULL,
            suspend_ms=settings.broker_suspend_max_time_ms if wait else 0,
            timeout_s=timeout_s,
        )
        return raw.decode(inner, subscription, offset)

    async def send_back(self, message: StoredMessage, delay_level: int = 0) -> None:
        """Have a message delivered to the group again, through its retry topic."""
        self._running()
        await self._send_back.send_back(message, self._wrapped(message.queue), delay_level)

    def pause(self, queues: Collection[MessageQueue]) -> None:
        """Stop polling these queues for now."""
        self._running().pause([self._wrapped(queue) for queue in queues], paused=True)

    def resume(self, queues: Collection[MessageQueue]) -> None:
        """Poll these queues again."""
        self._running().pause([self._wrapped(queue) for queue in queues], paused=False)

    # Offsets.

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at another offset of an assigned queue."""
        await self._running().seek(self._wrapped(queue), offset)

    async def seek_to_beginning(self, where: MessageQueue | str) -> None:
        """Continue with the oldest message of a queue, or of every queue of a topic that is assigned here."""
        await self._seek_by(where, self._running().calls.min_offset)

    async def seek_to_end(self, where: MessageQueue | str) -> None:
        """Continue with the next message that is sent to a queue, or to the queues of a topic."""
        await self._seek_by(where, self._running().calls.max_offset)

    async def seek_to_time(self, where: MessageQueue | str, when: datetime | int) -> None:
        """Continue with the first message that a queue, or each queue of a topic, got at this time or later.

        The time is a `datetime` with a time zone, or in milliseconds since 1970.
        """
        at_ms, calls = time_ms("when", when), self._running().calls
        await self._seek_by(where, lambda queue: calls.search_offset(queue, at_ms))

    async def _seek_by(
        self, where: MessageQueue | str, offset_of: Callable[[MessageQueue], Awaitable[int]]
    ) -> None:
        engine = self._running()
        if isinstance(where, MessageQueue):
            queues = [self._wrapped(where)]
        else:
            topic = wrap_topic(self._namespace, where)
            queues = [queue for queue in engine.queues.table if queue.topic == topic]
        if not queues:
            raise ClientError(f"no queue of topic {where} is assigned to this consumer yet; see assignment()")
        for queue in queues:
            engine.process_queue(queue)
        for queue, offset in zip(queues, await asyncio.gather(*map(offset_of, queues)), strict=True):
            engine.restart(queue, offset)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit what was polled so far, or these offsets."""
        engine = self._running()
        inner = None if offsets is None else {self._wrapped(queue): at for queue, at in offsets.items()}
        await engine.commit(inner)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The committed offset of a queue; None if there is none."""
        return await self._running().offsets.read(self._wrapped(queue))

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message of a queue."""
        return await self._running().calls.min_offset(self._wrapped(queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of a queue will get."""
        return await self._running().calls.max_offset(self._wrapped(queue))

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset that a queue had reached at a time."""
        at_ms = time_ms("timestamp_ms", timestamp_ms)
        return await self._running().calls.search_offset(self._wrapped(queue), at_ms)

    # For the client instance and brokers.

    def topics(self) -> Collection[str]:
        return [*self._subscriptions, *self._assigned]

    async def consume_directly(self, message: StoredMessage, broker_name: str) -> ConsumeDirectlyResult:
        raise ClientError("a pull consumer has no listener", code=ResponseCode.SYSTEM_ERROR)
