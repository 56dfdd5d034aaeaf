"""What a Spark worker does for the log source: a partition to Arrow batches.

Rules kept here:
- No more than a few megabytes of the log are in memory at a time.
- Messages that queue files or the index lead to are read together where they lie close to one another, and
  make batches together wherever they lie.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from cometmq.spark.arrow.gather import Places
from cometmq.spark.arrow.record_scan import HEAD_DTYPE
from cometmq.spark.log.chunks import CHUNK, Damage, LogFile, LogFileReader, Piece
from cometmq.spark.log.partitions import LogPlaces, LogRange, QueuePart, QueueParts
from cometmq.spark.log.rows import LogRows
from cometmq.store.dispatch_rules import DELAY_TOPIC
from cometmq.store.queue.files import BLANK_SIZE, UNIT_SIZE
from cometmq.wire.java_hash import tags_code
from cometmq.wire.record.layout import HEAD, MAGIC_V1, MAGIC_V2, MIN_RECORD_SIZE, RecordError

if TYPE_CHECKING:
    import pyarrow as pa

Units = npt.NDArray[np.void]

_UNIT: Final = np.dtype([("place", ">i8"), ("size", ">i4"), ("code", ">i8")])
_UNITS_AT_ONCE: Final = 64 * 1024
_LEAST_HASH: Final = -(2**31)
_CLOSE: Final = 16 * 1024
"""What is read although nobody wants it, because a second read would take longer."""


def read_range(partition: LogRange, rows: LogRows) -> Iterator[pa.RecordBatch]:
    """The messages of a range of the log."""
    with LogFileReader(partition.file) as reader:
        start = reader.beginning_from(partition.start)
        for found in reader.records(start, partition.stop):
            yield from rows.of(partition.file.path, found)


def read_parts(partition: QueueParts, rows: LogRows, tags: frozenset[str] | None) -> Iterator[pa.RecordBatch]:
    """The messages that parts of queues lead to."""
    for part in partition.parts:
        for units in _units(part, tags):
            for file in partition.files:
                places = units["place"]
                here = units[(places >= file.start) & (places < file.limit)]
                for found in _pieces(file, here):
                    yield from rows.of(file.path, found)


def read_places(partition: LogPlaces, rows: LogRows) -> Iterator[pa.RecordBatch]:
    """The messages that the index leads to."""
    units = np.zeros(len(partition.places), _UNIT)
    units["place"], units["size"] = zip(*partition.places, strict=True)
    for file in partition.files:
        here = units[(units["place"] >= file.start) & (units["place"] < file.limit)]
        for found in _pieces(file, here):
            yield from rows.of(file.path, found)


def _units(part: QueuePart, tags: frozenset[str] | None) -> Iterator[Units]:
    """The units of a part of a queue that count, some at a time."""
    codes = None if tags is None or part.topic == DELAY_TOPIC else [tags_code(tag) for tag in tags]
    position = part.first * UNIT_SIZE
    for file in part.files:
        with LogFileReader(file) as reader:
            stop = min(part.behind * UNIT_SIZE, file.limit)
            while max(position, file.start) < stop:
                position = max(position, file.start)
                content = reader.read(position, min(_UNITS_AT_ONCE * UNIT_SIZE, stop - position))
                position += len(content)
                units = np.frombuffer(content, _UNIT)
                units = units[units["size"] != BLANK_SIZE]
                yield units if codes is None else units[_may_have(units, codes)]


def _may_have(units: Units, codes: list[int]) -> npt.NDArray[np.bool_]:
    """Which units may be of messages with one of these tags; an address of an extension may be of any."""
    found = units["code"].astype(np.int64)
    return np.isin(found, codes) | (found < _LEAST_HASH)


def _pieces(file: LogFile, units: Units) -> Iterator[Piece | Damage]:
    """The records of units, in buffers that are worth a batch."""
    if not len(units):
        return
    places, sizes = units["place"].astype(np.int64), units["size"].astype(np.int64)
    with LogFileReader(file) as reader:
        buffers: list[bytes] = []
        starts: list[Places] = []
        first, length = 0, 0
        for begin, end in _spans(places, places + sizes):
            offset = int(places[begin])
            buffers.append(reader.read(offset, int(places[end - 1] + sizes[end - 1]) - offset))
            starts.append(places[begin:end] - offset + length)
            length += len(buffers[-1])
            if length >= CHUNK or end == len(units):
                piece = Piece(b"".join(buffers), np.concatenate(starts), places[first:end])
                yield from _confirmed(piece, sizes[first:end])
                buffers, starts, first, length = [], [], end, 0


def _spans(starts: Places, ends: Places) -> Iterator[tuple[int, int]]:
    """Records that are read at once, from one to before another: they lie close together, and in order."""
    apart = np.flatnonzero((starts[1:] - ends[:-1] > _CLOSE) | (starts[1:] < ends[:-1])) + 1
    for first, behind in pairwise([0, *apart.tolist(), len(starts)]):
        while first < behind:
            fit = int(np.searchsorted(ends[first:behind], starts[first] + CHUNK, "right"))
            upto = first + max(fit, 1)
            yield first, upto
            first = upto


def _confirmed(piece: Piece, sizes: Places) -> Iterator[Piece | Damage]:
    """The records that are as long as the queue says, and what is there instead of others."""
    content = np.frombuffer(piece.buffer, np.uint8)
    inside = piece.starts + np.maximum(sizes, MIN_RECORD_SIZE) <= len(content)
    heads = np.zeros(len(sizes), HEAD_DTYPE)
    if inside.any():
        windows = np.ndarray((len(content) - HEAD.size + 1,), HEAD_DTYPE, content, strides=(1,))
        heads[inside] = windows[piece.starts[inside]]
    right = (heads["size"] == sizes) & ((heads["magic"] == MAGIC_V1) | (heads["magic"] == MAGIC_V2)) & inside
    if right.any():
        yield Piece(piece.buffer, piece.starts[right], piece.places[right])
    for place, size in zip(piece.places[~right].tolist(), sizes[~right].tolist(), strict=True):
        error = RecordError(place, f"a record of {size} bytes, because its queue says so", "none")
        yield Damage(place, place + size, error)
