"""Looking up single messages by physical offset, time, key or unique key.

Rules kept here:
- A physical offset from outside counts only if a record begins there.
- The index knows hashes, so it may find another message; the caller compares the keys.
- The index is asked once. It returns the newest messages first, so if none of them exists any more, no older
  one does.
"""

from __future__ import annotations

from typing import Final

import msgspec

from cometmq.store.config import StoreConfig
from cometmq.store.index.index import Index
from cometmq.store.log.damage import whole_record
from cometmq.store.log.reader import LogReader
from cometmq.store.queue.consume_queue import Boundary
from cometmq.store.queue.consume_queues import ConsumeQueues
from cometmq.store.skipped import Skipped

NO_TIME: Final = -1
"""The store time of a message that does not exist."""


class QueryResult(msgspec.Struct):
    """The messages found for a key."""

    records: list[memoryview]
    """In the order of the log."""
    size: int = 0
    """The bytes of all records."""
    index_last_time_ms: int = 0
    """The store time of the last indexed message."""
    index_last_offset: int = 0
    """Its physical offset."""


class MessageLookup:
    """Finds messages in the log through queues and index."""

    def __init__(
        self,
        log: LogReader,
        queues: ConsumeQueues,
        index: Index,
        config: StoreConfig,
        skipped: Skipped | None = None,
    ) -> None:
        self._log = log
        self._checks = config.checks_records
        self._skipped = skipped or Skipped()
        self._queues = queues
        self._index = index
        self._max_matches = config.max_msgs_num_batch
        self._max_unique_matches = config.default_query_max_num

    def at(self, physical_offset: int) -> memoryview | None:
        """The record at a physical offset; None without one, or if records are checked and it is damaged."""
        record = self._log.record_at(physical_offset)
        if record is None or (self._checks and whole_record(record, physical_offset, sealed=True) is None):
            return None
        return record

    def offset_by_time(
        self, topic: str, queue_id: int, time_ms: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """The offset of the message at a point in time; 0 for a missing queue."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.offset_by_time(time_ms, self._store_time, boundary)

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """The store time of the message at a queue offset; -1 without one."""
        queue = self._queues.find(topic, queue_id)
        unit = None if queue is None else queue.unit(queue_offset)
        return NO_TIME if unit is None else self._store_time(unit[0], unit[1])

    def earliest(self) -> int:
        """The store time of the first message of the log; -1 without one."""
        return self._store_time(self._log.min_offset, 0)

    def _store_time(self, physical_offset: int, _: int) -> int:
        time_ms = self._log.store_time(physical_offset)
        return NO_TIME if time_ms is None else time_ms

    def query(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int, *, unique: bool = False
    ) -> QueryResult:
        """Messages with a key, or a unique key, that were stored in a time range."""
        max_count = min(self._max_unique_matches if unique else max_count, self._max_matches)
        matches = self._index.find(topic, key, max_count, begin_ms, end_ms)
        records = []
        for offset in sorted(set(matches.physical_offsets)):
            record = self.at(offset)
            if record is not None:
                records.append(record)
            elif offset >= self._log.min_offset:
                self._skipped.index_entry(topic, key, offset)
        if not matches.physical_offsets:
            return QueryResult(records)
        return QueryResult(records, sum(map(len, records)), matches.last_time_ms, matches.last_offset)
