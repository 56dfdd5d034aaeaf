"""Timer enqueue: from the timer topic into the timer log and the wheel.

Rules kept here:
- Messages are taken in the order of the timer topic, each once: the queue offset moves on when the record in
  the timer log is complete. Where both disagree after a kill, the newer one of both is right.
- A message further away than the window of the wheel is set for a moment within it, from where it goes
  through the timer topic once more.
- The write time, before which slots are closed, moves only when everything that came before it was taken: a
  cancellation that was accepted in time is in the slot before its messages are delivered.
- A record that is no timed message, or has no time or no target, is set aside.
- A message for a slot that is delivered already is delivered at once. Every other one goes into its slot,
  also if its time is over, as after a long stop: nothing overtakes what is in the wheel, and what was taken
  back in time stays taken back.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cometmq.broker.monitor.counters import TopicCounts, Traffic
from cometmq.broker.real_targets import RealTargets
from cometmq.broker.set_aside import TIMERS, SetAside, UnprocessableError
from cometmq.broker.settings import Settings
from cometmq.broker.timers.files import DECADE_MS, TimerFiles
from cometmq.model.errors import ProtocolError
from cometmq.model.java_numbers import java_long
from cometmq.model.message_properties import REAL_QUEUE_ID, REAL_TOPIC, TIMER_DEL_UNIQKEY, TIMER_OUT_MS
from cometmq.model.names import TIMER_TOPIC
from cometmq.ports.clock import Clock
from cometmq.store.message_store import MessageStore
from cometmq.store.timer.checkpoint import TimerProgress
from cometmq.store.timer.log import MAGIC_DEFAULT, MAGIC_DELETE, MAGIC_ROLL
from cometmq.store.timer.wheel import SLOTS_PER_ROUND
from cometmq.wire.java_hash import java_hash
from cometmq.wire.record.codec import Record, decode_record
from cometmq.wire.record.properties import find_property

if TYPE_CHECKING:
    from cometmq.broker.timers.deliver import TimerDelivery

log = logging.getLogger("cometmq.broker")

AT_ONCE: Final = 32
"""Messages that are taken before others get their turn."""
BLANK_SLOTS: Final = 60
"""The slots of a round that stay empty, so that its end and its beginning never meet."""
_HASHES_REMEMBERED: Final = 4096


@dataclass(eq=False, repr=False)
class TimerEnqueuer:
    """Takes the messages of the timer topic; belongs to the event loop."""

    _settings: Settings
    _clock: Clock
    _store: MessageStore
    _traffic: Traffic
    _targets: RealTargets
    _set_aside: SetAside
    _files: TimerFiles
    _counts: TopicCounts
    _delivery: TimerDelivery

    def __post_init__(self) -> None:
        config = self._settings.store
        self._log, self._wheel = self._files.log, self._files.wheel
        self._slot_ms = config.timer_slot_ms
        most = SLOTS_PER_ROUND - BLANK_SLOTS
        self._window_slots = (
            config.timer_roll_window_slot if 2 <= config.timer_roll_window_slot <= most else most
        )
        self._hashes: dict[str, int] = {}
        self.queue_offset = 0
        """The next offset of the timer topic."""
        self.write_time_ms = 0
        """Slots before this are closed."""
        self.latest_ms = -1
        """The last slot that was ever used."""
        self.taken = 0
        """How many messages were taken since the start."""

    def resume(self, saved: TimerProgress, read_time_ms: int) -> None:
        """Find out where to go on in the timer topic; slots before the read time are delivered."""
        self.write_time_ms = read_time_ms
        found = self._after_last_timer()
        is_whole = self._log.end >= saved.last_timer_log_flush_pos
        if found is None:
            offset = saved.last_timer_queue_offset if is_whole else 0
        else:
            offset = max(found, saved.last_timer_queue_offset) if is_whole else found
        first, end = self._store.queues.bounds(TIMER_TOPIC, 0)
        self.queue_offset = min(max(offset, first), end)
        self.latest_ms = self._wheel.latest()

    def _after_last_timer(self) -> int | None:
        """The offset after the message of the last record in the timer log; None if that is not known."""
        timer = self._log.last()
        if timer is None:
            return None
        view = self._store.log.view(timer.commit_log_offset, timer.message_size)
        if view is None:
            return None
        try:
            message = decode_record(view)
        except ProtocolError:
            return None
        return message.queue_offset + 1 if message.topic == TIMER_TOPIC else None

    def _now_slot(self) -> int:
        return self._clock.now_ms() // self._slot_ms * self._slot_ms

    @property
    def lag(self) -> int:
        """How many messages of the timer topic are to be taken."""
        return max(self._store.queues.bounds(TIMER_TOPIC, 0)[1] - self.queue_offset, 0)

    async def catch_up(self, *, takes: bool = True) -> None:
        """Take everything that is there now, and close the slots that are over."""
        store = self._store
        slot = self._now_slot()
        target = self.queue_offset + self.lag if takes else 0
        while self.queue_offset < target:
            found = await store.get(TIMER_TOPIC, 0, self.queue_offset, AT_ONCE)
            for view, offset in zip(found.records, found.queue_offsets, strict=True):
                try:
                    await self._take(decode_record(view), slot)
                except Exception as error:
                    self._set_aside.add_failed(TIMERS, TIMER_TOPIC, 0, offset, error)
                self.queue_offset = offset + 1
                self.taken += 1
            if found.next_offset > self.queue_offset:  # records that are gone are passed over
                self.queue_offset = found.next_offset
            elif not found.records:
                break
            await asyncio.sleep(0)  # others get their turn
        self.write_time_ms = max(self.write_time_ms, slot)

    async def _take(self, message: Record, now_slot: int) -> None:
        if message.topic != TIMER_TOPIC:
            raise UnprocessableError(f"it is a message of topic {message.topic!r}")
        # Everything that was stored before this message is taken.
        stored_slot = message.store_timestamp_ms // self._slot_ms * self._slot_ms
        self.write_time_ms = max(self.write_time_ms, min(stored_slot, now_slot))
        if self.latest_ms < self._delivery.read_time_ms < self.write_time_ms:
            self._delivery.read_time_ms = self.write_time_ms  # there is nothing in the wheel
        block = bytes(message.properties_block)
        due_ms = java_long(find_property(block, TIMER_OUT_MS))
        if due_ms is None or due_ms > self._clock.now_ms() + DECADE_MS:
            raise UnprocessableError(f"its {TIMER_OUT_MS} is no time within the next years")
        topic, _ = self._targets.find(
            find_property(block, REAL_TOPIC), find_property(block, REAL_QUEUE_ID), from_timers=True
        )
        self._traffic.delayed(topic, max(due_ms - message.born_timestamp_ms, 0))
        if due_ms < self._delivery.read_time_ms:
            await self._delivery.deliver_late(message)
            return
        self.set(
            message,
            due_ms,
            topic,
            is_cancellation=find_property(block, TIMER_DEL_UNIQKEY) is not None,
        )

    def set(self, message: Record, due_ms: int, topic: str, *, is_cancellation: bool) -> None:
        """Put a message into the slot of its time, or of a moment before it."""
        write_time_ms, slot_ms, window = min(self.write_time_ms, due_ms), self._slot_ms, self._window_slots
        magic = MAGIC_DEFAULT
        excess_ms = due_ms - write_time_ms - window * slot_ms
        if excess_ms >= 0:
            magic |= MAGIC_ROLL
            # Near the end of the window there would be too little time left after the next round.
            slots = window // 2 if excess_ms < window // 3 * slot_ms else window
            due_ms = write_time_ms + slots * slot_ms
        if is_cancellation:
            magic |= MAGIC_DELETE
        position = self._log.append(
            self._wheel.last(due_ms),
            magic,
            write_time_ms,
            due_ms - write_time_ms,
            message.physical_offset,
            message.total_size,
            self._hash_of(topic),
        )
        change = -1 if is_cancellation else 1
        self._wheel.add(due_ms, position, change)
        if due_ms > self.latest_ms:
            self.latest_ms = due_ms
        self._counts.add(topic, change)

    def _hash_of(self, topic: str) -> int:
        hashed = self._hashes.get(topic)
        if hashed is None:
            if len(self._hashes) >= _HASHES_REMEMBERED:
                self._hashes.clear()
            hashed = self._hashes[topic] = java_hash(topic)
        return hashed
