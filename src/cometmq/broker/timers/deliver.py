"""Timer delivery: from the wheel into the queues of the messages.

Rules kept here:
- Slots are delivered in their order, and within a slot messages in the order of their arrival. Cancellations
  of a slot are looked at first; a message that one of them names is not delivered.
- The read time, up to which everything is delivered, moves on when all of a slot is in the log.
- A message that cannot be put now, because the disk is full for example, is tried until it can be, after
  longer and longer pauses; those after it wait. What can never be put, or read, is set aside.
- Work is done in small slices, and what may have to wait for the disk is read beside the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar

from cometmq.broker.monitor.counters import TopicCounts
from cometmq.broker.real_targets import RealTargets, restored
from cometmq.broker.send.properties import stored_block
from cometmq.broker.set_aside import TIMERS, BackOff, SetAside, UnprocessableError, check_put, is_passing
from cometmq.broker.settings import Settings
from cometmq.broker.timers.files import TimerFiles
from cometmq.broker.timers.schedule import cancel_key
from cometmq.model.errors import ProtocolError, StoreError
from cometmq.model.java_numbers import LARGEST_LONG, natural_int
from cometmq.model.message_properties import (
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_ROLL_TIMES,
    UNIQ_KEY,
)
from cometmq.model.names import TIMER_TOPIC
from cometmq.ports.clock import Clock
from cometmq.store.message_store import MessageStore
from cometmq.store.timer.log import MAGIC_DELETE, MAGIC_ROLL, TimerRecord
from cometmq.wire.record.codec import Record, decode_record
from cometmq.wire.record.properties import find_property

log = logging.getLogger("cometmq.broker")

T = TypeVar("T")

AT_ONCE: Final = 24
"""Messages that are delivered before others get their turn."""
LATE_AT_ONCE: Final = 48
"""The number while deliveries are late: beside a full load of sends this takes a fifth of the time."""
READ_AT_ONCE: Final = 512
"""Records of the timer log, or messages, that are read in one go, beside the event loop."""
PASSED_AT_ONCE: Final = 2000
"""Empty slots that are passed before others get their turn."""
NEVER_ENQUEUED: Final = str(LARGEST_LONG)


@dataclass(eq=False, repr=False)
class TimerDelivery:
    """Delivers what is due; belongs to the event loop, `worker` reads what may be far back."""

    _settings: Settings
    _clock: Clock
    _worker: Executor
    _store: MessageStore
    _targets: RealTargets
    _set_aside: SetAside
    _files: TimerFiles
    _counts: TopicCounts

    def __post_init__(self) -> None:
        self._log, self._wheel = self._files.log, self._files.wheel
        self._slot_ms = self._settings.store.timer_slot_ms
        self.read_time_ms = 0
        """Slots before this are delivered."""
        self.is_stopping = False
        """Set it to let the delivery end with the slot that it is at."""
        self.delivered = 0
        """How many messages were delivered since the start."""
        self.cancelled = 0
        """How many were not, because they were taken back."""

    async def deliver_before(self, end_ms: int, latest_ms: int) -> None:
        """Deliver all slots before a moment; `latest_ms` is the last slot that is in use."""
        passed = 0
        while self.read_time_ms < end_ms and not self.is_stopping:
            if self.read_time_ms > latest_ms:
                self.read_time_ms = end_ms
                return
            slot = self._wheel.get(self.read_time_ms)
            if slot is not None and slot.last >= 0:
                await self._deliver_slot(slot.last)
            else:
                passed += 1
                if passed % PASSED_AT_ONCE == 0:
                    await asyncio.sleep(0)
            self.read_time_ms += self._slot_ms

    async def _deliver_slot(self, last: int) -> None:
        positions, cancellations = await self._read_chain(last)
        cancelled = await self._read_cancellations(cancellations)
        for end in range(len(positions), 0, -READ_AT_ONCE):
            timers = map(self._log.read, reversed(positions[max(end - READ_AT_ONCE, 0) : end]))
            found = [timer for timer in timers if timer is not None]
            await self._fetch(found)
            await self._deliver_all(found, cancelled)

    async def _deliver_all(self, timers: Sequence[TimerRecord], cancelled: set[str]) -> None:
        start = 0
        while start < len(timers):
            is_late = self._clock.now_ms() > self.read_time_ms + 2 * self._slot_ms
            end = start + (LATE_AT_ONCE if is_late else AT_ONCE)
            for timer in timers[start:end]:
                await self._deliver(timer, cancelled)
            start = end
            await asyncio.sleep(0)  # others get their turn

    async def _read_chain(self, last: int) -> tuple[Sequence[int], list[TimerRecord]]:
        """Where the timers of a slot are in the timer log, newest first, and its cancellations."""
        positions = array("q")
        cancellations: list[TimerRecord] = []
        chain = self._log.walk(last)
        try:
            while timers := await self._on_worker(lambda: list(islice(chain, READ_AT_ONCE))):
                for timer in timers:
                    if timer.magic & (MAGIC_DELETE | MAGIC_ROLL) == MAGIC_DELETE:
                        cancellations.append(timer)
                    else:
                        positions.append(timer.position)
        except StoreError as error:
            log.error("some timers cannot be read: %s", error.message)
        return positions, cancellations

    async def _read_cancellations(self, cancellations: list[TimerRecord]) -> set[str]:
        cancelled: set[str] = set()
        await self._fetch(cancellations)
        for timer in cancellations:
            message = self._message(timer)
            key = None if message is None else find_property(message.properties_block, TIMER_DEL_UNIQKEY)
            if message is not None and key is not None:
                cancelled.add(key)
                # It counted as one less when it was set; the message that it names counts then.
                self._count(find_property(message.properties_block, REAL_TOPIC), 1)
        return cancelled

    async def _fetch(self, timers: Sequence[TimerRecord]) -> None:
        """Bring the messages of timers into memory, those for which the disk has to be asked."""
        read = self._store.log
        cold = read.on_disk((timer.commit_log_offset, timer.message_size) for timer in timers)
        if cold:
            await self._on_worker(lambda: read.fetch(cold))

    async def _on_worker(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    def _message(self, timer: TimerRecord) -> Record | None:
        """The message of a timer; None if it is gone, or is none."""
        view = self._store.lookup.at(timer.commit_log_offset)
        if view is None:
            log.error("the timed message at %d is not there any more", timer.commit_log_offset)
            return None
        try:
            message = decode_record(view)
            if message.topic != TIMER_TOPIC:
                raise UnprocessableError(f"it is a message of topic {message.topic!r}")
        except (ProtocolError, UnprocessableError) as error:
            self._set_aside.add_at(TIMERS, TIMER_TOPIC, timer.commit_log_offset, error)
            return None
        return message

    # One message

    async def _deliver(self, timer: TimerRecord, cancelled: set[str]) -> None:
        message = self._message(timer)
        if message is None:
            return
        try:
            await self._deliver_due(message, timer, cancelled)
        except Exception as error:
            if is_passing(error):
                raise
            self._set_aside.add_record(TIMERS, message, error)

    async def _deliver_due(self, message: Record, timer: TimerRecord, cancelled: set[str]) -> None:
        properties = message.properties()
        topic = properties.get(REAL_TOPIC)
        self._count(topic, 1 if timer.magic & MAGIC_DELETE else -1)
        if cancelled and topic is not None and cancel_key(topic, properties.get(UNIQ_KEY, "")) in cancelled:
            self.cancelled += 1
            return
        properties[TIMER_ENQUEUE_MS] = str(timer.write_time_ms)
        await self._bring_back(message, properties, rolls=bool(timer.magic & MAGIC_ROLL))

    async def deliver_late(self, message: Record) -> None:
        """Deliver a message whose slot was closed before it could be put into it."""
        properties = message.properties()
        properties[TIMER_ENQUEUE_MS] = NEVER_ENQUEUED
        await self._bring_back(message, properties, rolls=False)

    async def _bring_back(self, message: Record, properties: dict[str, str], *, rolls: bool) -> None:
        """Put the message that waited: into its queue, or into the timer topic once more."""
        if rolls:
            topic, queue_id = message.topic, message.queue_id
            rolled = natural_int(properties.get(TIMER_ROLL_TIMES)) or 0
            properties[TIMER_ROLL_TIMES] = str(rolled + 1)
        else:
            if TIMER_DEL_UNIQKEY in properties:
                log.warning("a cancellation for %r came too late", properties[TIMER_DEL_UNIQKEY])
                return
            topic, queue_id = self._targets.find(
                properties.get(REAL_TOPIC), properties.get(REAL_QUEUE_ID), from_timers=True
            )
        properties[TIMER_DEQUEUE_MS] = str(self._clock.now_ms())
        await self._put(restored(message, topic, queue_id, stored_block(properties)))
        self.delivered += not rolls

    async def _put(self, message: Record) -> None:
        back_off = BackOff()
        while not check_put(status := self._store.put(message).status):
            if back_off.is_first:
                log.warning("a timed message for %s cannot be put yet: %s", message.topic, status.value)
            await asyncio.sleep(back_off.failed())

    def _count(self, topic: str | None, change: int) -> None:
        if topic is not None:
            self._counts.add(topic, change)
