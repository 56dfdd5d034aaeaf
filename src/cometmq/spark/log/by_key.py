"""Messages of a store by their ids and keys, with the help of its index.

Rules kept here:
- The index says where messages may be that have a key; whether they have it is looked at when they are read.
- What the index does not reach, before its first message and behind its last, is left to be read as a part of
  the log. After a crash it may lack messages in between, and is not used.
- An id that is not a unique key says by itself where its message is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

import msgspec

from cometmq.ports.clock import SystemClock
from cometmq.ports.disk import SystemDisk
from cometmq.spark.log.chunks import LogFile, LogFileReader
from cometmq.spark.log.store import LogStore, StoreState
from cometmq.store.index.index import Index
from cometmq.store.tools.survey import INDEX_FOLDER
from cometmq.wire.record.ids import IdError, decode_offset_id
from cometmq.wire.record.layout import MIN_RECORD_SIZE, RecordError, peek_head, peek_physical_offset

_MOST_QUESTIONS: Final = 100_000
_MOST_PLACES: Final = 1_000_000
"""With more of either, reading everything is the better way."""
_FOR_EVER: Final = 2**62


class Indexed(msgspec.Struct, frozen=True):
    """What the index led to."""

    places: list[tuple[int, int]]
    """Places and sizes of records, in the order of the log."""
    first: int
    last: int
    """The first record that the index has, and the last one."""


def look_up(store: LogStore, topics: frozenset[str], keys: frozenset[str]) -> Indexed | None:
    """Where messages with one of these keys or ids may be; None if the index is no help."""
    shape = store.survey.index_layout
    if store.state is StoreState.CRASHED or shape is None or len(topics) * len(keys) > _MOST_QUESTIONS:
        return None
    index = Index(SystemDisk(), SystemClock(), store.survey.root / INDEX_FOLDER, *shape, writable=False)
    try:
        index.load(stopped_cleanly=True, safe_until_ms=0)
        if index.begin_offset is None:
            return None
        first, last = index.begin_offset, index.end_offset  # before anything is found that came later
        places: set[int] = set()
        for topic in topics:
            for key in keys:
                places.update(index.find(topic, key, _MOST_PLACES, 0, _FOR_EVER).physical_offsets)
                if index.leads_beyond(topic, key):  # the broker writes at this very moment
                    return None
    finally:
        index.close()
    places.update(_said_by(keys))
    inside = sorted(place for place in places if first <= place <= last)
    if len(inside) > _MOST_PLACES:
        return None
    return Indexed(list(_records_at(store.files, inside)), first, last)


def _said_by(ids: Iterable[str]) -> Iterator[int]:
    """The places that ids say themselves."""
    for each in ids:
        with suppress(IdError):
            yield decode_offset_id(each).commit_log_offset


def _records_at(files: Iterable[LogFile], places: list[int]) -> Iterator[tuple[int, int]]:
    """The places at which there is a record, with its size."""
    for file in files:
        with LogFileReader(file) as reader:
            for place in places:
                if not file.start <= place < file.limit:
                    continue
                head = reader.read(place, MIN_RECORD_SIZE)
                with suppress(RecordError):
                    if peek_physical_offset(head, 0) == place:
                        yield place, peek_head(head, 0)[0]
