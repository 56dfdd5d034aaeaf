"""What runs inside a pull consumer: queues are pulled ahead, and the application takes from what is there.

Rules kept here:
- What was polled counts as consumed; its offset is committed when the application says so, or by itself when
  it comes back for more and the time has come.
- Queues take turns, so that a busy one does not keep the others waiting; a paused one gives nothing, also not
  what was pulled before.
- How much is pulled ahead is limited for each queue and over all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from cometmq.client.consumer.assigned_queues import AssignedQueues
from cometmq.client.consumer.broker_calls import QueueCalls
from cometmq.client.consumer.consume_statistics import ConsumeStatistics
from cometmq.client.consumer.local_offsets import offset_store
from cometmq.client.consumer.process_queue import ProcessQueue, Thresholds
from cometmq.client.consumer.pull_loop import PullLoops, PullPlan
from cometmq.client.consumer.pull_request import PullCalls, PullKind
from cometmq.client.consumer.rebalance import Rebalancer
from cometmq.client.consumer.settings import MIB, PullSettings
from cometmq.client.consumer.start_offsets import StartOffsets
from cometmq.model.errors import ClientError
from cometmq.model.message import StoredMessage
from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.heartbeat import SubscriptionData

if TYPE_CHECKING:
    from cometmq.client.instance.instance import ClientInstance

log = logging.getLogger("cometmq.client")

_NOTE_S: Final = 5.0


class LitePull:
    """The running parts of one pull consumer."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        settings: PullSettings,
        namespace: str,
        subscriptions: Mapping[str, SubscriptionData],
        subscription_of: Callable[[str], SubscriptionData | None],
    ) -> None:
        self._settings = settings
        self.started_ms = instance.clock.now_ms()
        self.statistics = ConsumeStatistics()
        self.calls = QueueCalls(instance)
        self.pulls = PullCalls(instance, self.calls, group)
        self.offsets = offset_store(instance.client_id, group, settings, self.calls)
        starts = StartOffsets(self.offsets, self.calls, settings, self.started_ms)
        self.queues = AssignedQueues(
            self.offsets, starts, self.pulls, _never_busy, self._rebalance_soon, lambda: None
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
        """Behind the last message of each queue that was polled, as far as not committed."""
        self._last_polled: MessageQueue | None = None
        self._commit_at = asyncio.get_running_loop().time() + settings.auto_commit_interval_ms / 1000
        self._tasks: list[asyncio.Task[None]] = []

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

    def _rebalance_soon(self) -> None:
        self.rebalancer.trigger()

    def start(self) -> None:
        """Begin; nothing is read before queues are shared or assigned."""
        self._tasks.append(asyncio.get_running_loop().create_task(self._keep_house()))

    def start_sharing(self) -> None:
        """Share the queues of the subscribed topics with the group, from now on."""
        self._tasks.append(asyncio.get_running_loop().create_task(self.rebalancer.run()))

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(_NOTE_S)
            self.statistics.note()

    async def assign(self, wanted: Collection[MessageQueue]) -> None:
        """Read exactly these queues."""
        topics = {queue.topic for queue in (*wanted, *self.queues.table)}
        for topic in sorted(topics):
            await self.queues.apply(topic, {queue for queue in wanted if queue.topic == topic})
        missing = sorted(set(wanted) - self.queues.table.keys())
        if missing:
            raise ClientError(f"queue {missing[0]} cannot be read now; see the log for the reason")

    async def stop(self, *, commit_all: bool) -> None:
        """End all pulls, and commit what was polled if that is done by itself."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.loops.stop()
        if self._settings.auto_commit and commit_all:
            await self.commit()
        await self.queues.give_all_away()

    # Messages.

    def _arrived(self, pq: ProcessQueue, messages: Sequence[StoredMessage]) -> None:
        self._news.set()

    async def _correct(self, pq: ProcessQueue, offset: int) -> None:
        self.queues.restart(pq, offset)

    async def poll(self, timeout_s: float, max_count: int) -> list[StoredMessage]:
        """Messages of one queue, at most so many; none if there are none in time."""
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
                messages = pq.first_ones(max_count)
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
        """The queues, those behind the one that had its turn first."""
        queues = sorted(self.queues.table)
        last = self._last_polled
        behind = [queue for queue in queues if last is None or queue > last]
        return [self.queues.table[queue] for queue in (*behind, *queues[: len(queues) - len(behind)])]

    # Offsets.

    def process_queue(self, queue: MessageQueue) -> ProcessQueue:
        """What is held of a queue that is read here."""
        pq = self.queues.table.get(queue)
        if pq is None:
            raise ClientError(f"queue {queue} is not assigned to this consumer")
        return pq

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at another offset that the queue has."""
        self.process_queue(queue)
        least, most = await self.calls.min_offset(queue), await self.calls.max_offset(queue)
        if not least <= offset <= most:
            raise ClientError(f"offset {offset} of queue {queue} is not between {least} and {most}")
        self.restart(queue, offset)

    def restart(self, queue: MessageQueue, offset: int) -> None:
        """Go on at another offset; it is what is committed next."""
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


def _never_busy(pq: ProcessQueue) -> bool:
    return False
