"""The engine of a pull consumer: prefetched messages, handed out by polls or by a loop, and their offsets.

Rules kept here:
- Who asks for more has finished what was handed out before, and only what is finished is committed by itself.
  `commit` also covers what was handed out last.
- Polls and loops take queues in turn, so that a busy queue does not starve the others. A paused queue gives
  nothing, not even messages that were pulled before.
- Prefetching is limited for each queue and over all.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from cometmq.client.consumer.assigned_queues import AssignedQueues
from cometmq.client.consumer.engine import ConsumerEngine
from cometmq.client.consumer.lite_pull.message_loop import HandedOut
from cometmq.client.consumer.offset_store import StartOffsets, offset_store
from cometmq.client.consumer.process_queue import ProcessQueue, Thresholds
from cometmq.client.consumer.pull_loop import PullLoops, PullPlan
from cometmq.client.consumer.pull_request import PullKind, PullRequests
from cometmq.client.consumer.rebalance import QueueChanges, Rebalancer
from cometmq.client.consumer.settings import MIB, PullSettings
from cometmq.client.instance.instance import ClientInstance
from cometmq.model.errors import ClientError
from cometmq.model.message import StoredMessage
from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.heartbeat import SubscriptionData


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
        changes: QueueChanges,
    ) -> None:
        super().__init__(instance)
        self._settings = settings
        self._subscriptions = subscriptions
        self.ended_well = True
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
            changes,
            self._leaving,
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
        self._finished: dict[MessageQueue, int] = {}
        """The offset after the last finished message of each queue."""
        self._polled: dict[MessageQueue, int] = {}
        """The offset after the last poll, or of the last seek; finished when more is asked for."""
        self._last_polled: MessageQueue | None = None
        interval_s = settings.auto_commit_interval_ms / 1000 if settings.auto_commit else math.inf
        self._commit_at_s = time.monotonic() + interval_s
        self.handed_out = HandedOut()
        self._is_stopped = False

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

    async def leave(self) -> None:
        """Stop all pulls, end loops, and tell the rebalance listener, which may still commit."""
        self._is_stopped = True
        self._news.set()
        await self._end_tasks()
        await self.loops.stop()
        await self.queues.revoke_all()

    async def stop(self) -> None:
        """After `leave`: with `auto_commit`, commit what is finished, and give all queues away.

        Polled messages are finished if the block ended well, the message that a loop has is not.
        """
        if self._settings.auto_commit:
            self._settle()
            if self.ended_well:
                self._finished |= self._polled
            await self._commit(self._finished)
        await self.queues.give_all_away()

    # Messages.

    def _arrived(self, pq: ProcessQueue, messages: Sequence[StoredMessage]) -> None:
        self._news.set()

    async def _correct(self, pq: ProcessQueue, offset: int) -> None:
        self.queues.restart(pq, offset)

    async def poll(self, timeout_s: float, max_count: int) -> list[StoredMessage]:
        """Messages of one queue, at most `max_count`; empty if there are none in time."""
        now = time.monotonic()
        deadline = now + timeout_s
        self._asked_for_more()
        if now >= self._commit_at_s:
            await self._commit_finished()
        while True:
            self._news.clear()
            messages = self._take(max_count)
            if messages or self._is_stopped:
                return messages
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return messages
            await self._wait_for_news(left_s)

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

    async def await_messages(self) -> bool:
        """Have messages handed out one by one, as soon as there are any; False when the consumer stops."""
        self._asked_for_more()
        while not self._is_stopped:
            if time.monotonic() >= self._commit_at_s:
                await self._commit_finished()
            self._news.clear()
            for pq in self._in_turn():
                if pq.messages and not pq.paused and not pq.dropped:
                    messages = pq.first_messages(self._settings.pull_batch_size)
                    self.handed_out.hand_out(pq, messages, self._commit_at_s)
                    self._last_polled = pq.queue
                    return True
            await self._wait_for_news(self._settings.auto_commit_interval_ms / 1000)
        return False

    async def _wait_for_news(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        except TimeoutError:
            pass

    def _asked_for_more(self) -> None:
        """Everything that was handed out before is finished."""
        if self.handed_out.loop is not None:
            self.handed_out.finish()
            self._settle()
        if self._polled:
            self._finished |= self._polled
            self._polled.clear()

    def _settle(self) -> None:
        """Remove the messages that loops have finished."""
        for pq, message in self.handed_out.take_finished():
            pq.done((message,))
            pq.made_room()
            offset = pq.commit_offset()
            if offset is not None and not pq.released:
                self._finished[pq.queue] = offset
            self.statistics.of(message.topic).count_results(1, 0)

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
        self._finished.pop(queue, None)
        self._polled[queue] = offset

    def pause(self, queues: Collection[MessageQueue], *, paused: bool) -> None:
        for pq in [self.process_queue(queue) for queue in queues]:
            pq.paused = paused
            pq.made_room()
        self._news.set()

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit all that was handed out, or these offsets; returns when brokers, or the file, have them."""
        if offsets is None:
            self._settle()
            offsets = self._finished | self._polled | self.handed_out.current_offset()
        else:
            for queue in offsets:
                self.process_queue(queue)
        self._finished |= offsets  # or giving the queue away would set it back
        await self._commit(offsets)

    async def _commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        due = [queue for queue in offsets if queue in self.queues.table]
        for queue in due:
            self.offsets.update(queue, offsets[queue], increase_only=False)
        await self.offsets.persist(due)

    async def _commit_finished(self) -> None:
        """Commit by itself; the next time is an interval later."""
        self._commit_at_s = time.monotonic() + self._settings.auto_commit_interval_ms / 1000
        await self._commit(self._finished)

    def _leaving(self, queue: MessageQueue) -> None:
        """A queue is about to be given away: its next owner goes on after what is finished."""
        self._settle()
        self._polled.pop(queue, None)
        offset = self._finished.pop(queue, None)
        if offset is not None and self._settings.auto_commit:
            self.offsets.update(queue, offset, increase_only=False)

    async def reset(self, offsets: dict[MessageQueue, int]) -> None:
        """Continue at other offsets in the queues that are read here."""
        for queue, offset in offsets.items():
            if queue in self.queues.table:
                self.restart(queue, offset)
        await self.commit()
