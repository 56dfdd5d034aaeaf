"""Messages of a store by id or key, through its index.

Rules kept here:
- The index returns candidates; keys are compared when the records are read.
- Messages before the first and after the last entry of the index are read as ranges of the log. After a crash
  the index may have gaps and is not used.
- An offset id contains the physical offset of its message.
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
from cometmq.spark.pushdown import FOR_EVER
from cometmq.store.index.index import Index
from cometmq.store.tools.survey import INDEX_FOLDER
from cometmq.wire.record.ids import IdError, decode_offset_id

_MOST_LOOKUPS: Final = 100_000
_MOST_RECORDS: Final = 1_000_000
"""With more of either, reading the whole log is faster."""


class Indexed(msgspec.Struct, frozen=True):
    """What the index found."""

    records: list[tuple[int, int]]
    """Physical offsets and sizes, ascending."""
    first: int
    last: int
    """Physical offsets of the first and the last record in the index."""


def look_up(store: LogStore, topics: frozenset[str], keys: frozenset[str]) -> Indexed | None:
    """Candidates for messages with one of these keys or ids; None if the index cannot be used."""
    shape = store.survey.index_layout
    if store.state is StoreState.CRASHED or shape is None or len(topics) * len(keys) > _MOST_LOOKUPS:
        return None
    index = Index(SystemDisk(), SystemClock(), store.survey.root / INDEX_FOLDER, *shape, writable=False)
    try:
        index.load(stopped_cleanly=True, safe_until_ms=0)
        if index.begin_offset is None:
            return None
        first, last = index.begin_offset, index.end_offset  # first, so that later entries do not count
        offsets: set[int] = set()
        for topic in topics:
            for key in keys:
                offsets.update(index.find(topic, key, _MOST_RECORDS, 0, FOR_EVER).physical_offsets)
                if index.leads_beyond(topic, key):  # the broker is writing now
                    return None
    finally:
        index.close()
    offsets.update(_offset_ids(keys))
    inside = sorted(offset for offset in offsets if first <= offset <= last)
    if len(inside) > _MOST_RECORDS:
        return None
    return Indexed(list(_records_at(store.files, inside)), first, last)


def _offset_ids(ids: Iterable[str]) -> Iterator[int]:
    """The physical offsets in offset ids."""
    for each in ids:
        with suppress(IdError):
            yield decode_offset_id(each).commit_log_offset


def _records_at(files: Iterable[LogFile], offsets: list[int]) -> Iterator[tuple[int, int]]:
    """The physical offsets that have a record, with its size."""
    for file in files:
        with LogFileReader(file) as reader:
            for offset in offsets:
                if file.start <= offset < file.limit and (size := reader.record_size(offset)) is not None:
                    yield offset, size
