"""Pop offsets over a crash: the saved offsets, completed from the checkpoints in the log.

Offsets are saved every few seconds, and a broker that is killed has handed out more since then. Without
further care it would hand that out once more after its start, acknowledged or not. So the file of the offsets
says also up to where the log is in it, and a start reads the checkpoints after that.

Rules kept here:
- Offsets are saved only once the checkpoints of what was handed out are on the disk; no crash of the machine
  makes a group pass over a message.
- Where the file has no mark, because it is new or Apache's broker wrote it, it gets one before the first pop.
- The last record of a queue counts, whatever the offset was before: a group may have been sent back.
- Apache's broker drops the mark when it saves offsets. Then they count as they are.
"""

from __future__ import annotations

import logging
from typing import ClassVar, Final, NamedTuple

from cometmq.broker.groups.offsets import ConsumerOffsets
from cometmq.broker.pop.revive_topic import CHECKPOINT_TAG, NEXT_OFFSET, ReviveTopic
from cometmq.broker.saved_tables import TableFiles
from cometmq.broker.settings import Settings
from cometmq.broker.topics.topics import Topics
from cometmq.model.errors import HeaderError, ProtocolError
from cometmq.model.java_numbers import natural_long
from cometmq.model.message_properties import REAL_TOPIC, TAGS, TIMER_DEQUEUE_MS, TIMER_ROLL_TIMES
from cometmq.model.names import TIMER_TOPIC
from cometmq.store.message_store import MessageStore
from cometmq.store.status import PutStatus
from cometmq.store.tables.tables import ConsumerOffsetTable, QueueOffsets
from cometmq.wire.bodies.pop import decode_ack, decode_checkpoint
from cometmq.wire.record.codec import Record, decode_record
from cometmq.wire.record.properties import decode_properties

log = logging.getLogger("cometmq.broker")

AT_ONCE: Final = 512


class PoppedOffsetTable(ConsumerOffsetTable):
    """Offsets of groups, and up to where in the log what they popped is in them."""

    file_name: ClassVar[str] = ConsumerOffsetTable.file_name

    popped_up_to: dict[str, QueueOffsets] | None = None
    """By topic and queue: the next record of the log that is not in the offsets."""


class MovedOffset(NamedTuple):
    """A record of the log that moves a group on in a queue."""

    physical_offset: int
    topic: str
    group: str
    queue_id: int
    next_offset: int


class PopProgress:
    """Saves offsets, and completes them at a start; belongs to the event loop."""

    def __init__(
        self,
        settings: Settings,
        files: TableFiles,
        store: MessageStore,
        topics: Topics,
        offsets: ConsumerOffsets,
        revive_topic: ReviveTopic,
    ) -> None:
        self._offsets = offsets
        self._settings = settings
        self._store = store
        self._topics = topics
        self._topic = revive_topic.topic
        self._file = files.table(PoppedOffsetTable, self.snapshot)
        self._safe: PoppedOffsetTable | None = None
        self._read_from: dict[str, QueueOffsets] | None = None

    # File

    def load(self) -> None:
        """Take over what was saved; blocks."""
        saved = self._file.file.load()
        self._offsets.load(saved)
        if saved is not None:
            self._read_from = saved.popped_up_to

    def snapshot(self) -> PoppedOffsetTable:
        """The offsets up to which all checkpoints are on the disk."""
        return self._safe or self._current()

    def _current(self) -> PoppedOffsetTable:
        offsets = self._offsets.snapshot()
        queues_read = [(TIMER_TOPIC, 0)]
        queues_read += ((self._topic, number) for number in range(self._settings.broker.revive_queue_num))
        up_to: dict[str, QueueOffsets] = {}
        for topic, queue_id in queues_read:
            _, up_to.setdefault(topic, {})[queue_id] = self._store.queues.bounds(topic, queue_id)
        return PoppedOffsetTable(offsets.data_version, offsets.offset_table, popped_up_to=up_to)

    def save_soon(self) -> None:
        """Save changed offsets, once the checkpoints of what was handed out are on the disk."""
        if not self._offsets.is_dirty:
            return
        self._offsets.is_dirty = False
        table, store = self._current(), self._store

        def done(status: PutStatus) -> None:
            if status is PutStatus.PUT_OK:
                self._safe = table
                self._file.changed()
            else:
                self._offsets.is_dirty = True

        store.flusher.when_flushed(store.log.max_offset, done)

    async def save(self) -> None:
        """Save the offsets as they are now; they stay as they were saved if the log cannot be synced."""
        store = self._store
        if await store.flusher.wait_flushed(store.log.max_offset) is PutStatus.PUT_OK:
            self._safe = self._current()
            self._file.changed()

    # Start

    async def complete(self) -> None:
        """Move groups on by what they popped after their offsets were saved."""
        if self._read_from is None:  # from now on there is a mark
            await self.save()
            await self._file.saved()
            return
        found: list[MovedOffset] = []
        for topic, queues in self._read_from.items():
            if topic in (TIMER_TOPIC, self._topic):
                for queue_id, offset in queues.items():
                    await self._read(topic, queue_id, offset, found)
        for _, topic, group, queue_id, offset in sorted(found):
            queue = self._store.queues.find(topic, queue_id)
            # A queue that is shorter is another one: its topic was deleted and made anew.
            if self._topics.get(topic) is not None and queue is not None and offset <= queue.max_offset:
                self._offsets.commit("recovery", group, topic, queue_id, offset)
        if found:
            log.info("%d checkpoints after the saved offsets were read", len(found))

    async def _read(self, topic: str, queue_id: int, offset: int, found: list[MovedOffset]) -> None:
        while True:
            result = await self._store.get(topic, queue_id, offset, AT_ONCE)
            for view in result.records:
                try:
                    record = decode_record(view)
                except ProtocolError:  # whoever works through the topic sets it aside
                    continue
                moved = self._moved_by(record)
                if moved is not None:
                    found.append(moved)
            if result.next_offset <= offset:
                return
            offset = result.next_offset

    def _moved_by(self, record: Record) -> MovedOffset | None:
        """What a record moves on, and to where; None if it moves nothing."""
        properties = decode_properties(record.properties_block)
        # Any timed message can have the property; only those for the revive topic are the broker's.
        if record.topic != self._topic and properties.get(REAL_TOPIC) != self._topic:
            return None
        next_offset = natural_long(properties.get(NEXT_OFFSET))
        # What the timers have handled since then was new before.
        if next_offset is None or TIMER_DEQUEUE_MS in properties or TIMER_ROLL_TIMES in properties:
            return None
        try:
            read = decode_checkpoint if properties.get(TAGS) == CHECKPOINT_TAG else decode_ack
            noted = read(record.body)
        except HeaderError:
            return None
        if noted.topic is None or noted.group is None:
            return None
        return MovedOffset(record.physical_offset, noted.topic, noted.group, noted.queue_id, next_offset)
