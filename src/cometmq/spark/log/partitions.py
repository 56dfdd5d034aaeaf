"""Partitions of the log source: ranges of the log, or messages found through queue files or the index.

Rules kept here:
- The log is cut into ranges of `partitionBytes`; each worker finds its first record. Files outside the
  time range of the query are left out.
- If the topics of a query hold at most `_SMALL_SHARE` of the log, messages are read through queue files,
  and what is not dispatched yet as a range. After a crash queues may lack messages and are not used.
- Messages with given ids or keys are read through the index, and what it does not cover as ranges.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from pyspark.sql.datasource import InputPartition

from cometmq.ports.disk import SystemDisk
from cometmq.spark.log.by_key import look_up
from cometmq.spark.log.chunks import LogFile
from cometmq.spark.log.options import LogOptions, StorePath
from cometmq.spark.log.store import LogStore, StoreState, first_store_time, look_at
from cometmq.spark.pushdown import CLOCK_SLACK_MS, Wanted
from cometmq.store.queue.files import BLANK_SIZE
from cometmq.store.tools.survey import FoundQueue, open_queue

_SMALL_SHARE: Final = 0.25
"""Up to this share of the log, reading single messages is faster."""
_SAMPLED: Final = 100
_RECORDS: Final = 20_000
"""Messages from the index per partition."""


Topics = frozenset[str] | None


class QueueRange(msgspec.Struct, frozen=True):
    """A range of offsets of one queue, and the files of the queue."""

    topic: str
    queue_id: int
    files: list[LogFile]
    first: int
    end: int


@dataclass(eq=False)
class LogPartition(InputPartition):
    """A partition of one store; with `topics`, only their messages are rows."""

    broker_name: str
    topics: Topics


@dataclass(eq=False)
class LogRange(LogPartition):
    file: LogFile
    start: int
    stop: int


@dataclass(eq=False)
class QueueParts(LogPartition):
    """Messages of queue ranges."""

    files: list[LogFile]
    parts: list[QueueRange]


@dataclass(eq=False)
class LogOffsets(LogPartition):
    """Messages at physical offsets, with their sizes."""

    files: list[LogFile]
    records: list[tuple[int, int]]


class _Extent(msgspec.Struct, frozen=True):
    """The offsets of a queue."""

    min_offset: int
    max_offset: int
    last_end: int
    """Physical offset of the end of its last message."""
    usual_size: int
    """Average record size of a sample."""


def plan(options: LogOptions, wanted: Wanted) -> list[InputPartition]:
    """The partitions of a query."""
    partitions: list[InputPartition] = []
    for store in options.stores:
        partitions += _Plan(store, look_at(Path(store.root)), options, wanted).partitions()
    return partitions


class _Plan:
    def __init__(self, path: StorePath, store: LogStore, options: LogOptions, wanted: Wanted) -> None:
        self._broker_name = path.broker_name
        self._store = store
        self._options = options
        self._wanted = wanted
        self._topics = _resolved(store, options, wanted)
        self._extents: dict[tuple[str, int], _Extent] = {}

    def partitions(self) -> list[InputPartition]:
        if not self._store.files or (self._topics is not None and not self._topics):
            return []
        parts = self._by_index()
        if parts is None:
            parts = self._by_queue()
        return list(self._ranges(0)) if parts is None else parts

    def _ranges(self, first: int, end: int | None = None) -> Iterator[LogRange]:
        """The log between two physical offsets."""
        size = self._options.partition_bytes
        for file in self._files_of_time():
            position = max(file.start, first)
            limit = file.limit if end is None else min(file.limit, end)
            while position < limit:
                # The last range takes a remainder that is too small for a partition.
                stop = position + size if limit - position >= 2 * size else limit
                yield LogRange(self._broker_name, self._topics, file, position, stop)
                position = stop

    def _files_of_time(self) -> list[LogFile]:
        """The files that may have messages of the time range."""
        begin_ms = max(self._options.times_ms[0], self._wanted.times_ms[0]) - CLOCK_SLACK_MS
        end_ms = min(self._options.times_ms[1], self._wanted.times_ms[1]) + CLOCK_SLACK_MS
        files = self._store.files
        times = [first_store_time(file) for file in files]
        following = [*times[1:], None]
        return [
            file
            for file, first_ms, next_ms in zip(files, times, following, strict=True)
            if (next_ms is None or next_ms >= begin_ms) and (first_ms or 0) <= end_ms
        ]

    def _by_index(self) -> list[InputPartition] | None:
        """Partitions from the index; None if the query has no keys, or the index cannot be used."""
        ids, topics, survey = self._wanted.msg_ids, self._topics, self._store.survey
        keys = self._options.keys if ids is None else ids
        if keys is None or topics is None or topics & survey.batch_topics:
            return None
        found = look_up(self._store, topics, keys)
        if found is None:
            return None
        records = found.records
        groups = [records[first : first + _RECORDS] for first in range(0, len(records), _RECORDS)]
        return [
            *self._ranges(0, found.first),
            *(LogOffsets(self._broker_name, topics, self._store.files, group) for group in groups),
            *self._ranges(found.last + 1),
        ]

    def _by_queue(self) -> list[InputPartition] | None:
        """Partitions from queue files; None if they cannot be used, or reading the log is faster."""
        store, topics = self._store, self._topics
        options = self._options
        if options.topics is None and options.topic_pattern is None and self._wanted.topics is None:
            return None
        if topics is None or store.state is StoreState.CRASHED or topics & store.survey.batch_topics:
            return None
        # Read before the queues: what is dispatched after this is read as part of the log.
        dispatched = self._dispatched()
        parts: list[QueueRange] = []
        total = 0
        for found in store.survey.queues:
            if self._is_wanted(found):
                extent = self._extent(found)
                parts.append(self._part(found, extent))
                total += (parts[-1].end - parts[-1].first) * extent.usual_size
        if total > (store.end - store.files[0].start) * _SMALL_SHARE:
            return None
        files = [
            msgspec.structs.replace(file, limit=min(file.limit, dispatched))
            for file in store.files
            if file.start < dispatched
        ]
        count = sum(part.end - part.first for part in parts)
        size = max(options.partition_bytes * count // max(total, 1), 1)
        return [*self._grouped(parts, files, size), *self._ranges(dispatched)]

    def _dispatched(self) -> int:
        """Physical offset up to which all messages are in queues; dispatch follows the log order."""
        if self._store.state is StoreState.STOPPED:
            return self._store.end
        return max((self._extent(found).last_end for found in self._store.survey.queues), default=0)

    def _is_wanted(self, found: FoundQueue) -> bool:
        ids = self._wanted.queue_ids
        return found.topic in (self._topics or ()) and (ids is None or found.queue_id in ids)

    def _extent(self, found: FoundQueue) -> _Extent:
        queue = found.topic, found.queue_id
        if queue not in self._extents:
            self._extents[queue] = self._read_extent(found)
        return self._extents[queue]

    def _read_extent(self, found: FoundQueue) -> _Extent:
        queue = open_queue(SystemDisk(), self._store.survey, found)
        try:
            queue.correct_min_offset(self._store.files[0].start)
            middle = (queue.min_offset + queue.max_offset) // 2
            sizes = [size for _, size, _ in queue.units(middle, _SAMPLED) if size != BLANK_SIZE]
            usual = sum(sizes) // len(sizes) if sizes else 0
            return _Extent(queue.min_offset, queue.max_offset, queue.max_physical_offset, usual)
        finally:
            queue.close()

    def _part(self, found: FoundQueue, extent: _Extent) -> QueueRange:
        first, end = self._wanted.offsets
        files = [
            LogFile(str(file.path), int(file.path.name), int(file.path.name) + file.size)
            for file in found.files
        ]
        first = max(extent.min_offset, first)
        end = max(min(extent.max_offset, end), first)
        return QueueRange(found.topic, found.queue_id, files, first, end)

    def _grouped(self, parts: Sequence[QueueRange], files: list[LogFile], size: int) -> Iterator[QueueParts]:
        """Partitions of `size` messages."""
        group: list[QueueRange] = []
        room = size
        for part in parts:
            first = part.first
            while first < part.end:
                end = min(first + room, part.end)
                group.append(msgspec.structs.replace(part, first=first, end=end))
                room -= end - first
                first = end
                if not room:
                    yield QueueParts(self._broker_name, self._topics, files, group)
                    group, room = [], size
        if group:
            yield QueueParts(self._broker_name, self._topics, files, group)


def _resolved(store: LogStore, options: LogOptions, wanted: Wanted) -> Topics:
    """The topics to read; None for all, or if the store does not know its topics."""
    sets = [options.topics, wanted.topics, None if options.include_deleted_topics else store.topics]
    given = [topics for topics in sets if topics is not None]
    if not given:
        return None
    chosen = frozenset.intersection(*given)
    if options.topic_pattern is None:
        return chosen
    pattern = re.compile(options.topic_pattern)
    return frozenset(topic for topic in chosen if pattern.fullmatch(topic))
