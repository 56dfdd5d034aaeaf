"""From Arrow columns to records as a broker's log has them, for brokers that take them so.

Rules kept here:
- A record is what the broker would have made of the row, as far as it can be known here; see
  `wire/log_records.py` for what is left to it.
- As in `sink_items.py`, no Python object is made for a row.
- Rows with keys of their own go as batches: how many a row has differs, and only the unique key is hashed
  here.
"""

from __future__ import annotations

import time
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cometmq.spark.sink_items import (
    EMPTY,
    NUMBER_DIGITS,
    Bytes,
    Integers,
    check_blocks,
    checked_bodies,
    numbers,
    properties_block,
    rows_of,
)
from cometmq.store.index_arrays import hashes_of_letters
from cometmq.store.record_bulk import RECORD_HEAD
from cometmq.wire.batch import MIN_ITEM_SIZE
from cometmq.wire.command import Body
from cometmq.wire.java_hash import java_hash, tags_code
from cometmq.wire.record_layout import FIXED_V4, MAGIC_V1

_HEAD: Final = np.dtype(RECORD_HEAD)


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
    heads = np.zeros(len(body), _HEAD)
    heads["size"] = FIXED_V4.size + body_lengths + 1 + len(name) + 2 + block_lengths
    heads["magic"] = MAGIC_V1
    heads["born_ms"] = time.time_ns() // 1_000_000
    heads["body"] = body_lengths
    between = np.empty((len(body), 1 + len(name) + 2), np.uint8)
    between[:, 0] = len(name)
    between[:, 1:-2] = np.frombuffer(name, np.uint8)
    between[:, -2:] = block_lengths.astype(">u2").view(np.uint8).reshape(-1, 2)
    records = pc.binary_join_element_wise(
        rows_of(heads, FIXED_V4.size), body, rows_of(between, between.shape[1]), block, EMPTY
    )
    _, ends, data = records.buffers()
    at = np.frombuffer(ends, np.int64)[records.offset : records.offset + len(records) + 1]
    beside = FIXED_V4.size + between.shape[1] - MIN_ITEM_SIZE
    hashes = None if ids is None else _hashes(topic, ids)
    return LogRecords(memoryview(data), at, _codes(columns.get("tags"), len(body)), hashes, beside)


def _hashes(topic: str, ids: Bytes) -> Integers:
    """What the index says of unique ids, which differ in nothing but their numbers."""
    prefix = ids[0, :-NUMBER_DIGITS].tobytes().decode()
    return hashes_of_letters(java_hash(f"{topic}#{prefix}"), ids[:, -NUMBER_DIGITS:])


def _codes(tags: pa.Array | None, count: int) -> Integers:
    """What a queue says of the tags of each row."""
    if tags is None:
        return np.zeros(count, np.int64)
    encoded = tags.dictionary_encode()
    known = [tags_code(each) if each else 0 for each in encoded.dictionary.to_pylist()]
    places = encoded.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
    codes: Integers = np.array([*known, 0], np.int64)[places]
    return codes
