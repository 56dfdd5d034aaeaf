"""Pull loops: one for each assigned queue, one request at a time.

Rules kept here:
- A queue is pulled as long as its held messages stay within the thresholds. Room wakes a loop that waits for
  it; nothing is polled.
- An error costs a pause, a busy broker a short one; the loop continues until its queue is dropped.
- Every pull carries the commit offset, so that the broker knows it without a request of its own.
- An offset that the broker does not have is corrected to the one it names, and the queue is added again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.client.consumer.offset_store import OffsetStore
from cometmq.client.consumer.process_queue import ProcessQueue, Thresholds
from cometmq.client.consumer.pull_request import PullKind, PullReply, PullRequests
from cometmq.client.consumer.statistics import ConsumeStatistics
from cometmq.client.names import unwrap
from cometmq.client.subscription import is_tags
from cometmq.model import message_properties as names
from cometmq.model.errors import CometError, ResponseError
from cometmq.model.message import StoredMessage
from cometmq.model.names import RETRY_PREFIX
from cometmq.wire.bodies.heartbeat import SubscriptionData
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from cometmq.client.instance.instance import ClientInstance

log = logging.getLogger("cometmq.client")

_BUSY_PAUSE_S: Final = 0.02
_CROWDED_PAUSE_S: Final = 0.05
_PAUSED_S: Final = 1.0
_UNKNOWN_SUBSCRIPTION: Final = (
    ResponseCode.SUBSCRIPTION_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_NOT_LATEST,
)

Sink = Callable[[ProcessQueue, Sequence[StoredMessage]], None]


class PullPlan(msgspec.Struct, kw_only=True):
    """How a consumer pulls."""

    kind: PullKind
    batch_size: int
    thresholds: Thresholds
    suspend_ms: int
    """How long a broker that has no message waits for one."""
    timeout_s: float
    error_pause_s: float
    pause_between_s: float = 0.0
    max_bytes: int | None = None
    commits: bool = False
    """Whether pulls carry the commit offset."""
    needs_lock: bool = False
    with_subscription: bool = False
    crowded: Callable[[], bool] = lambda: False
    """Whether too much is held over all queues."""


@dataclass(eq=False, repr=False)
class PullLoops:
    """Pulls the queues of one consumer."""

    _instance: ClientInstance
    _pulls: PullRequests
    _plan: PullPlan
    _offsets: OffsetStore
    _subscription_of: Callable[[str], SubscriptionData | None]
    _sink: Sink
    _correct: Callable[[ProcessQueue, int], Awaitable[None]]
    _statistics: ConsumeStatistics
    _namespace: str
    _tasks: dict[ProcessQueue, asyncio.Task[None]] = field(default_factory=dict)
    paused: bool = False
    _stopped: bool = False

    def begin(self, pq: ProcessQueue, offset: int) -> None:
        """Pull this queue from the offset until it is dropped; not after a stop."""
        if self._stopped:  # a rebalance listener seeks
            return
        task = asyncio.get_running_loop().create_task(self._loop(pq, offset), name=f"pull {pq.queue}")
        self._tasks[pq] = task
        task.add_done_callback(lambda _: self._tasks.pop(pq, None))

    def end(self, pq: ProcessQueue) -> None:
        """Stop pulling this queue; a response under way is not awaited."""
        task = self._tasks.get(pq)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    async def stop(self) -> None:
        """Stop all loops, for good."""
        self._stopped = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _loop(self, pq: ProcessQueue, offset: int) -> None:
        plan = self._plan
        while not pq.dropped:
            pq.last_pull_s = time.monotonic()
            if not await self._may_pull(pq):
                continue
            try:
                next_offset = await self._pull(pq, offset)
            except CometError as error:
                await asyncio.sleep(self._pause_after(pq, error) or plan.error_pause_s)
                continue
            except Exception:
                log.exception("pulling %s at %d failed", pq.queue, offset)
                await asyncio.sleep(plan.error_pause_s)
                continue
            if self._instance.troubles:
                self._instance.troubles.over_at("pulling from", pq.queue)
            if next_offset is None:
                return
            offset = next_offset
            if plan.pause_between_s:
                await asyncio.sleep(plan.pause_between_s)

    async def _may_pull(self, pq: ProcessQueue) -> bool:
        """True if the queue may be pulled now; else waits for a while, or for a change."""
        plan = self._plan
        if self.paused or pq.paused:
            await pq.wait_for_room(_PAUSED_S)
        elif pq.flow_control(plan.thresholds) is not None:
            pq.flow_control_times += 1
            await pq.wait_for_room(_PAUSED_S)
        elif plan.crowded():
            await asyncio.sleep(_CROWDED_PAUSE_S)
        elif plan.needs_lock and not pq.lock_held:
            await asyncio.sleep(plan.error_pause_s)
        else:
            return True
        return False

    def _pause_after(self, pq: ProcessQueue, error: CometError) -> float | None:
        """The pause after an error, if it is not the usual one."""
        if isinstance(error, ResponseError) and error.code == ResponseCode.FLOW_CONTROL:
            return _BUSY_PAUSE_S
        self._instance.troubles.met_at("pulling from", pq.queue, error)
        if error.code in _UNKNOWN_SUBSCRIPTION:  # the broker was restarted, or does not know this client yet
            self._instance.spawn(self._instance.heartbeats.send_to_all())
        return None

    async def _pull(self, pq: ProcessQueue, offset: int) -> int | None:
        """Pull once; returns the next offset, None to stop."""
        queue = pq.queue
        subscription = self._subscription_of(queue.topic)
        if subscription is None:
            return None
        plan = self._plan
        began = time.perf_counter()
        raw = await self._pulls.pull_raw(
            queue,
            subscription,
            offset,
            plan.batch_size,
            kind=plan.kind,
            commit_offset=(self._offsets.known(queue) or 0) if plan.commits else 0,
            suspend_ms=plan.suspend_ms,
            timeout_s=plan.timeout_s,
            with_subscription=plan.with_subscription and is_tags(subscription),
            max_bytes=plan.max_bytes,
        )
        if pq.dropped:
            return None
        if self.paused or pq.paused:
            return offset  # pulled before the pause; it is pulled again afterwards
        reply = raw.decode(queue, subscription, offset)
        self._statistics.of(queue.topic).count_pull(len(reply.messages), time.perf_counter() - began)
        if reply.offset_illegal:
            log.warning("offset %d of %s does not exist; going on at %d", offset, queue, reply.next_offset)
            await self._correct(pq, reply.next_offset)
            return None
        pq.pull_offset, pq.end_offset = reply.next_offset, reply.max_offset
        self._take(pq, reply)
        return reply.next_offset

    def _take(self, pq: ProcessQueue, reply: PullReply) -> None:
        messages = reply.messages
        if messages:
            if self._namespace or pq.queue.topic.startswith(RETRY_PREFIX):
                messages = [self._as_sent(message) for message in messages]
            pq.put(messages)
            self._sink(pq, messages)
        elif not pq.messages:
            # Everything up to here was filtered out, and nothing before it is held.
            self._offsets.update(pq.queue, reply.next_offset, increase_only=True)

    def _as_sent(self, message: StoredMessage) -> StoredMessage:
        """The message under the topic that its sender named."""
        topic = message.topic
        if topic.startswith(RETRY_PREFIX):
            topic = message.properties.get(names.RETRY_TOPIC, topic)
        return msgspec.structs.replace(message, topic=unwrap(self._namespace, topic))
