"""Finding messages without a pull: by key, by offset in the log, by time.

Rules kept here: nobody waits for a message on the event loop. What may be cold is brought into memory by a
worker thread first; where several decide, as in a search by time, one after the other.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from cometmq.store.queue.consume_queue import Boundary
from cometmq.store.read.lookup import QueryResult
from cometmq.wire.record.layout import peek_physical_offset

if TYPE_CHECKING:
    from cometmq.store.message_store import MessageStore

_FIRST_FETCH: Final = 4096
"""The bytes fetched of a record whose size is not known."""
MAX_QUERIED: Final = 64 * 1024 * 1024
"""The limit of the bytes of one query by key; the newest messages are left out beyond that."""
_MAX_MATCHES: Final = 64


class Queries:
    """Questions to a store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    async def record_at(self, physical_offset: int) -> memoryview | None:
        """The record at an offset of the log; None if there is none."""
        log = self._store.log
        if not log.min_offset <= physical_offset < log.max_offset:
            return None
        await self._fetch([(physical_offset, _FIRST_FETCH)])
        record = self._store.lookup.at(physical_offset)
        if record is not None and len(record) > _FIRST_FETCH:
            await self._fetch([(physical_offset, len(record))])
        return record

    async def by_key(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int, *, unique: bool
    ) -> QueryResult:
        """The messages with a key, or with a unique key, of a span of time."""
        matches = self._store.index.find(topic, key, min(max_count, _MAX_MATCHES), begin_ms, end_ms)
        await self._fetch([(offset, _FIRST_FETCH) for offset in matches.physical_offsets])
        found = self._store.lookup.query(topic, key, max_count, begin_ms, end_ms, unique=unique)
        kept: list[memoryview] = []
        size = 0
        for record in found.records:
            if size + len(record) > MAX_QUERIED:
                break
            size += len(record)
            kept.append(record)
        found.records, found.size = kept, size
        offsets = (peek_physical_offset(record, 0) for record in kept)
        large = [(at, len(each)) for at, each in zip(offsets, kept, strict=True) if len(each) > _FIRST_FETCH]
        if large:
            await self._fetch(large)
        return found

    async def offset_by_time(
        self, topic: str, queue_id: int, time_ms: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """The offset of a queue at a point in time; 0 for a queue that is not there."""
        store = self._store
        queue = store.queues.find(topic, queue_id)
        if queue is None:
            return 0
        low, high = queue.min_offset, queue.max_offset
        while low < high and store.reader.cold_ranges(topic, queue_id, low, 1):
            middle = (low + high) // 2
            await self._warm(topic, queue_id, middle)
            if store.lookup.store_time(topic, queue_id, middle) < time_ms:
                low = middle + 1
            else:
                high = middle
        offset = store.lookup.offset_by_time(topic, queue_id, time_ms, boundary)
        return max(queue.min_offset, min(offset, queue.max_offset))

    async def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """When the message at an offset of a queue was stored; -1 if it is not there."""
        await self._warm(topic, queue_id, queue_offset)
        return self._store.lookup.store_time(topic, queue_id, queue_offset)

    async def _warm(self, topic: str, queue_id: int, queue_offset: int) -> None:
        cold = self._store.reader.cold_ranges(topic, queue_id, queue_offset, 1)
        if cold:
            await self._fetch(cold)

    async def _fetch(self, ranges: list[tuple[int, int]]) -> None:
        await asyncio.to_thread(self._store.log.fetch, ranges)
