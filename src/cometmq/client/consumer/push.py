"""The push consumer: hands messages to listeners, in asyncio.

Rules kept here:
- Listeners get messages one by one, or as lists when `consume_message_batch_max_size` is more than 1. Plain
  functions run in threads, coroutine functions on the event loop.
- Subscriptions may change while the consumer runs.
- A stop finishes what listeners are busy with, and leaves everything else to the other members of the group.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from typing import Final, TypeVar, Unpack, overload

from cometmq.client.consumer.base import ConsumerBase
from cometmq.client.consumer.consume_directly import consume_directly
from cometmq.client.consumer.engines import ConsumerEngine
from cometmq.client.consumer.listener import Listener, ListenerFunction
from cometmq.client.consumer.push_engine import PushEngine
from cometmq.client.consumer.running_info import running_info
from cometmq.client.consumer.settings import PushOptions, PushSettings
from cometmq.client.instance.instance import ClientInstance, join_instance
from cometmq.client.names import wrap_topic
from cometmq.client.service_state import ServiceState
from cometmq.client.subscription import Expression, subscription_of
from cometmq.client.trace.hooks import TracedListener
from cometmq.model.errors import ClientError, CometError
from cometmq.model.message import StoredMessage
from cometmq.model.names import retry_topic
from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.consumer_info import ConsumeDirectlyResult, ConsumerRunningInfo
from cometmq.wire.bodies.heartbeat import ALL, ConsumeType

log = logging.getLogger("cometmq.client")

F = TypeVar("F", bound=ListenerFunction)

_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class PushConsumer(ConsumerBase):
    """Reads topics and hands their messages to listeners."""

    consume_type = ConsumeType.CONSUME_PASSIVELY

    def __init__(
        self, group: str, settings: PushSettings | None = None, **options: Unpack[PushOptions]
    ) -> None:
        if settings is not None and options:
            raise TypeError("give settings, or keywords, not both")
        self.settings = settings or PushSettings(**options)
        super().__init__(group, self.settings)
        self._listeners: dict[str, Listener] = {}
        self._engine: ConsumerEngine | None = None

    # Subscriptions.

    @overload
    def subscribe(self, topic: str, expression: Expression = ..., *, listener: F) -> F: ...

    @overload
    def subscribe(self, topic: str, expression: Expression = ...) -> Callable[[F], F]: ...

    def subscribe(
        self, topic: str, expression: Expression = ALL, *, listener: F | None = None
    ) -> F | Callable[[F], F]:
        """Read a topic: all of it, messages with certain tags (`"a || b"`), or what `Sql(…)` says.

        The listener is given as an argument, or decorated with the result.
        """

        def register(function: F) -> F:
            gives_lists = self.settings.consume_message_batch_max_size > 1
            registered = Listener(function, batch=gives_lists)
            self._add_subscription(topic, expression)
            self._listeners[topic] = registered
            if self._instance is not None and self._engine is not None:
                self._instance.spawn(self._announce_change(self._instance, self._engine))
            return function

        return register if listener is None else register(listener)

    async def _announce_change(self, instance: ClientInstance, engine: ConsumerEngine) -> None:
        try:
            await self._announce(instance)
        except CometError as error:
            log.error("the changed subscriptions of group %s were not announced: %s", self._group, error)
        engine.rebalancer.trigger()

    async def unsubscribe(self, topic: str) -> None:
        """Read a topic no more."""
        wrapped = wrap_topic(self._namespace, topic)
        self._subscriptions.pop(wrapped, None)
        self._listeners.pop(topic, None)
        if self._instance is not None and self._engine is not None:
            await self._engine.rebalancer.leave(wrapped)
            await self._instance.heartbeats.send_to_all()

    # Life.

    async def start(self) -> None:
        """Join the group and begin to read."""
        if not self._subscriptions:
            raise ClientError("the consumer reads nothing; subscribe to a topic before starting it")
        self._begin_start()
        settings = self.settings
        if not settings.broadcasting:
            retries = retry_topic(self._group)
            self._subscriptions[retries] = subscription_of(retries, ALL, 0)
        instance = await join_instance(settings, self, keep_instance_name=settings.broadcasting)
        try:
            await self._announce(instance)
            await self._start_trace(instance, settings.consume_timeout_min * 60_000)
        except BaseException:
            await instance.remove_member(self)
            raise
        self._engine = PushEngine(
            instance, self._group, settings, self._namespace, self._subscriptions, self._listener_of
        )
        self._instance = instance
        self.state = ServiceState.RUNNING
        self._engine.start()

    async def stop(self) -> None:
        """Finish what listeners are busy with, then leave the group; a second time does nothing."""
        if self.state is not ServiceState.RUNNING:
            self.state = ServiceState.STOPPED
            return
        instance, engine = self._running_instance(), self._running()
        self.state = ServiceState.STOPPED
        await engine.stop()
        await self._stop_trace()
        await instance.remove_member(self)

    def _listener_of(self, topic: str) -> Listener | None:
        listener = self._listeners.get(topic)
        if listener is None or self._trace is None:
            return listener
        return TracedListener(listener, self._trace)

    async def run(self) -> None:
        """Start, consume until the process is interrupted or told to end, then stop in good order."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        for each in _STOP_SIGNALS:
            loop.add_signal_handler(each, ended.set)
        try:
            async with self:
                await ended.wait()
        finally:
            for each in _STOP_SIGNALS:
                loop.remove_signal_handler(each)

    def suspend(self) -> None:
        """Pull nothing for now; what is held is still consumed."""
        self._running().loops.paused = True

    def resume(self) -> None:
        """Pull again."""
        engine = self._running()
        engine.loops.paused = False
        for pq in engine.queues.table.values():
            pq.made_room()

    def assignment(self) -> set[MessageQueue]:
        """The queues that this member of the group reads at the moment, those of its retry topic apart."""
        retries = retry_topic(self._group)
        return {
            self._outer(queue)
            for queue, pq in self._running().queues.table.items()
            if queue.topic != retries and not pq.dropped
        }

    def _running(self) -> ConsumerEngine:
        self._running_instance()
        assert self._engine is not None
        return self._engine

    # What the client instance asks, for itself and for brokers.

    def route_changed(self, topic: str) -> None:
        if topic in self._subscriptions:
            self.consumer_ids_changed()

    def consumer_ids_changed(self) -> None:
        if self._engine is not None:
            self._engine.rebalancer.trigger()

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        await self._running().reset(
            {queue: offset for queue, offset in offsets.items() if queue.topic == topic}
        )

    def status(self, topic: str) -> dict[MessageQueue, int]:
        return self._running().offsets.snapshot(topic)

    async def running_info(self, with_stacks: bool) -> ConsumerRunningInfo:
        engine = self._running()
        namesrv = ";".join(self._running_instance().name_servers.addresses)
        entry = self.heartbeat_entry()
        return running_info(engine, self.settings, entry, namesrv, with_stacks=with_stacks)

    async def consume_directly(self, message: StoredMessage, broker_name: str) -> ConsumeDirectlyResult:
        self._running()
        ordered = self.settings.ordered
        return await consume_directly(self._listeners.get, message, self._namespace, ordered=ordered)
