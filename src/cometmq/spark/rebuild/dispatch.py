"""What follows from records for queues and index, many at a time: units and entries as columns.

Rules kept here:
- The rules are those of `store/dispatch_rules.py`; single messages are only looked at where they are special:
  delayed ones, ones in further queues, ones with keys beside their unique one.
- A record that is not whole is an error: queues without it would hide it, and what is behind it, for good.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cometmq.model.errors import StoreError
from cometmq.model.message_properties import INNER_MULTI_DISPATCH, KEYS, TAGS, UNIQ_KEY
from cometmq.model.sysflag import TRANSACTION_MASK, TransactionType
from cometmq.ports.names import is_file_name
from cometmq.spark.arrow.gather import Mask, Places, gather
from cometmq.spark.arrow.properties import Properties
from cometmq.spark.arrow.record_fields import RecordFields
from cometmq.spark.log.chunks import Damage, Piece
from cometmq.spark.log.store import wrong_bodies
from cometmq.store.dispatch_rules import DELAY_TOPIC, DelayLevels, delay_level, further_positions
from cometmq.store.index.key_hash import hashes_of_all, key_hashes
from cometmq.wire.java_hash import java_hash, tags_code

UNIT_ROW: Final = np.dtype([("queue_offset", "<i8"), ("place", "<i8"), ("size", "<i4"), ("code", "<i8")])
ENTRY_ROW: Final = np.dtype([("hash", "<i4"), ("place", "<i8"), ("stored_ms", "<i8")])

Rows = npt.NDArray[np.void]
Queue = tuple[str, int]

_FURTHER: Final = INNER_MULTI_DISPATCH.encode()


class DispatchRules(msgspec.Struct, frozen=True):
    """What has to be known of a store to dispatch its messages."""

    known_topics: frozenset[str] | None
    """The topics that have queues; None if nobody knows, which means all."""
    old_topics: frozenset[str]
    """Those that had queues before."""
    batch_topics: frozenset[str]
    """Those whose queues are of another kind, and are left alone."""
    delays_ms: dict[int, int]
    """The delays of levels, as old queues show them."""
    delay_levels: str
    """Those of all others, as settings have them."""
    has_index: bool = True

    def has_queues(self, topic: str) -> bool:
        known = self.known_topics is None or topic in self.known_topics or topic in self.old_topics
        return known and is_file_name(topic)


class Dispatched:
    """What some records gave: units by queue, in the order of the log, and entries of the index."""

    def __init__(self, rules: DispatchRules) -> None:
        self._rules = rules
        self._levels = DelayLevels(rules.delay_levels)
        self.messages = 0
        self.indexed = 0
        self.units: dict[Queue, list[Rows]] = {}
        self.entries: list[Rows] = []
        self.left_out: set[str] = set()

    def add(self, path: str, found: Piece | Damage) -> None:
        """Dispatch a piece of the log."""
        if isinstance(found, Damage):
            raise StoreError(f"{path} is damaged, and the log goes on behind it: {found.error}")
        fields = RecordFields(found.buffer, found.starts)
        wrong = fields.bad | (fields.fixed["physical_offset"] != found.places)
        wrong |= wrong_bodies(fields, ~wrong)
        if wrong.any():
            raise StoreError(
                f"{path} is damaged at {found.places[wrong][0]} of the log, and goes on behind it"
            )
        piece = _Columns(fields)
        self.messages += len(fields)
        self._queue(piece)
        if self._rules.has_index:
            self._index(piece)

    def _queue(self, piece: _Columns) -> None:
        codes = piece.tags_codes()
        rows = np.zeros(len(piece.fields), UNIT_ROW)
        rows["queue_offset"] = piece.fields.fixed["queue_offset"]
        rows["place"] = piece.fields.fixed["physical_offset"]
        rows["size"] = piece.fields.fixed["size"]
        queued = piece.fields.sys_flags & TransactionType.PREPARED == 0
        queue_ids = piece.fields.column("queue_id", np.int64)
        for number, topic in enumerate(piece.topics):
            here = queued & (piece.topic_numbers == number)
            if topic in self._rules.batch_topics or not here.any():
                continue
            if not self._rules.has_queues(topic):
                self.left_out.add(topic)
                continue
            if topic == DELAY_TOPIC:
                self._delay(piece, here, codes)
            rows["code"] = codes
            self._append(topic, rows[here], queue_ids[here])
            if piece.has_further:
                self._append_further(piece, rows, here)

    def _append(self, topic: str, rows: Rows, queue_ids: Places) -> None:
        order = np.argsort(queue_ids, kind="stable")
        ids, firsts = np.unique(queue_ids[order], return_index=True)
        for queue_id, part in zip(ids.tolist(), np.split(rows[order], firsts[1:]), strict=True):
            self.units.setdefault((topic, queue_id), []).append(part)

    def _append_further(self, piece: _Columns, rows: Rows, here: Mask) -> None:
        """Put messages into the other queues that they name."""
        for row in np.flatnonzero(here).tolist():
            queue_id = int(piece.fields.fixed["queue_id"][row])
            for place in further_positions(piece.block(row), queue_id):
                if place.topic in self._rules.old_topics:
                    unit = rows[row : row + 1].copy()
                    unit["queue_offset"] = place.queue_offset
                    self.units.setdefault((place.topic, place.queue_id), []).append(unit)

    def _delay(self, piece: _Columns, here: Mask, codes: Places) -> None:
        """Give the units of delayed messages the times of their delivery."""
        times = piece.fields.store_times_ms
        for row in np.flatnonzero(here).tolist():
            level = delay_level(DELAY_TOPIC, piece.block(row))
            if level:
                delay_ms = self._rules.delays_ms.get(level)
                codes[row] = int(times[row]) + (
                    self._levels.delay_ms(level) if delay_ms is None else delay_ms
                )

    def _index(self, piece: _Columns) -> None:
        fields = piece.fields
        indexed = fields.sys_flags & TRANSACTION_MASK != TransactionType.ROLLBACK
        unique_keys, keys = piece.keys(UNIQ_KEY), piece.keys(KEYS)
        hashes: list[int] = []
        rows: list[int] = []
        for number, topic in enumerate(piece.topics):
            beginning = java_hash(f"{topic}#")
            here = np.flatnonzero(indexed & (piece.topic_numbers == number)).tolist()
            plain = [row for row in here if unique_keys[row] and not keys[row]]
            if plain:
                hashes += hashes_of_all(beginning, [unique_keys[row] or b"" for row in plain])
                rows += plain
            for row in here:
                if keys[row]:
                    found = key_hashes(beginning, unique_keys[row], keys[row])
                    hashes += found
                    rows += [row] * len(found)
            self.indexed += sum(1 for row in here if unique_keys[row] or keys[row])
        order = np.argsort(np.array(rows, np.int64), kind="stable")
        places = np.array(rows, np.int64)[order]
        entries = np.empty(len(rows), ENTRY_ROW)
        entries["hash"] = np.array(hashes, np.int64)[order]
        entries["place"] = fields.fixed["physical_offset"][places]
        entries["stored_ms"] = fields.store_times_ms[places]
        self.entries.append(entries)


class _Columns:
    """The columns of a piece that dispatch wants."""

    def __init__(self, fields: RecordFields) -> None:
        self.fields = fields
        buffer = pa.py_buffer(fields.bytes)
        topics = gather(buffer, fields.topic_starts, fields.topic_ends).dictionary_encode()
        self.topics = [str(topic, "utf-8") for topic in topics.dictionary.to_pylist()]
        self.topic_numbers: npt.NDArray[np.int32] = topics.indices.to_numpy()
        self.has_further = _FURTHER in bytes(fields.buffer)
        self._properties = Properties(buffer, fields.block_starts, fields.ends)

    def tags_codes(self) -> Places:
        """What the units say of the tags."""
        tags = self._properties.values(TAGS).dictionary_encode()
        table = np.array([*map(tags_code, tags.dictionary.to_pylist()), 0], np.int64)
        codes: Places = table[tags.indices.fill_null(len(table) - 1).to_numpy()]
        return codes

    def keys(self, name: str) -> list[bytes | None]:
        """The values of a property as bytes."""
        values: list[bytes | None] = self._properties.values(name).cast(pa.binary()).to_pylist()
        return values

    def block(self, row: int) -> memoryview:
        """The properties of one message."""
        return memoryview(self.fields.buffer)[int(self.fields.block_starts[row]) : int(self.fields.ends[row])]
