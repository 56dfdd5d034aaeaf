"""From Arrow columns to records as a broker's log has them, for brokers that take them so.

Rules kept here:
- A record is what the broker would have made of the row, as far as it can be known here; see
  `wire/record/preencoded.py` for what is left to it.
- As in `encode.py`, no Python object is made for a row.
- Rows with keys of their own go as batches: how many a row has differs, and only the unique key is hashed
  here.
"""

from __future__ import annotations

import time
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cometmq.spark.sink.encode import (
    EMPTY,
    Bytes,
    Integers,
    check_blocks,
    checked_bodies,
    numbers,
    properties_block,
    rows_of,
)
from cometmq.store.index.arrays import hashes_of_letters
from cometmq.wire.frame.command import Body
from cometmq.wire.java_hash import java_hash, tags_code
from cometmq.wire.record.batch import MIN_ITEM_SIZE
from cometmq.wire.record.layout import FIXED_V4, MAGIC_V1, numpy_fields

_HEAD: Final = np.dtype(numpy_fields("V8"))

Heads = np.ndarray[tuple[int], np.dtype[np.void]]


class LogRecords:
    """The records of rows, behind one another, with what a request says of each."""

    __slots__ = ("beside", "codes", "data", "ends", "hashes")

    def __init__(
        self, data: memoryview, ends: Integers, codes: Integers, hashes: Integers | None, beside: int
    ) -> None:
        self.data = data
        self.ends = ends
        """Where each row's record ends; the first number is where the first one begins."""
        self.codes = codes
        self.hashes = hashes
        self.beside = beside
        """How many bytes a record has more than the item of a batch, which limits are held against."""

    def body(self, first: int, end: int) -> list[Body]:
        """The body of a request with the rows from one to another."""
        ends = self.ends[first : end + 1]
        parts: list[Body] = [
            np.diff(ends).astype(">i4").tobytes(),
            self.codes[first:end].astype(">i8").tobytes(),
        ]
        if self.hashes is not None:
            parts.append(self.hashes[first:end].astype(">i4").tobytes())
        return [*parts, self.data[int(ends[0]) : int(ends[-1])]]


def encode_records(columns: dict[str, pa.Array], ids: Bytes | None, topic: str) -> LogRecords:
    """The records of rows of a topic."""
    body, body_lengths = checked_bodies(columns["body"])
    block = properties_block(columns, ids)
    name = topic.encode()
    block_lengths = numbers(pc.binary_length(block))
    check_blocks(block_lengths)
    body_length, block_length = int(body_lengths[0]), int(block_lengths[0])
    if (body_lengths == body_length).all() and (block_lengths == block_length).all():
        data, ends = _alike(body, body_length, block, block_length, name)
    else:
        data, ends = _joined(body, body_lengths, block, block_lengths, name)
    beside = FIXED_V4.size + 1 + len(name) + 2 - MIN_ITEM_SIZE
    hashes = None if ids is None else hashes_of_letters(java_hash(f"{topic}#"), ids)
    return LogRecords(data, ends, _codes(columns.get("tags"), len(body)), hashes, beside)


def _alike(
    body: pa.Array, body_length: int, block: pa.Array, block_length: int, name: bytes
) -> tuple[memoryview, Integers]:
    """Records with bodies of one length and properties of one length, which are one table of bytes."""
    head, between = _frames(np.array([body_length]), np.array([block_length]), name)
    behind = FIXED_V4.size + body_length
    size = behind + between.shape[1] + block_length
    records = np.empty((len(body), size), np.uint8)
    records[:, : FIXED_V4.size] = head.view(np.uint8)
    records[:, FIXED_V4.size : behind] = _table(body, body_length)
    records[:, behind : size - block_length] = between
    records[:, size - block_length :] = _table(block, block_length)
    return records.reshape(-1).data, np.arange(len(body) + 1, dtype=np.int64) * size


def _table(column: pa.Array, width: int) -> Bytes:
    """A column of bytes, so many in each row."""
    if not width:
        return np.empty((len(column), 0), np.uint8)
    _, ends, data = column.buffers()
    first = int(np.frombuffer(ends, np.int64)[column.offset])
    table: Bytes = np.frombuffer(data, np.uint8, len(column) * width, first).reshape(-1, width)
    return table


def _joined(
    body: pa.Array, body_lengths: Integers, block: pa.Array, block_lengths: Integers, name: bytes
) -> tuple[memoryview, Integers]:
    """Records of any lengths, behind one another."""
    heads, between = _frames(body_lengths, block_lengths, name)
    records = pc.binary_join_element_wise(
        rows_of(heads, FIXED_V4.size), body, rows_of(between, between.shape[1]), block, EMPTY
    )
    _, ends, data = records.buffers()
    at = np.frombuffer(ends, np.int64)[records.offset : records.offset + len(records) + 1]
    return memoryview(data), at


def _frames(body_lengths: Integers, block_lengths: Integers, name: bytes) -> tuple[Heads, Bytes]:
    """What records have before their bodies, and between those and the properties."""
    count = len(body_lengths)
    heads = np.zeros(count, _HEAD)
    heads["total_size"] = FIXED_V4.size + body_lengths + 1 + len(name) + 2 + block_lengths
    heads["magic"] = MAGIC_V1
    heads["born_timestamp_ms"] = time.time_ns() // 1_000_000
    heads["body_length"] = body_lengths
    between = np.empty((count, 1 + len(name) + 2), np.uint8)
    between[:, 0] = len(name)
    between[:, 1:-2] = np.frombuffer(name, np.uint8)
    between[:, -2:] = block_lengths.astype(">u2").view(np.uint8).reshape(-1, 2)
    return heads, between


def _codes(tags: pa.Array | None, count: int) -> Integers:
    """What a queue says of the tags of each row."""
    if tags is None:
        return np.zeros(count, np.int64)
    encoded = tags.dictionary_encode()
    known = [tags_code(each) if each else 0 for each in encoded.dictionary.to_pylist()]
    places = encoded.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
    codes: Integers = np.array([*known, 0], np.int64)[places]
    return codes
