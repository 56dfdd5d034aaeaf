"""Partitions of the log source to Arrow batches, on a Spark worker: which records are rows, and damage.

Rules kept here:
- A row is a message that a consumer could see: no prepared or rolled back half of a transaction, and no
  record with another physical offset than its own.
- Damage ends the query with file and offset. In permissive mode it is a row with `physicalOffset` and `error`
  and no topic: a pushed filter on topic leaves it out, options do not.
- A few megabytes of the log are in memory. The number of compressed bodies in a batch adapts to the size of
  the batch before.
- Messages found through queue files or the index are read together if they are less than `_CLOSE` apart, and
  share batches anyway.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cometmq.model.errors import StoreError
from cometmq.model.names import DELAY_TOPIC
from cometmq.model.sysflag import COMPRESSED, TransactionType
from cometmq.spark.arrow.batches import to_batch
from cometmq.spark.arrow.gather import Mask, Positions, gather
from cometmq.spark.arrow.properties import common_value
from cometmq.spark.arrow.record_fields import RecordFields
from cometmq.spark.arrow.record_scan import HEAD_DTYPE
from cometmq.spark.columns import ARROW_FIELDS
from cometmq.spark.log.chunks import CHUNK_BYTES, Damage, LogChunk, LogFile, LogFileReader
from cometmq.spark.log.options import LogOptions
from cometmq.spark.log.partitions import LogOffsets, LogPartition, LogRange, QueueParts, QueueRange
from cometmq.spark.log.store import wrong_bodies
from cometmq.spark.pushdown import Wanted
from cometmq.store.queue.files import BLANK_SIZE, UNIT_SIZE
from cometmq.wire.java_hash import tags_code
from cometmq.wire.record.layout import HEAD, MAGIC_V1, MAGIC_V2, MIN_RECORD_SIZE, RecordError

Units = npt.NDArray[np.void]

_UNIT: Final = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("code", ">i8")])
_UNITS_AT_ONCE: Final = 64 * 1024
_LEAST_HASH: Final = -(2**31)
_CLOSE: Final = 16 * 1024
"""A gap up to this size is read as well: a second read would take longer."""


def _units(part: QueueRange, tags: frozenset[str] | None) -> Iterator[Units]:
    """The units of a queue range that may match, up to `_UNITS_AT_ONCE` at a time."""
    codes = None if tags is None or part.topic == DELAY_TOPIC else [tags_code(tag) for tag in tags]
    position = part.first * UNIT_SIZE
    for file in part.files:
        with LogFileReader(file) as reader:
            stop = min(part.end * UNIT_SIZE, file.limit)
            while max(position, file.start) < stop:
                position = max(position, file.start)
                content = reader.read(position, min(_UNITS_AT_ONCE * UNIT_SIZE, stop - position))
                position += len(content)
                units = np.frombuffer(content, _UNIT)
                units = units[units["size"] != BLANK_SIZE]
                yield units if codes is None else units[_may_have(units, codes)]


def _may_have(units: Units, codes: list[int]) -> npt.NDArray[np.bool_]:
    """Units that may have one of these tags codes; the address of an extension unit may stand for any."""
    found = units["code"].astype(np.int64)
    return np.isin(found, codes) | (found < _LEAST_HASH)


def _chunks(file: LogFile, units: Units) -> Iterator[LogChunk | Damage]:
    """The records of units, in chunks that are large enough for a batch."""
    if not len(units):
        return
    offsets, sizes = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
    with LogFileReader(file) as reader:
        buffers: list[bytes] = []
        starts: list[Positions] = []
        first, length = 0, 0
        for begin, end in _spans(offsets, offsets + sizes):
            offset = int(offsets[begin])
            buffers.append(reader.read(offset, int(offsets[end - 1] + sizes[end - 1]) - offset))
            starts.append(offsets[begin:end] - offset + length)
            length += len(buffers[-1])
            if length >= CHUNK_BYTES or end == len(units):
                chunk = LogChunk(b"".join(buffers), np.concatenate(starts), offsets[first:end])
                yield from _confirmed(chunk, sizes[first:end])
                buffers, starts, first, length = [], [], end, 0


def _spans(starts: Positions, ends: Positions) -> Iterator[tuple[int, int]]:
    """Ranges of records to read at once: close together and in ascending order."""
    apart = np.flatnonzero((starts[1:] - ends[:-1] > _CLOSE) | (starts[1:] < ends[:-1])) + 1
    for first, end in pairwise([0, *apart.tolist(), len(starts)]):
        while first < end:
            fit = int(np.searchsorted(ends[first:end], starts[first] + CHUNK_BYTES, "right"))
            upto = first + max(fit, 1)
            yield first, upto
            first = upto


def _confirmed(chunk: LogChunk, sizes: Positions) -> Iterator[LogChunk | Damage]:
    """Records whose size matches their units; the others as damage."""
    content = np.frombuffer(chunk.buffer, np.uint8)
    inside = chunk.starts + np.maximum(sizes, MIN_RECORD_SIZE) <= len(content)
    heads = np.zeros(len(sizes), HEAD_DTYPE)
    if inside.any():
        windows = np.ndarray((len(content) - HEAD.size + 1,), HEAD_DTYPE, content, strides=(1,))
        heads[inside] = windows[chunk.starts[inside]]
    right = (
        (heads["total_size"] == sizes)
        & ((heads["magic"] == MAGIC_V1) | (heads["magic"] == MAGIC_V2))
        & inside
    )
    if right.any():
        yield LogChunk(chunk.buffer, chunk.starts[right], chunk.physical_offsets[right])
    for offset, size in zip(chunk.physical_offsets[~right].tolist(), sizes[~right].tolist(), strict=True):
        error = RecordError(offset, f"a record of {size} bytes, because its queue says so", "none")
        yield Damage(offset, offset + size, error)


_LARGE: Final = 16 * 1024 * 1024
_FIRST_COMPRESSED: Final = 8
_MOST_COMPRESSED: Final = 4096
"""The number of compressed bodies in the first batch, and the limit."""


class LogRows:
    """Makes the rows of a query from records."""

    def __init__(
        self,
        options: LogOptions,
        wanted: Wanted,
        columns: Sequence[str],
        broker_name: str,
        topics: frozenset[str] | None,
    ) -> None:
        self._options = options
        self._wanted = wanted
        self._columns = list(columns)
        self._keys = None if options.keys is None else pa.array(sorted(options.keys), pa.string())
        self._made = self._columns
        if self._keys is not None and "keys" not in columns:
            self._made = [*self._columns, "keys"]
        self._broker_name = broker_name
        self._topics = topics
        self._pattern = None if options.topic_pattern is None else re.compile(options.topic_pattern)
        self._judged: dict[bytes, bool] = {}
        self._compressed_at_once = _FIRST_COMPRESSED
        self._times_ms = (
            max(options.times_ms[0], wanted.times_ms[0]),
            min(options.times_ms[1], wanted.times_ms[1]),
        )

    def read(self, partition: LogPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        if isinstance(partition, LogRange):
            with LogFileReader(partition.file) as reader:
                start = reader.beginning_from(partition.start)
                for found in reader.records(start, partition.stop):
                    yield from self.of(partition.file.path, found)
        elif isinstance(partition, QueueParts):
            for part in partition.parts:
                for units in _units(part, self._wanted.tags):
                    yield from self._read_units(partition.files, units)
        elif isinstance(partition, LogOffsets):
            units = np.zeros(len(partition.records), _UNIT)
            units["physical_offset"], units["size"] = zip(*partition.records, strict=True)
            yield from self._read_units(partition.files, units)

    def _read_units(self, files: Sequence[LogFile], units: Units) -> Iterator[pa.RecordBatch]:
        offsets = units["physical_offset"]
        for file in files:
            for found in _chunks(file, units[(offsets >= file.start) & (offsets < file.limit)]):
                yield from self.of(file.path, found)

    def of(self, path: str, found: LogChunk | Damage) -> Iterator[pa.RecordBatch]:
        """The rows of a chunk of a file."""
        if isinstance(found, Damage):
            yield from self._damaged(path, [(found.start, str(found.error))])
            return
        fields = RecordFields(found.buffer, found.starts)
        wrong = fields.bad | (fields.fixed["physical_offset"] != found.physical_offsets)
        if self._options.check_crc:
            wrong |= wrong_bodies(fields, ~wrong)
        if wrong.any():
            offsets = found.physical_offsets[wrong].tolist()
            rows = np.flatnonzero(wrong).tolist()
            texts = [str(_error(fields, row, offset)) for row, offset in zip(rows, offsets, strict=True)]
            yield from self._damaged(path, list(zip(offsets, texts, strict=True)))
        yield from self._in_parts(path, self._chosen(fields.only(~wrong)))

    def _in_parts(self, path: str, fields: RecordFields) -> Iterator[pa.RecordBatch]:
        """The rows of records, in batches with a limited number of compressed bodies."""
        counts = np.cumsum(fields.sys_flags & COMPRESSED != 0)
        first = 0
        while first < len(fields):
            before = int(counts[first - 1]) if first else 0
            end = int(np.searchsorted(counts, before + self._compressed_at_once, "right"))
            rows = np.zeros(len(fields), np.bool_)
            rows[first:end] = True
            for batch in self._batches(path, fields.only(rows)):
                self._adapt(batch.nbytes)
                yield batch
            first = end

    def _adapt(self, size: int) -> None:
        """Adapt the number of compressed bodies in the next batch."""
        if size > _LARGE:
            self._compressed_at_once = max(self._compressed_at_once // 4, 1)
        elif size < _LARGE // 4:
            self._compressed_at_once = min(self._compressed_at_once * 2, _MOST_COMPRESSED)

    def _chosen(self, fields: RecordFields) -> RecordFields:
        """The records that the query wants."""
        wanted = self._wanted
        rows: Mask = fields.sys_flags & TransactionType.PREPARED == 0
        if self._times_ms != (0, Wanted().times_ms[1]):
            times = fields.store_times_ms
            rows &= (times >= self._times_ms[0]) & (times < self._times_ms[1])
        if wanted.queue_ids is not None:
            rows &= np.isin(fields.fixed["queue_id"], list(wanted.queue_ids))
        if wanted.offsets != Wanted().offsets:
            offsets = fields.fixed["queue_offset"]
            rows &= (offsets >= wanted.offsets[0]) & (offsets < wanted.offsets[1])
        if rows.any():
            rows &= self._of_wanted_topics(fields)
        return fields.only(rows)

    def _of_wanted_topics(self, fields: RecordFields) -> Mask:
        ranges = fields.topic_starts, fields.topic_ends
        topic = common_value(fields.bytes, *ranges)
        if topic is not None:
            return np.full(len(fields), self._wants(topic))
        topics = gather(pa.py_buffer(fields.bytes), *ranges).dictionary_encode()
        is_wanted = np.array([self._wants(topic) for topic in topics.dictionary.to_pylist()], np.bool_)
        if is_wanted.all():
            return np.ones(len(fields), np.bool_)
        rows: Mask = is_wanted[topics.indices.to_numpy()]
        return rows

    def _wants(self, name: bytes) -> bool:
        judged = self._judged.get(name)
        if judged is None:
            topic = name.decode("utf-8", "replace")
            judged = self._judged[name] = (self._topics is None or topic in self._topics) and (
                self._pattern is None or self._pattern.fullmatch(topic) is not None
            )
        return judged

    def _batches(self, path: str, fields: RecordFields) -> Iterator[pa.RecordBatch]:
        if not len(fields):
            return
        try:
            yield self._batch(fields)
        except RecordError as error:
            if len(fields) > 1:  # one of the bodies cannot be decompressed
                middle = np.arange(len(fields)) < len(fields) // 2
                yield from self._batches(path, fields.only(middle))
                yield from self._batches(path, fields.only(~middle))
            else:
                yield from self._damaged(path, [(int(fields.fixed["physical_offset"][0]), str(error))])

    def _batch(self, fields: RecordFields) -> pa.RecordBatch:
        batch = to_batch(
            fields,
            broker_name=self._broker_name,
            columns=self._made,
            include_properties=self._options.include_properties,
        )
        if self._keys is None:
            return batch
        keys = batch.column(self._made.index("keys"))
        has_key = pc.is_in(keys.flatten(), value_set=self._keys)
        rows = pc.unique(pc.list_parent_indices(keys).filter(has_key))
        return batch.take(rows).select(self._columns)

    def _damaged(self, path: str, errors: Sequence[tuple[int, str]]) -> Iterator[pa.RecordBatch]:
        if not self._options.permissive:
            raise StoreError(
                f"{path} is damaged at {errors[0][0]} of the log: {errors[0][1]}; "
                "read it with mode=permissive to get the rest"
            )
        if self._wanted != Wanted(tags=self._wanted.tags, times_ms=self._wanted.times_ms):
            return
        told = {
            "brokerName": [self._broker_name] * len(errors),
            "physicalOffset": [offset for offset, _ in errors],
            "error": [error for _, error in errors],
        }
        schema = pa.schema([ARROW_FIELDS[name] for name in self._columns])
        nulls = [None] * len(errors)
        yield pa.RecordBatch.from_pydict({name: told.get(name, nulls) for name in self._columns}, schema)


def _error(fields: RecordFields, row: int, offset: int) -> RecordError:
    if fields.bad[row]:
        return fields.error(row, offset)
    said = int(fields.fixed["physical_offset"][row])
    if said != offset:
        return RecordError(offset, "a record with this physical offset", f"one with {said}")
    return RecordError(offset, f"a body with checksum {int(fields.fixed['body_crc'][row])}", "another")
