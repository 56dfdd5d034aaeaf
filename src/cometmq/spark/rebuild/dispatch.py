"""Dispatch of many records: consume queue units and index entries as columns.

Rules kept here:
- The rules are those of `store/dispatch_rules.py`. Single messages are handled only if they are delayed, go
  to further queues, or have keys beside their unique key.
- A damaged record is an error: queues without it would hide it and everything after it.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cometmq.model.errors import StoreError
from cometmq.model.message_properties import INNER_MULTI_DISPATCH, KEYS, TAGS, UNIQ_KEY
from cometmq.model.names import DELAY_TOPIC
from cometmq.model.sysflag import TRANSACTION_MASK, TransactionType
from cometmq.ports.names import is_file_name
from cometmq.spark.arrow.gather import Mask, Positions, gather
from cometmq.spark.arrow.properties import Properties
from cometmq.spark.arrow.record_fields import RecordFields
from cometmq.spark.log.chunks import Damage, LogChunk
from cometmq.spark.log.store import wrong_bodies
from cometmq.store.dispatch_rules import DelayLevels, delay_level, further_positions
from cometmq.store.index.key_hash import hashes_of_all, key_hashes
from cometmq.wire.java_hash import java_hash, tags_code

UNIT_ROW: Final = np.dtype(
    [("queue_offset", "<i8"), ("physical_offset", "<i8"), ("size", "<i4"), ("code", "<i8")]
)
ENTRY_ROW: Final = np.dtype([("hash", "<i4"), ("physical_offset", "<i8"), ("stored_ms", "<i8")])

Rows = npt.NDArray[np.void]
Queue = tuple[str, int]

_FURTHER: Final = INNER_MULTI_DISPATCH.encode()


class DispatchRules(msgspec.Struct, frozen=True):
    """The properties of a store that dispatch depends on."""

    known_topics: frozenset[str] | None
    """Topics with queues; None for all."""
    old_topics: frozenset[str]
    """Topics that had queues before."""
    batch_topics: frozenset[str]
    """Topics with batch consume queues, which are kept."""
    delays_ms: dict[int, int]
    """Delays by level, from old queues."""
    delay_levels: str
    """The setting, for other levels."""
    has_index: bool = True

    def has_queues(self, topic: str) -> bool:
        known = self.known_topics is None or topic in self.known_topics or topic in self.old_topics
        return known and is_file_name(topic)


class Dispatched:
    """Units by queue, in log order, and index entries."""

    def __init__(self, rules: DispatchRules) -> None:
        self._rules = rules
        self._levels = DelayLevels(rules.delay_levels)
        self.messages = 0
        self.indexed = 0
        self.units: dict[Queue, list[Rows]] = {}
        self.entries: list[Rows] = []
        self.left_out: set[str] = set()

    def add(self, path: str, found: LogChunk | Damage) -> None:
        """Dispatch a chunk of the log."""
        if isinstance(found, Damage):
            raise StoreError(f"{path} is damaged, and the log goes on after it: {found.error}")
        fields = RecordFields(found.buffer, found.starts)
        wrong = fields.bad | (fields.fixed["physical_offset"] != found.physical_offsets)
        wrong |= wrong_bodies(fields, ~wrong)
        if wrong.any():
            raise StoreError(
                f"{path} is damaged at {found.physical_offsets[wrong][0]} of the log, and goes on after it"
            )
        columns = _Columns(fields)
        self.messages += len(fields)
        self._queue(columns)
        if self._rules.has_index:
            self._index(columns)

    def _queue(self, columns: _Columns) -> None:
        codes = columns.tags_codes()
        rows = np.zeros(len(columns.fields), UNIT_ROW)
        rows["queue_offset"] = columns.fields.fixed["queue_offset"]
        rows["physical_offset"] = columns.fields.fixed["physical_offset"]
        rows["size"] = columns.fields.fixed["total_size"]
        queued = columns.fields.sys_flags & TransactionType.PREPARED == 0
        queue_ids = columns.fields.column("queue_id", np.int64)
        for number, topic in enumerate(columns.topics):
            here = queued & (columns.topic_numbers == number)
            if topic in self._rules.batch_topics or not here.any():
                continue
            if not self._rules.has_queues(topic):
                self.left_out.add(topic)
                continue
            if topic == DELAY_TOPIC:
                self._delay(columns, here, codes)
            rows["code"] = codes
            self._append(topic, rows[here], queue_ids[here])
            if columns.has_further:
                self._append_further(columns, rows, here)

    def _append(self, topic: str, rows: Rows, queue_ids: Positions) -> None:
        order = np.argsort(queue_ids, kind="stable")
        ids, firsts = np.unique(queue_ids[order], return_index=True)
        for queue_id, part in zip(ids.tolist(), np.split(rows[order], firsts[1:]), strict=True):
            self.units.setdefault((topic, queue_id), []).append(part)

    def _append_further(self, columns: _Columns, rows: Rows, here: Mask) -> None:
        """Multi-dispatch: put messages into the further queues that they name."""
        for row in np.flatnonzero(here).tolist():
            queue_id = int(columns.fields.fixed["queue_id"][row])
            for target in further_positions(columns.block(row), queue_id):
                if target.topic in self._rules.old_topics:
                    unit = rows[row : row + 1].copy()
                    unit["queue_offset"] = target.queue_offset
                    self.units.setdefault((target.topic, target.queue_id), []).append(unit)

    def _delay(self, columns: _Columns, here: Mask, codes: Positions) -> None:
        """The units of delayed messages have the delivery time as their tags code."""
        times = columns.fields.store_times_ms
        for row in np.flatnonzero(here).tolist():
            level = delay_level(DELAY_TOPIC, columns.block(row))
            if level:
                delay_ms = self._rules.delays_ms.get(level)
                codes[row] = int(times[row]) + (
                    self._levels.delay_ms(level) if delay_ms is None else delay_ms
                )

    def _index(self, columns: _Columns) -> None:
        fields = columns.fields
        indexed = fields.sys_flags & TRANSACTION_MASK != TransactionType.ROLLBACK
        unique_keys, keys = columns.keys(UNIQ_KEY), columns.keys(KEYS)
        hashes: list[int] = []
        rows: list[int] = []
        for number, topic in enumerate(columns.topics):
            topic_hash = java_hash(f"{topic}#")
            here = np.flatnonzero(indexed & (columns.topic_numbers == number)).tolist()
            plain = [row for row in here if unique_keys[row] and not keys[row]]
            if plain:
                hashes += hashes_of_all(topic_hash, [unique_keys[row] or b"" for row in plain])
                rows += plain
            for row in here:
                if keys[row]:
                    found = key_hashes(topic_hash, unique_keys[row], keys[row])
                    hashes += found
                    rows += [row] * len(found)
            self.indexed += sum(1 for row in here if unique_keys[row] or keys[row])
        order = np.argsort(np.array(rows, np.int64), kind="stable")
        sources = np.array(rows, np.int64)[order]
        entries = np.empty(len(rows), ENTRY_ROW)
        entries["hash"] = np.array(hashes, np.int64)[order]
        entries["physical_offset"] = fields.fixed["physical_offset"][sources]
        entries["stored_ms"] = fields.store_times_ms[sources]
        self.entries.append(entries)


class _Columns:
    """The columns of a chunk that dispatch needs."""

    def __init__(self, fields: RecordFields) -> None:
        self.fields = fields
        buffer = pa.py_buffer(fields.bytes)
        topics = gather(buffer, fields.topic_starts, fields.topic_ends).dictionary_encode()
        self.topics = [str(topic, "utf-8") for topic in topics.dictionary.to_pylist()]
        self.topic_numbers: npt.NDArray[np.int32] = topics.indices.to_numpy()
        self.has_further = _FURTHER in bytes(fields.buffer)
        self._properties = Properties(buffer, fields.block_starts, fields.ends)

    def tags_codes(self) -> Positions:
        tags = self._properties.values(TAGS).dictionary_encode()
        table = np.array([*map(tags_code, tags.dictionary.to_pylist()), 0], np.int64)
        codes: Positions = table[tags.indices.fill_null(len(table) - 1).to_numpy()]
        return codes

    def keys(self, name: str) -> list[bytes | None]:
        values: list[bytes | None] = self._properties.values(name).cast(pa.binary()).to_pylist()
        return values

    def block(self, row: int) -> memoryview:
        return memoryview(self.fields.buffer)[int(self.fields.block_starts[row]) : int(self.fields.ends[row])]
