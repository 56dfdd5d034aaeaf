"""Keeping what is known of exactly-once writers through any stop of the broker.

Rules kept here:
- The log alone decides. What is saved is a shortcut: how far the lanes were at an offset of the log, written
  when the log is on the disk up to there. At a start the log behind that offset is walked.
- A saved table that speaks of more log than there is, does not fit it, or cannot be read, counts for nothing:
  the whole log is walked then.
- Without a saved table nothing of the kind is in the log, because the table is saved before the first message
  is taken. A broker that never had such a writer has no file, and walks nothing.
"""

from __future__ import annotations

import logging
from typing import Final

from cometmq.broker.saved_tables import TableFiles
from cometmq.broker.send.writer_sequences import OnceLanes, OnceTable
from cometmq.broker.settings import Settings
from cometmq.broker.topics.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from cometmq.model.message_properties import ONCE, REAL_TOPIC
from cometmq.ports.clock import Clock
from cometmq.store.log.marked_walk import MarkedWalk
from cometmq.store.message_store import MessageStore
from cometmq.store.status import PutStatus
from cometmq.wire.exactly_once import ONCE_MARKER, read_step
from cometmq.wire.record.properties import find_property
from cometmq.wire.record.record import Record
from cometmq.wire.record.walk import WalkEnd

log = logging.getLogger("cometmq.broker")

SAVE_S: Final = 10.0
_COPIES: Final = (RETRY_PREFIX, DEAD_LETTER_PREFIX)


class ExactlyOnce:
    """The lanes, on the disk; belongs to the event loop but for `load`."""

    def __init__(self, settings: Settings, clock: Clock, files: TableFiles, store: MessageStore) -> None:
        self._settings = settings
        self._store = store
        self._clock = clock
        self.lanes = OnceLanes()
        self._safe = OnceTable()
        """What may be saved: the log is on the disk as far as it says."""
        self._file = files.table(OnceTable, lambda: self._safe)
        self._is_flushing = False
        self.is_dirty = False
        """Whether lanes went on since they were last copied to be saved."""
        self.is_ready = False
        """Whether a table is on the disk, so that messages can be taken."""

    def load(self) -> None:
        """Read what was saved, and the log behind it; this blocks."""
        saved = self._file.file.load()
        if saved is None and self._file.file.is_begun_anew:
            saved = OnceTable()  # which is that of the beginning of the log
        if saved is None:
            return
        self.is_ready = True
        reader = self._store.log
        start = max(saved.log_offset, reader.min_offset)
        if start <= reader.max_offset:
            self.lanes.load(saved.lanes)
            if self._walk(start):
                return
        log.warning("%s does not fit the log; the whole log is read", self._file.file.path)
        self.lanes.load([])
        self._walk(reader.min_offset)

    def _walk(self, start: int) -> bool:
        """Find the messages of lanes from an offset on; False if there is no record at that offset."""
        walk = MarkedWalk(self._store.log, start, ONCE_MARKER)
        for record in walk:
            self._found(record)
            self.is_dirty = True
        return walk.end is not WalkEnd.MALFORMED or walk.position > start

    def _found(self, record: Record) -> None:
        block = record.properties_block
        step = read_step(find_property(block, ONCE) or "")
        topic = find_property(block, REAL_TOPIC) or record.topic
        if step is not None and not topic.startswith(_COPIES) and not record.topic.startswith(_COPIES):
            start = record.physical_offset
            self.lanes.found(topic, step, start, start + record.total_size, record.store_timestamp_ms)

    # Saving

    async def prepare(self) -> None:
        """Make sure that a table is on the disk; raises `StoreError` if it cannot be put there."""
        if not self.is_ready:
            # Nothing of the kind is in the log yet, whether that is on the disk or not.
            self._safe = OnceTable(self._store.log.max_offset)
            self._file.changed()
            await self._file.saved()
            self.is_ready = True

    def save_soon(self) -> None:
        """Save the lanes, if they went on, when the log is on the disk as far as they tell of it."""
        if self.lanes.forget_idle(self._clock.now_ms()):
            self.is_dirty = True
        if self.is_dirty and not self._is_flushing:
            self._is_flushing = True
            self.is_dirty = False
            offset = self._store.log.max_offset
            table = OnceTable(offset, self.lanes.all())
            self._store.flusher.when_flushed(offset, lambda status: self._flushed(table, status))

    def _flushed(self, table: OnceTable, status: PutStatus) -> None:
        self._is_flushing = False
        if status is PutStatus.PUT_OK:
            self._safe = table
            self._file.changed()
        else:
            self.is_dirty = True

    async def save(self) -> None:
        """Save what there is, for the last time; the log is on the disk."""
        if self.is_dirty:
            offset = self._store.log.max_offset
            if self._store.flusher.flushed_offset >= offset:
                self.is_dirty = False
                self._safe = OnceTable(offset, self.lanes.all())
                self._file.changed()
        await self._file.stop()

    async def wait_safe(self, end_offset: int) -> bool:
        """Wait until what was put is as safe as the settings ask for; False if that took too long."""
        if self._settings.store.flush_disk_type != "SYNC_FLUSH":
            return True
        status = await self._store.flusher.wait_flushed(end_offset)
        return status is PutStatus.PUT_OK
