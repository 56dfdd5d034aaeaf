"""Recovery of the index: bring it up to the log, whatever happened to its files.

Rules kept here:
- Afterwards every message with keys is in the index, up to an offset: also those of torn, lost or removed
  files, and those stored while there was no index.
- The index takes keys in the order of the log. If some are missing, everything after them is put again.
- Missing keys show at the edges of files: a record with keys before the first file, between two files, or
  after the last. Of a long range between two edges, only the beginning and the first and last message of each
  queue are checked, so that a start does not read a log whose messages have no keys.
- A file damaged in its middle is not noticed after an orderly stop. `cometmq store verify` finds it; if the
  file is removed, the next start makes its keys anew.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from cometmq.store.dispatch_rules import Keyed, index_keys, is_indexed
from cometmq.store.index.arrays import load_arrays
from cometmq.store.index.index import Index
from cometmq.store.log.commit_log import CommitLog
from cometmq.store.log.damage import walk_over_damage, whole_record
from cometmq.store.log.group_walk import RecordGroup
from cometmq.store.queue.consume_queues import ConsumeQueues
from cometmq.wire.record.codec import Record

log = logging.getLogger("cometmq.store")

_PROBED_BYTES: Final = 64 * 1024 * 1024
"""How far a range is searched for a record with keys."""
_LONG_BYTES: Final = 256 * 1024 * 1024
_LARGE_BYTES: Final = 1024 * 1024


class IndexRecovery:
    """The recovery of a loaded index. Blocks."""

    def __init__(self, commit_log: CommitLog, queues: ConsumeQueues, index: Index) -> None:
        self._log = commit_log
        self._queues = queues
        self._index = index

    def bring_up_to(self, limit: int) -> None:
        """Make the index contain the keys of all records before an offset, and no others."""
        self._index.mend(limit, self._log.store_time)
        start = self._missing_from(limit)
        if start is None:
            return
        if limit - start > _LARGE_BYTES:
            log.warning("keys of messages from %d to %d are put into the index again", start, limit)
        if limit - start > _LONG_BYTES:
            load_arrays()
        for keyed in self._keyed(start, limit):
            self._index.put_all(keyed)

    def _missing_from(self, limit: int) -> int | None:
        """Cut the index before its first missing keys; returns their offset, or None if it has all."""
        edges, log_start = self._index.edges, self._log.min_offset
        begins = [begin for begin, _ in edges]
        ends = [-1, *(end for _, end in edges)]
        for number, end in enumerate(ends):
            next_begin = min(begins[number], limit) if number < len(begins) else limit
            if self._has_keys(end, max(end, log_start), next_begin):
                self._index.cut_to(number)
                return max(end, log_start)
        return None

    def _has_keys(self, known: int, start: int, limit: int) -> bool:
        """Whether a record between `start` and `limit`, other than the one at `known`, has keys."""
        if start >= limit:
            return False
        for keyed in self._keyed(start, min(limit, start + _PROBED_BYTES)):
            if keyed[-1][3] > known:
                return True
        if limit - start <= _PROBED_BYTES:
            return False
        return any(start < offset < limit for offset in self._keyed_samples())

    def _keyed(self, start: int, limit: int) -> Iterator[list[Keyed]]:
        """The records with keys in a range, as the index takes them."""
        for found in walk_over_damage(self._log, start, limit):
            if isinstance(found, RecordGroup):
                if found.keyed:
                    yield found.keyed
            elif keyed := _keyed(found):
                yield [keyed]

    def _keyed_samples(self) -> Iterator[int]:
        """The physical offsets of the first and last message of each queue, if they have keys."""
        for queue in self._queues:
            for queue_offset in {queue.min_offset, queue.max_offset - 1}:
                unit = queue.unit(queue_offset)
                view = None if unit is None else self._log.record_at(unit[0])
                record = None if view is None or unit is None else whole_record(view, unit[0])
                if record is not None and _keyed(record):
                    yield record.physical_offset


def _keyed(record: Record) -> Keyed | None:
    unique_key, keys = index_keys(record)
    if not is_indexed(record.sys_flag) or not (unique_key or keys):
        return None
    return record.topic, unique_key, keys, record.physical_offset, record.store_timestamp_ms
