"""Delay levels: messages wait in SCHEDULE_TOPIC_XXXX and are delivered when they are due.

Rules kept here:
- A delayed message waits in the queue of its level, in the order of its arrival; its queue entry has the due
  time in place of the hash of its tags. REAL_TOPIC and REAL_QID name its target, and stay.
- Nothing polls: one timer waits for the first message that is due. It wakes every second all the same,
  because the wall clock, which decides, may be set.
- A level's offset moves on when the message is in the log again. Offsets are saved only once the delivered
  messages are on the disk, so that no crash loses one; after an orderly stop the next start goes on exactly
  there, after a kill messages of the last two seconds may be delivered again: a save begins every second, and
  waits for the disk.
- A due time further away than the level's delay comes from a clock that was wrong; such a message is due now.
- A record that can never be delivered is set aside, and its level goes on with the next. While the store
  takes nothing, a level tries its next message again, after longer and longer pauses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cometmq.broker.monitor.counters import Traffic
from cometmq.broker.real_targets import RealTargets, restored
from cometmq.broker.saved_tables import TableFiles
from cometmq.broker.send.properties import TIMER_PROPERTIES, stored_block
from cometmq.broker.set_aside import DELAYS, BackOff, SetAside, UnprocessableError, check_put
from cometmq.broker.settings import Settings
from cometmq.model.java_numbers import natural_int
from cometmq.model.message_properties import DELAY, REAL_QUEUE_ID, REAL_TOPIC
from cometmq.model.names import DELAY_TOPIC
from cometmq.model.topic import DataVersion
from cometmq.ports.clock import Clock
from cometmq.store.dispatch_rules import DelayLevels
from cometmq.store.message_store import MessageStore
from cometmq.store.queue.consume_queue import ConsumeQueue
from cometmq.store.queue.extension import is_ext_address
from cometmq.store.status import PutStatus
from cometmq.store.tables.tables import DelayOffsetTable
from cometmq.wire.record.codec import Record, decode_record

log = logging.getLogger("cometmq.broker")

AT_ONCE: Final = 32
"""Messages that are delivered before others get their turn."""
LONGEST_SLEEP_S: Final = 1.0
FAILURE_S: Final = 10.0

_NEVER: Final = float("inf")


def read_level(properties: Mapping[str, str]) -> int:
    """The delay level that properties ask for; 0 if none, or if it is no number."""
    return natural_int(properties.get(DELAY)) or 0


def put_aside(record: Record, properties: dict[str, str], level: int, levels: DelayLevels) -> None:
    """Turn a message into one that waits in the queue of its level."""
    level = max(min(level, len(levels.delays_ms)), 1)
    for name in TIMER_PROPERTIES:
        properties.pop(name, None)
    properties[DELAY] = str(level)
    properties[REAL_TOPIC] = record.topic
    properties[REAL_QUEUE_ID] = str(record.queue_id)
    record.topic = DELAY_TOPIC
    record.queue_id = level - 1
    record.properties_block = stored_block(properties)


@dataclass(eq=False, repr=False)
class DelayService:
    """Delivers delayed messages; belongs to the event loop."""

    _settings: Settings
    _clock: Clock
    _files: TableFiles
    _store: MessageStore
    _traffic: Traffic
    _targets: RealTargets
    _set_aside: SetAside

    def __post_init__(self) -> None:
        self.levels = DelayLevels(self._settings.store.message_delay_level)
        self.offsets: dict[int, int] = {}
        """By level: the next offset of its queue."""
        self._due_ms: dict[int, float] = dict.fromkeys(range(1, len(self.levels.delays_ms) + 1), _NEVER)
        """By level: when the next message is due."""
        self._data_version = DataVersion(0, self._clock.now_ms(), 0)
        self._version_step = self._settings.broker.delay_offset_update_version_step
        self._moves = 0
        self._saved_moves = 0
        self._safe: DelayOffsetTable | None = None
        self._file = self._files.table(DelayOffsetTable, self.snapshot)
        self._back_off = BackOff()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # File

    def load(self) -> None:
        """Take over what was saved; blocks."""
        saved = self._file.file.load()
        if saved is not None:
            self.offsets.update(saved.offset_table)
            self._data_version = saved.data_version or self._data_version

    def take_over(self, copied: DelayOffsetTable) -> None:
        """Have the offsets of the master."""
        if copied.offset_table != self.offsets:
            self.offsets = dict(copied.offset_table)
            self._data_version = copied.data_version or self._data_version
            self._safe = self.current()
            self._file.changed()

    def snapshot(self) -> DelayOffsetTable:
        """The offsets up to which all delivered messages are on the disk."""
        return self._safe or self.current()

    def current(self) -> DelayOffsetTable:
        return DelayOffsetTable(self._data_version, dict(self.offsets))

    def save_soon(self) -> None:
        """Save the offsets, if they moved, once what was delivered is on the disk."""
        if self._moves == self._saved_moves:
            return
        moves, table = self._moves, self.current()

        def done(status: PutStatus) -> None:
            if status is PutStatus.PUT_OK:
                self._saved_moves = max(self._saved_moves, moves)
                self._safe = table
                self._file.changed()

        store = self._store
        store.flusher.when_flushed(store.log.max_offset, done)

    async def save(self) -> None:
        """Save the offsets as they are now; they stay as they were saved if the log cannot be synced."""
        store = self._store
        if await store.flusher.wait_flushed(store.log.max_offset) is PutStatus.PUT_OK:
            self._safe = self.current()
            self._file.changed()

    # Life

    def start(self) -> None:
        """Go on where the last run ended; a slave delivers nothing."""
        if self._settings.is_slave:
            return
        queues = self._store.queues
        for level in self._due_ms:
            first, end = queues.bounds(DELAY_TOPIC, level - 1)
            at = self.offsets.get(level, 0)
            queue_offset = min(max(at, first), end)
            if queue_offset != at:
                log.warning("delay level %d goes on at %d: %d is not in its queue", level, queue_offset, at)
            if queues.find(DELAY_TOPIC, level - 1) is not None or level in self.offsets:
                self.offsets[level] = queue_offset
            self._look(level)
        self._safe = self.current()
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """Deliver no more; nothing is half delivered."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task])
        self._task = None

    def stored(self, record: Record) -> None:
        """A message was put aside, or it was tried."""
        level = record.queue_id + 1
        if self._due_ms.get(level) == _NEVER and record.store_timestamp_ms:
            self._due_ms[level] = record.store_timestamp_ms + self.levels.delays_ms[level - 1]
            self.offsets.setdefault(level, record.queue_offset)
            self._wake.set()

    async def _run(self) -> None:
        while True:
            pause_s = 0.0
            try:
                pause_s = await self._deliver_due()
            except Exception:
                log.exception("delayed messages could not be delivered; trying again in %d s", FAILURE_S)
                pause_s = FAILURE_S
            if pause_s:
                await asyncio.sleep(pause_s)
                continue
            self._wake.clear()
            next_ms = min(self._due_ms.values(), default=_NEVER)
            try:
                async with asyncio.timeout(self._sleep_s(next_ms)):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _sleep_s(self, next_ms: float) -> float | None:
        if next_ms == _NEVER:
            return None
        return min(max(next_ms - self._clock.now_ms(), 0) / 1000, LONGEST_SLEEP_S)

    async def _deliver_due(self) -> float:
        """Deliver due messages; returns how long to wait if one could not be put."""
        more = True
        while more:
            more = False
            for level, due_ms in self._due_ms.items():
                if due_ms > self._clock.now_ms():
                    continue
                if not await self._deliver(level):
                    return self._back_off.failed()
                self._back_off.succeeded()
                self._look(level)
                more |= self._due_ms[level] <= self._clock.now_ms()
                await asyncio.sleep(0)  # others get their turn
        return 0.0

    async def _deliver(self, level: int) -> bool:
        """Deliver some messages of a level; False if that did not go on."""
        offset, count = self._due_range(level)
        if not count:
            return False
        found = await self._store.get(DELAY_TOPIC, level - 1, offset, count)
        for view, queue_offset in zip(found.records, found.queue_offsets, strict=True):
            try:
                if not self._deliver_one(decode_record(view)):
                    return False
                self._traffic.delayed_messages += 1
            except Exception as error:
                self._set_aside.add_failed(DELAYS, DELAY_TOPIC, level - 1, queue_offset, error)
            self._move(level, queue_offset + 1)
        if found.next_offset > self.offsets.get(level, 0):  # records that are gone are passed over
            self._move(level, found.next_offset)
        return self.offsets.get(level, 0) > offset

    def _deliver_one(self, waiting: Record) -> bool:
        """Put a message where it belongs; False if it cannot be put now."""
        if waiting.topic != DELAY_TOPIC:
            raise UnprocessableError(f"it is a message of topic {waiting.topic}")
        properties = waiting.properties()
        target = self._targets.find(properties.get(REAL_TOPIC), properties.get(REAL_QUEUE_ID))
        message = restored(waiting, *target, stored_block(properties))
        status = self._store.put(message).status
        is_put = check_put(status)
        if not is_put and self._back_off.is_first:
            log.warning("a delayed message for %s cannot be put yet: %s", message.topic, status.value)
        return is_put

    def _move(self, level: int, offset: int) -> None:
        self.offsets[level] = offset
        self._moves += 1
        if self._moves % self._version_step == 0:
            self._data_version = self._data_version.after(self._clock.now_ms())

    def _due_range(self, level: int) -> tuple[int, int]:
        """Where a level goes on, and how many messages from there on are due, of those delivered at once."""
        offset = self.offsets.get(level, 0)
        queue = self._store.queues.find(DELAY_TOPIC, level - 1)
        if queue is None:
            return offset, 0
        offset = max(offset, queue.min_offset)
        now_ms = self._clock.now_ms()
        count = 0
        for unit in queue.units(offset, AT_ONCE):
            if self._due(level, queue, unit[2], now_ms) > now_ms:
                break
            count += 1
        return offset, count

    def _look(self, level: int) -> None:
        """Note when the next message of a level is due."""
        queue = self._store.queues.find(DELAY_TOPIC, level - 1)
        self._due_ms[level] = _NEVER
        if queue is not None:
            unit = queue.unit(max(self.offsets.get(level, 0), queue.min_offset))
            if unit is not None:
                self._due_ms[level] = self._due(level, queue, unit[2], self._clock.now_ms())

    def _due(self, level: int, queue: ConsumeQueue, code: int, now_ms: int) -> int:
        """When the message of a queue unit is due."""
        if is_ext_address(code) and queue.ext is not None:
            ext = queue.ext.get(code)
            code = now_ms if ext is None else ext.tags_code
        return code if code <= now_ms + self.levels.delays_ms[level - 1] else now_ms
