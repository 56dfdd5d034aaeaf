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
from cometmq.wire.java_hash import java_hash, tags_code
from cometmq.wire.record_layout import FIXED_V4, MAGIC_V1

_HEAD: Final = np.dtype(RECORD_HEAD)
_QUEUE_ID_AT: Final = 12


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

    def body(self, first: int, end: int, queue_id: int) -> bytes:
        """The body of a request with the rows from one to another, for a queue."""
        ends = self.ends[first : end + 1]
        sizes = np.diff(ends)
        records = np.frombuffer(self.data, np.uint8, int(ends[-1] - ends[0]), int(ends[0])).copy()
        starts = ends[:-1] - ends[0]
        number = np.frombuffer(queue_id.to_bytes(4, "big"), np.uint8)
        window = np.lib.stride_tricks.sliding_window_view(records, 4, writeable=True)
        window[starts + _QUEUE_ID_AT] = number
        parts = [sizes.astype(">i4").tobytes(), self.codes[first:end].astype(">i8").tobytes()]
        if self.hashes is not None:
            parts.append(self.hashes[first:end].astype(">i4").tobytes())
        return b"".join((*parts, records.data))


def encode_records(columns: dict[str, pa.Array], ids: Bytes | None, topic: str) -> LogRecords:
    """The records of rows of a topic."""
    body = checked_bodies(columns["body"])
    block = properties_block(columns, ids)
    name = topic.encode()
    body_lengths, block_lengths = numbers(pc.binary_length(body)), numbers(pc.binary_length(block))
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
    hashes = None if ids is None else hashes_of_letters(java_hash(f"{topic}#"), ids)
    return LogRecords(memoryview(data), at, _codes(columns.get("tags"), len(body)), hashes, beside)


def _codes(tags: pa.Array | None, count: int) -> Integers:
    """What a queue says of the tags of each row."""
    if tags is None:
        return np.zeros(count, np.int64)
    encoded = tags.dictionary_encode()
    known = [tags_code(each) if each else 0 for each in encoded.dictionary.to_pylist()]
    places = encoded.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
    codes: Integers = np.array([*known, 0], np.int64)[places]
    return codes
