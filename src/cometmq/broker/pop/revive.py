"""Pop revive: bringing back messages that were popped and not acknowledged in time.

Rules kept here:
- The revive topic is read in order. A checkpoint stays in memory until it is done; how far each queue is done
  is the offset of a group, so that the next start, or Apache's broker, reads on from there.
- A checkpoint is done when its time is over and all acknowledgements that came in time are read: the
  watermark is past its time, and the revive queue is read to its end. No more checkpoints are in memory than
  are within the last second or two of their time.
- The watermark: an acknowledgement goes through the timer topic and the wheel into the revive topic, and with
  synchronous flush it can be read only when it is on the disk. A time counts when the timers have delivered
  everything before it, have then taken everything that was in the log by that time, and all that they have
  put meanwhile can be read. Slots of the wheel count as a whole.
- A message comes back as a new one in the retry topic of its group, which exists, on the disk, before; and
  the checkpoint gets an acknowledgement of it at once, so that no crash brings it back a second time.
- A checkpoint waits until the timers have saved that it is delivered: it could come a second time otherwise.
- What cannot be put now is tried until it can be; what can never be put, or read, is set aside.
- A checkpoint whose time is further away than that of any pop is refused: all after it would wait for it.
- Nothing polls: without a checkpoint nothing runs.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from dataclasses import dataclass, field
from typing import Final

from cometmq.broker.groups.offsets import ConsumerOffsets
from cometmq.broker.pop.revive_retry import Outcome, RetryWriter
from cometmq.broker.pop.revive_topic import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECKPOINT_LEAD_MS,
    CHECKPOINT_TAG,
    ReviveTopic,
)
from cometmq.broker.set_aside import POPS, SetAside, UnprocessableError
from cometmq.broker.settings import Settings
from cometmq.broker.timers.service import TimerService
from cometmq.model.message_properties import TAGS, TIMER_OUT_MS
from cometmq.model.names import REVIVE_GROUP, TIMER_TOPIC
from cometmq.ports.clock import Clock
from cometmq.store.message_store import MessageStore
from cometmq.wire.bodies.pop import Ack, Checkpoint, decode_ack, decode_checkpoint
from cometmq.wire.record.codec import Record, decode_record
from cometmq.wire.record.properties import find_property

log = logging.getLogger("cometmq.broker")

AT_ONCE: Final = 32
"""Records that are read, or messages that are brought back, before others get their turn."""
LONGEST_SLEEP_S: Final = 1.0
WAIT_S: Final = 0.1
"""How soon a checkpoint is looked at again whose acknowledgements may still be under way."""
SAVE_MS: Final = 5000
"""No longer than this after its time a checkpoint waits for the timers to be saved."""
SPARE_MS: Final = 3_600_000
"""By how much clocks may differ that the times of checkpoints come from."""
FAILURE_S: Final = 1.0
STOP_S: Final = 10.0
Key = tuple[str | None, str | None, int, int, int, str]
"""Topic, group, queue id, start offset, pop time and broker name of a checkpoint."""


class AckWatermark:
    """Follows moments until they count; belongs to the event loop."""

    def __init__(self, settings: Settings, clock: Clock, store: MessageStore, timers: TimerService) -> None:
        self._store = store
        self._timers = timers
        self._settings = settings
        self._clock = clock
        self._dispatcher = store.files.dispatcher
        self._settled_ms = 0
        self._delivered: tuple[int, int, int] | None = None
        """A moment; how far the log, and the timer topic, were when the timers had passed it."""
        self._taken: tuple[int, int] | None = None
        """A moment; how far the log was when the timers had taken everything up to there."""

    def settled_ms(self) -> int:
        """The moment up to which all acknowledgements can be read."""
        while self._step():
            pass
        return self._settled_ms

    def _step(self) -> bool:
        store, timers = self._store, self._timers
        readable = self._dispatcher.position
        if self._taken is not None:
            moment_ms, log_end = self._taken
            if readable < log_end:
                return False
            self._settled_ms, self._taken = moment_ms, None
        if self._delivered is None:
            moment_ms = self._passed_ms()
            if moment_ms <= self._settled_ms:
                return False
            queue = store.queues.find(TIMER_TOPIC, 0)
            next_timer = 0 if queue is None else queue.next_offset
            self._delivered = moment_ms, store.log.max_offset, next_timer
        moment_ms, log_end, next_timer = self._delivered
        if readable < log_end or timers.enqueuer.queue_offset < next_timer:
            return False
        self._taken, self._delivered = (moment_ms, store.log.max_offset), None
        return True

    def _passed_ms(self) -> int:
        """The moment before which the timers have delivered everything."""
        timers, slot_ms = self._timers, self._settings.store.timer_slot_ms
        read_ms = timers.delivery.read_time_ms
        if timers.enqueuer.latest_ms < read_ms and not timers.enqueuer.lag:
            return self._clock.now_ms() // slot_ms * slot_ms
        return read_ms


@dataclass(slots=True, eq=False)
class Pending:
    """A checkpoint that is not done."""

    checkpoint: Checkpoint
    revive_offset: int
    is_timed: bool
    """Whether it came through the timers."""
    is_fetched: bool = False
    """Whether its messages are in memory for sure."""

    @property
    def is_done(self) -> bool:
        return self.checkpoint.bits >= (1 << self.checkpoint.count) - 1


@dataclass(eq=False)
class ReviveQueue:
    """How far one queue of the revive topic is read."""

    queue_id: int
    next_offset: int
    pending: dict[Key, Pending] = field(default_factory=dict)
    """In the order of the queue."""
    due: list[tuple[int, int, Key]] = field(default_factory=list)
    """By the end of their time, as a heap; those that are not pending do not count."""

    @property
    def done_offset(self) -> int:
        """Up to here everything is done."""
        for pending in self.pending.values():
            return pending.revive_offset - 1
        return self.next_offset - 1


@dataclass(eq=False, repr=False)
class Reviver:
    """Reads the revive topic; belongs to the event loop."""

    _settings: Settings
    _clock: Clock
    _store: MessageStore
    _offsets: ConsumerOffsets
    _set_aside: SetAside
    _timers: TimerService
    _revive_topic: ReviveTopic
    _retry_writer: RetryWriter
    _watermark: AckWatermark

    def __post_init__(self) -> None:
        self._topic = self._revive_topic.topic
        self._retry_writer.on_ready = self.wake
        self.queues: list[ReviveQueue] = []
        self.checkpoints = 0
        """How many were read since the start."""
        self.acks = 0
        self._cold: Pending | None = None
        """A checkpoint whose messages are to be brought into memory."""
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False

    # Life

    def start(self) -> None:
        """Go on where the last run ended."""
        offsets, config = self._offsets, self._settings.broker
        self.queues = [
            ReviveQueue(number, self._first_of(number, offsets.query(REVIVE_GROUP, self._topic, number) + 1))
            for number in range(config.revive_queue_num)
        ]
        self._store.arrivals.append(self._arrived, self._topic)
        self._wake.set()
        self._task = asyncio.ensure_future(self._run())

    def _first_of(self, queue_id: int, offset: int) -> int:
        """Where a queue is read on; after its end, all that comes until then would be skipped."""
        queue = self._store.queues.find(self._topic, queue_id)
        return offset if queue is None else min(offset, queue.max_offset)

    async def stop(self) -> None:
        """Bring nothing back any more."""
        if self._task is None:
            return
        self._store.arrivals.remove(self._arrived, self._topic)
        self._is_stopping = True
        self._wake.set()
        await asyncio.wait([self._task], timeout=STOP_S)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
        self._task = None

    def wake(self) -> None:
        """Look again, soon."""
        self._wake.set()

    def _arrived(
        self, topic: str, queue_id: int, offset: int, code: int, stored_ms: int, block: bytes | memoryview
    ) -> None:
        self._wake.set()

    async def _run(self) -> None:
        while not self._is_stopping:
            self._wake.clear()
            try:
                for queue in self.queues:
                    await self._go_on(queue)
                sleep_s = self._sleep_s()
            except Exception:
                log.exception("messages are not brought back now; trying again in %d s", FAILURE_S)
                sleep_s = FAILURE_S
            if self._is_stopping:
                return
            try:
                async with asyncio.timeout(sleep_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _sleep_s(self) -> float | None:
        due = [queue.due[0][0] for queue in self.queues if queue.due]
        if not due:
            return None
        left_s = (min(due) - self._clock.now_ms()) / 1000
        return min(max(left_s, WAIT_S), LONGEST_SLEEP_S)

    # For whoever looks

    @property
    def revived(self) -> int:
        """How many messages were brought back since the start."""
        return self._retry_writer.revived

    def lag_of(self, queue: ReviveQueue) -> tuple[int, int]:
        """How many records of a queue are not read, or not done, and how late the first one is."""
        unread = max(self._end_of(queue) - queue.next_offset, 0)
        due = queue.due[:1]
        late_ms = max(self._clock.now_ms() - due[0][0], 0) if due else 0
        return unread + len(queue.pending), late_ms

    # One queue

    async def _go_on(self, queue: ReviveQueue) -> None:
        """Read a queue to its end, and do the checkpoints whose time is over."""
        while not self._is_stopping:
            await self._read(queue)
            if queue.next_offset >= self._end_of(queue):
                if not self._revive_due(queue):
                    break
                if self._cold is not None:
                    cold, self._cold = self._cold, None
                    await self._retry_writer.fetch(cold.checkpoint)
                    cold.is_fetched = True
            await asyncio.sleep(0)  # others get their turn
        self._commit(queue)

    def _end_of(self, queue: ReviveQueue) -> int:
        return self._store.queues.bounds(self._topic, queue.queue_id)[1]

    async def _read(self, queue: ReviveQueue) -> None:
        if queue.next_offset >= self._end_of(queue):
            return
        found = await self._store.get(self._topic, queue.queue_id, queue.next_offset, AT_ONCE)
        for view, offset in zip(found.records, found.queue_offsets, strict=True):
            try:
                self._take(queue, decode_record(view), offset)
            except Exception as error:
                self._set_aside.add_failed(POPS, self._topic, queue.queue_id, offset, error)
            queue.next_offset = offset + 1
        queue.next_offset = max(queue.next_offset, found.next_offset)  # records that are gone

    def _take(self, queue: ReviveQueue, record: Record, offset: int) -> None:
        if record.topic != self._topic:
            raise UnprocessableError(f"it is a message of topic {record.topic!r}")
        block = bytes(record.properties_block)
        tag = find_property(block, TAGS)
        if tag == CHECKPOINT_TAG:
            self.checkpoints += 1
            checkpoint = decode_checkpoint(record.body)
            if checkpoint.topic is None or checkpoint.group is None:
                return
            latest_ms = self._clock.now_ms() + self._revive_topic.longest_ms + SPARE_MS
            if checkpoint.revive_ms > latest_ms:
                raise UnprocessableError(
                    f"its time {checkpoint.revive_ms} is further away than that of any pop"
                )
            key = self._key(checkpoint)
            if key not in queue.pending:  # timers may deliver twice
                pending = Pending(checkpoint, offset, find_property(block, TIMER_OUT_MS) is not None)
                if not pending.is_done:
                    queue.pending[key] = pending
                    heapq.heappush(queue.due, (checkpoint.revive_ms, offset, key))
        elif tag in (ACK_TAG, BATCH_ACK_TAG):
            self.acks += 1
            ack = decode_ack(record.body)
            key = self._key(ack)
            acknowledged = queue.pending.get(key)
            if acknowledged is not None:
                for each in [ack.offset] if ack.offsets is None else ack.offsets:
                    index = acknowledged.checkpoint.index_of(each)
                    if index >= 0:
                        acknowledged.checkpoint.bits |= 1 << index
                if acknowledged.is_done:
                    del queue.pending[key]

    def _key(self, of: Checkpoint | Ack) -> Key:
        name = of.broker_name or self._settings.broker.broker_name
        return of.topic, of.group, of.queue_id, of.start_offset, of.pop_time_ms, name

    # Checkpoints whose time is over

    def _revive_due(self, queue: ReviveQueue) -> bool:
        """Do some checkpoints; False if none of them can be done now."""
        over_ms, saved_ms = self._watermark.settled_ms(), self._timers.progress.last_read_time_ms
        now_ms = self._clock.now_ms()
        due, enough = queue.due, self._retry_writer.revived + AT_ONCE
        did_some = False
        while self._retry_writer.revived < enough:
            while due and due[0][2] not in queue.pending:
                heapq.heappop(due)
            if not due or due[0][0] > over_ms:
                break
            revive_ms, _, key = due[0]
            pending = queue.pending[key]
            if (
                pending.is_timed
                and saved_ms < revive_ms - CHECKPOINT_LEAD_MS
                and now_ms < revive_ms + SAVE_MS
            ):
                break
            outcome = self._revive(queue, pending)
            if outcome is not Outcome.DONE:
                self._cold = pending if outcome is Outcome.COLD else None
                return did_some or outcome is Outcome.COLD
            heapq.heappop(due)
            del queue.pending[key]
            did_some = True
        return did_some

    def _revive(self, queue: ReviveQueue, pending: Pending) -> Outcome:
        try:
            return self._retry_writer.revive(
                pending.checkpoint, queue.queue_id, is_fetched=pending.is_fetched
            )
        except Exception as error:
            self._set_aside.add_failed(POPS, self._topic, queue.queue_id, pending.revive_offset, error)
            return Outcome.DONE

    def _commit(self, queue: ReviveQueue) -> None:
        offset = queue.done_offset
        if offset > self._offsets.query(REVIVE_GROUP, self._topic, queue.queue_id):
            self._offsets.commit_own("reviving", REVIVE_GROUP, self._topic, queue.queue_id, offset)
