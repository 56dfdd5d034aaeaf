"""What the workers of a query read: ranges of the log, or messages that queue files or the index lead to.

Rules kept here:
- The log is cut into ranges of about one size, wherever that falls; a worker finds its first record itself.
  Files that were full before a query's first moment, or begun behind its last, are left out.
- Where the topics of a query have only a small part of the messages, the queue files say where these are, and
  nothing else is read. What is in the log and not yet in the queues is read as a range. After a crash queues
  may lack messages, and are not used.
- Messages with one of some ids or keys are where the index says, or where it does not reach yet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from pyspark.sql.datasource import InputPartition

from cometmq.ports.disk import SystemDisk
from cometmq.spark.log.by_key import look_up
from cometmq.spark.log.chunks import LogFile
from cometmq.spark.log.options import LogOptions, StorePlace
from cometmq.spark.log.store import LogStore, StoreState, first_store_time, look_at
from cometmq.spark.pushdown import CLOCK_SLACK_MS, Wanted
from cometmq.store.queue.files import BLANK_SIZE
from cometmq.store.tools.survey import FoundQueue, open_queue

_SMALL_PART: Final = 0.25
"""Up to this part of the log it is quicker to read messages one by one."""
_SAMPLED: Final = 100
_PLACES: Final = 20_000
"""How many messages that the index leads to make a partition."""


class LogRange(InputPartition):
    """A range of a commit log file."""

    def __init__(
        self, broker_name: str, topics: frozenset[str] | None, file: LogFile, start: int, stop: int
    ) -> None:
        self.broker_name = broker_name
        self.topics = topics
        self.file = file
        self.start = start
        self.stop = stop


class QueuePart(msgspec.Struct, frozen=True):
    """Some of the units of a queue."""

    topic: str
    queue_id: int
    files: list[LogFile]
    """The files of the queue, by their places in the stream of units."""
    first: int
    behind: int
    """From which offset on, and up to which."""


class QueueParts(InputPartition):
    """Messages that queue files lead to."""

    def __init__(
        self,
        broker_name: str,
        topics: frozenset[str] | None,
        files: list[LogFile],
        parts: list[QueuePart],
    ) -> None:
        self.broker_name = broker_name
        self.topics = topics
        self.files = files
        self.parts = parts


class LogPlaces(InputPartition):
    """Messages that the index leads to."""

    def __init__(
        self,
        broker_name: str,
        topics: frozenset[str] | None,
        files: list[LogFile],
        places: list[tuple[int, int]],
    ) -> None:
        self.broker_name = broker_name
        self.topics = topics
        self.files = files
        self.places = places
        """Where they are, and how long."""


class _Extent(msgspec.Struct, frozen=True):
    """A queue, and which offsets it has."""

    min_offset: int
    max_offset: int
    last_end: int
    """Where the last of its messages ends in the log."""
    usual_size: int
    """What its messages take in the log, about."""


def plan(options: LogOptions, wanted: Wanted) -> list[InputPartition]:
    """The partitions of a query."""
    partitions: list[InputPartition] = []
    for place in options.stores:
        partitions += _Plan(place, look_at(Path(place.root)), options, wanted).partitions()
    return partitions


class _Plan:
    """What is to be read of one store."""

    def __init__(self, place: StorePlace, store: LogStore, options: LogOptions, wanted: Wanted) -> None:
        self._broker_name = place.broker_name
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

    def _ranges(self, first: int, behind: int | None = None) -> Iterator[LogRange]:
        """The log from an offset on, and before another."""
        size = self._options.partition_bytes
        for file in self._files_of_time():
            position = max(file.start, first)
            end = file.limit if behind is None else min(file.limit, behind)
            while position < end:
                # The last one takes what would be too little for one of its own.
                stop = position + size if end - position >= 2 * size else end
                yield LogRange(self._broker_name, self._topics, file, position, stop)
                position = stop

    def _files_of_time(self) -> list[LogFile]:
        """The files that may have messages of the query's time."""
        begin_ms = max(self._options.times_ms[0], self._wanted.times_ms[0]) - CLOCK_SLACK_MS
        end_ms = min(self._options.times_ms[1], self._wanted.times_ms[1]) + CLOCK_SLACK_MS
        files = self._store.files
        times = [first_store_time(file) for file in files]
        kept = []
        for place, file in enumerate(files):
            next_ms = times[place + 1] if place + 1 < len(files) else None
            is_before = next_ms is not None and next_ms < begin_ms
            is_behind = (times[place] or 0) > end_ms
            if not is_before and not is_behind:
                kept.append(file)
        return kept

    def _by_index(self) -> list[InputPartition] | None:
        """The way through the index; None if it is not open, or nobody asks for it."""
        ids, topics, survey = self._wanted.msg_ids, self._topics, self._store.survey
        keys = self._options.keys if ids is None else ids
        if keys is None or topics is None or topics & survey.batch_topics:
            return None
        found = look_up(self._store, topics, keys)
        if found is None:
            return None
        groups = [found.places[first : first + _PLACES] for first in range(0, len(found.places), _PLACES)]
        return [
            *self._ranges(0, found.first),
            *(LogPlaces(self._broker_name, topics, self._store.files, places) for places in groups),
            *self._ranges(found.last + 1),
        ]

    def _by_queue(self) -> list[InputPartition] | None:
        """The way through the queue files; None if it is not open, or not shorter."""
        store, topics = self._store, self._topics
        options = self._options
        if options.topics is None and options.pattern is None and self._wanted.topics is None:
            return None
        if topics is None or store.state is StoreState.CRASHED or topics & store.survey.batch_topics:
            return None
        # Before the wanted queues are looked at: what they have more than that is read as part of the log.
        dispatched = self._dispatched()
        parts: list[QueuePart] = []
        total = 0
        for found in store.survey.queues:
            if self._is_wanted(found):
                extent = self._extent(found)
                parts.append(self._part(found, extent))
                total += (parts[-1].behind - parts[-1].first) * extent.usual_size
        if total > (store.end - store.files[0].start) * _SMALL_PART:
            return None
        files = [
            msgspec.structs.replace(file, limit=min(file.limit, dispatched))
            for file in store.files
            if file.start < dispatched
        ]
        count = sum(part.behind - part.first for part in parts)
        size = max(options.partition_bytes * count // max(total, 1), 1)
        return [*self._grouped(parts, files, size), *self._ranges(dispatched)]

    def _dispatched(self) -> int:
        """Up to where in the log all messages are in queues: they are put there in the order of the log."""
        if self._store.state is StoreState.STOPPED:
            return self._store.end
        return max((self._extent(found).last_end for found in self._store.survey.queues), default=0)

    def _is_wanted(self, found: FoundQueue) -> bool:
        ids = self._wanted.queue_ids
        return found.topic in (self._topics or ()) and (ids is None or found.queue_id in ids)

    def _extent(self, found: FoundQueue) -> _Extent:
        place = found.topic, found.queue_id
        if place not in self._extents:
            self._extents[place] = self._look_at(found)
        return self._extents[place]

    def _look_at(self, found: FoundQueue) -> _Extent:
        queue = open_queue(SystemDisk(), self._store.survey, found)
        try:
            queue.correct_min_offset(self._store.files[0].start)
            middle = (queue.min_offset + queue.max_offset) // 2
            sizes = [size for _, size, _ in queue.units(middle, _SAMPLED) if size != BLANK_SIZE]
            usual = sum(sizes) // len(sizes) if sizes else 0
            return _Extent(queue.min_offset, queue.max_offset, queue.max_physical_offset, usual)
        finally:
            queue.close()

    def _part(self, found: FoundQueue, extent: _Extent) -> QueuePart:
        first, behind = self._wanted.offsets
        files = [
            LogFile(str(file.path), int(file.path.name), int(file.path.name) + file.size)
            for file in found.files
        ]
        first = max(extent.min_offset, first)
        behind = max(min(extent.max_offset, behind), first)
        return QueuePart(found.topic, found.queue_id, files, first, behind)

    def _grouped(self, parts: Sequence[QueuePart], files: list[LogFile], size: int) -> Iterator[QueueParts]:
        """Parts of about one number of messages."""
        group: list[QueuePart] = []
        room = size
        for part in parts:
            first = part.first
            while first < part.behind:
                behind = min(first + room, part.behind)
                group.append(msgspec.structs.replace(part, first=first, behind=behind))
                room -= behind - first
                first = behind
                if not room:
                    yield QueueParts(self._broker_name, self._topics, files, group)
                    group, room = [], size
        if group:
            yield QueueParts(self._broker_name, self._topics, files, group)


def _resolved(store: LogStore, options: LogOptions, wanted: Wanted) -> frozenset[str] | None:
    """The topics to read; None if everything is wanted that there may be, or nobody knows what there is."""
    sets = [options.topics, wanted.topics, None if options.include_deleted else store.topics]
    given = [topics for topics in sets if topics is not None]
    if not given:
        return None
    chosen = frozenset.intersection(*given)
    if options.pattern is None:
        return chosen
    pattern = re.compile(options.pattern)
    return frozenset(topic for topic in chosen if pattern.fullmatch(topic))
