"""The pull consumer: the application polls for messages, in asyncio.

Rules kept here:
- It either shares topics with its group (`subscribe`) or reads the queues that it is given (`assign`), never
  both.
- Polled messages count as consumed. With `auto_commit`, their offsets are committed by a later poll, and at
  the end unless the block ended with an error.
- `pull` reads a queue at an offset and touches none of this.
- Polls take queues in turn, so that a busy queue does not starve the others. A paused queue gives nothing,
  not even messages that were pulled before.
- Prefetching is limited for each queue and over all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Unpack

from cometmq.client.consumer.assigned_queues import AssignedQueues
from cometmq.client.consumer.base import ConsumerBase
from cometmq.client.consumer.engine import ConsumerEngine
from cometmq.client.consumer.offset_store import StartOffsets, offset_store
from cometmq.client.consumer.process_queue import ProcessQueue, Thresholds
from cometmq.client.consumer.pull_loop import PullLoops, PullPlan
from cometmq.client.consumer.pull_request import PullKind, PullReply, PullRequests
from cometmq.client.consumer.rebalance import Rebalancer
from cometmq.client.consumer.send_back import SendBack
from cometmq.client.consumer.settings import MIB, PullOptions, PullSettings
from cometmq.client.instance.instance import ClientInstance
from cometmq.client.names import wrap_topic
from cometmq.client.settings import settings_of
from cometmq.client.subscription import Expression, subscription_of
from cometmq.client.trace.records import ConsumeOutcome
from cometmq.model.errors import ClientError, RouteNotFoundError
from cometmq.model.message import StoredMessage
from cometmq.model.queue import MessageQueue
from cometmq.ports.clock import SystemClock
from cometmq.wire.bodies.consumer_info import ConsumeDirectlyResult
from cometmq.wire.bodies.heartbeat import ALL, ConsumeType, SubscriptionData
from cometmq.wire.codes import ResponseCode

log = logging.getLogger("cometmq.client")


class PullEngine(ConsumerEngine):
    """The engine of one pull consumer."""

    queues: AssignedQueues
    loops: PullLoops

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        settings: PullSettings,
        namespace: str,
        subscriptions: Mapping[str, SubscriptionData],
        subscription_of: Callable[[str], SubscriptionData | None],
    ) -> None:
        super().__init__(instance)
        self._settings = settings
        self._subscriptions = subscriptions
        self.commit_at_stop = settings.auto_commit
        self.pulls = PullRequests(instance, self.calls, group)
        self.offsets = offset_store(instance.client_id, group, settings, self.calls)
        starts = StartOffsets(self.offsets, self.calls, settings, self.started_ms)
        self.queues = AssignedQueues(
            self.offsets,
            starts,
            self.pulls,
            lambda pq: False,
            lambda: self.rebalancer.trigger(),
            lambda: None,
        )
        self.rebalancer = Rebalancer(
            instance, self.calls, group, settings, subscriptions.keys, self.queues.apply
        )
        self.queues.loops = self.loops = PullLoops(
            instance,
            self.pulls,
            self._plan(),
            self.offsets,
            subscription_of,
            self._arrived,
            self._correct,
            self.statistics,
            namespace,
        )
        self._news = asyncio.Event()
        self._polled: dict[MessageQueue, int] = {}
        """The offset after the last polled message of each queue that is not committed."""
        self._last_polled: MessageQueue | None = None
        self._commit_at = asyncio.get_running_loop().time() + settings.auto_commit_interval_ms / 1000

    def _plan(self) -> PullPlan:
        settings = self._settings
        return PullPlan(
            kind=PullKind.LITE,
            batch_size=settings.pull_batch_size,
            thresholds=Thresholds(
                settings.pull_threshold_for_queue,
                settings.pull_threshold_size_for_queue_mib * MIB,
                settings.consume_max_span,
            ),
            suspend_ms=settings.broker_suspend_max_time_ms,
            timeout_s=settings.consumer_timeout_when_suspend_ms / 1000,
            error_pause_s=settings.pull_delay_when_exception_ms / 1000,
            crowded=self._is_crowded,
        )

    def _is_crowded(self) -> bool:
        held = sum(len(pq.messages) for pq in self.queues.table.values())
        return held > self._settings.pull_threshold_for_all

    def start(self) -> None:
        """Start; without subscriptions, nothing is pulled before queues are assigned."""
        self._spawn(self._housekeeping())
        if self._subscriptions:
            self.start_sharing()

    def start_sharing(self) -> None:
        """Start to share the queues of the subscribed topics with the group."""
        self._spawn(self.rebalancer.run())

    async def assign(self, wanted: Collection[MessageQueue]) -> None:
        """Read exactly these queues."""
        topics = {queue.topic for queue in (*wanted, *self.queues.table)}
        for topic in sorted(topics):
            await self.queues.apply(topic, {queue for queue in wanted if queue.topic == topic})
        missing = sorted(set(wanted) - self.queues.table.keys())
        if missing:
            raise ClientError(f"queue {missing[0]} cannot be read now; see the log for the reason")

    async def stop(self) -> None:
        """Stop all pulls; with `commit_at_stop`, commit what was polled."""
        await self._end_tasks()
        await self.loops.stop()
        if self.commit_at_stop:
            await self.commit()
        await self.queues.give_all_away()

    # Messages.

    def _arrived(self, pq: ProcessQueue, messages: Sequence[StoredMessage]) -> None:
        self._news.set()

    async def _correct(self, pq: ProcessQueue, offset: int) -> None:
        self.queues.restart(pq, offset)

    async def poll(self, timeout_s: float, max_count: int) -> list[StoredMessage]:
        """Messages of one queue, at most `max_count`; empty if there are none in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        if self._settings.auto_commit and loop.time() >= self._commit_at:
            await self.commit()
            self._commit_at = loop.time() + self._settings.auto_commit_interval_ms / 1000
        while True:
            self._news.clear()
            messages = self._take(max_count)
            if messages or loop.time() >= deadline:
                return messages
            try:
                async with asyncio.timeout_at(deadline):
                    await self._news.wait()
            except TimeoutError:
                pass

    def _take(self, max_count: int) -> list[StoredMessage]:
        for pq in self._in_turn():
            if pq.messages and not pq.paused and not pq.dropped:
                messages = pq.first_messages(max_count)
                pq.done(messages)
                pq.made_room()
                offset = pq.commit_offset()
                if offset is not None:
                    self._polled[pq.queue] = offset
                self._last_polled = pq.queue
                self.statistics.of(messages[0].topic).count_results(len(messages), 0)
                return messages
        return []

    def _in_turn(self) -> list[ProcessQueue]:
        """The queues in polling order: those after the last polled one first."""
        queues = sorted(self.queues.table)
        last = self._last_polled
        later = [queue for queue in queues if last is None or queue > last]
        return [self.queues.table[queue] for queue in (*later, *queues[: len(queues) - len(later)])]

    # Offsets.

    def process_queue(self, queue: MessageQueue) -> ProcessQueue:
        """The process queue of a queue that is assigned here."""
        pq = self.queues.table.get(queue)
        if pq is None:
            raise ClientError(f"queue {queue} is not assigned to this consumer")
        return pq

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at another offset that the queue has."""
        self.process_queue(queue)
        least, most = await self.calls.min_offset(queue), await self.calls.max_offset(queue)
        if not least <= offset <= most:
            raise ClientError(f"offset {offset} of queue {queue} is not between {least} and {most}")
        self.restart(queue, offset)

    def restart(self, queue: MessageQueue, offset: int) -> None:
        """Continue at another offset, which the next commit writes."""
        self.queues.restart(self.process_queue(queue), offset)
        self._polled[queue] = offset

    def pause(self, queues: Collection[MessageQueue], *, paused: bool) -> None:
        for pq in [self.process_queue(queue) for queue in queues]:
            pq.paused = paused
            pq.made_room()
        self._news.set()

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit what was polled, or these offsets; returns when the brokers, or the file, have them."""
        due = dict(self._polled if offsets is None else offsets)
        for queue, offset in due.items():
            self.process_queue(queue)
            self.offsets.update(queue, offset, increase_only=False)
        await self.offsets.persist(list(due))

    async def reset(self, offsets: dict[MessageQueue, int]) -> None:
        """Continue at other offsets in the queues that are read here."""
        for queue, offset in offsets.items():
            if queue in self.queues.table:
                self.restart(queue, offset)
        await self.commit()


class PullConsumer(ConsumerBase):
    """Reads messages when it is asked to."""

    consume_type = ConsumeType.CONSUME_ACTIVELY
    _engine: PullEngine | None

    def __init__(
        self, group: str, settings: PullSettings | None = None, **options: Unpack[PullOptions]
    ) -> None:
        self.settings = settings_of(PullSettings, settings, options)
        super().__init__(group, self.settings)
        self._assigned: dict[str, SubscriptionData] = {}
        self._send_back: SendBack

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

    async def message_queues(self, topic: str) -> list[MessageQueue]:
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
            instance, self._group, self.settings, self._namespace, self._subscriptions, self._subscription_of
        )
        self._send_back = SendBack(instance, engine.calls, self._group, self.settings, self._namespace)
        return engine

    async def __aexit__(self, error_type: object = None, *_: object) -> None:
        if error_type is not None and self._engine is not None:
            self._engine.commit_at_stop = False
        await self.stop()

    def _running(self) -> PullEngine:
        super()._running()
        assert self._engine is not None
        return self._engine

    # Messages.

    async def poll(
        self, timeout_s: float | None = None, *, max_count: int | None = None
    ) -> list[StoredMessage]:
        """The next messages of one queue; empty if there are none in time."""
        engine = self._running()
        timeout_s = self.settings.poll_timeout_ms / 1000 if timeout_s is None else timeout_s
        messages = await engine.poll(timeout_s, max_count or self.settings.pull_batch_size)
        if messages and self._trace is not None:  # polled messages count as consumed
            self._trace.began(messages)(ConsumeOutcome.SUCCESS)
        return messages

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

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue with the oldest message of the queue."""
        engine = self._running()
        inner = self._wrapped(queue)
        engine.restart(inner, await engine.calls.min_offset(inner))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue with the next message that is sent to the queue."""
        engine = self._running()
        inner = self._wrapped(queue)
        engine.restart(inner, await engine.calls.max_offset(inner))

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
        return await self._running().calls.search_offset(self._wrapped(queue), timestamp_ms)

    # For the client instance and brokers.

    def topics(self) -> Collection[str]:
        return [*self._subscriptions, *self._assigned]

    async def consume_directly(self, message: StoredMessage, broker_name: str) -> ConsumeDirectlyResult:
        raise ClientError("a pull consumer has no listener", code=ResponseCode.SYSTEM_ERROR)
