"""Bulks of encoded records from a producer: checked, completed and described by columns of NumPy.

Rules kept here:
- One malformed record refuses the whole bulk: a walk over the log has to find each record, with the right
  checksum and topic.
- The producer's tags codes and key hashes are believed. If they are wrong, its own messages are not found.
- Records of one size with bodies of one size, as most topics have them, are checked together.
- Bodies of one length are sliced together for their checksums: for short ones, a slice each takes longer than
  the CRC-32.
- NumPy is no requirement of a broker; one without it does not know such requests.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from zlib_ng.zlib_ng import crc32

from cometmq.model.errors import MessageError
from cometmq.model.message_properties import CRC32
from cometmq.store.index.arrays import bulk_columns
from cometmq.store.log.group_walk import QueueUnits, RecordGroup, UnitWriter
from cometmq.wire.frame.command import Body
from cometmq.wire.record.codec import Record
from cometmq.wire.record.crc import BEFORE_CRC, CRC_PROPERTY_LENGTH, SIGN_CLEARED, resembles_crc_property
from cometmq.wire.record.layout import (
    FIXED_V4,
    HEAD,
    MAGIC_V1,
    MAX_TOPIC_LENGTH_V1,
    MIN_RECORD_SIZE,
    SYS_FLAG_AT,
    numpy_fields,
    packed_format,
    topic_field,
)
from cometmq.wire.record.preencoded import CODE_BYTES, HASH_BYTES, SIZE_BYTES
from cometmq.wire.record.properties import MAX_PROPERTIES_LENGTH

if TYPE_CHECKING:  # NumPy is no requirement of a broker
    from collections.abc import Iterator
    from typing import Any

    import numpy as np
    import numpy.typing as npt

    Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]
    Table = np.ndarray[tuple[int], np.dtype[Any]]
    Bytes = npt.NDArray[np.uint8]

_SHORT: Final = 1024
"""Longer bodies are not copied."""
_FEW: Final = 8
"""Fewer bodies of one length are not worth slicing together."""


RECORD_HEAD: Final = numpy_fields("V8")
_LAST: Final = struct.Struct(packed_format("reconsume_times", "prepared_transaction_offset", "body_length"))
"""The last fields of the fixed part."""
_PROPERTY_END: Final = b"\x02"
_UNIT: Final = [("physical_offset", ">i8"), ("size", ">i4"), ("code", ">i8")]
_HOST_BYTES: Final = 8


def body_checksums(content: Bytes, starts: Numbers, ends: Numbers) -> Numbers:
    """The record checksums (CRC-32 without the sign) of bodies, none of which is empty."""
    import numpy as np

    found = np.empty(len(starts), np.int64)
    view = content.data
    for length, rows in _by_length(ends - starts):
        if length > _SHORT or len(rows) < _FEW:
            ranges = zip(starts[rows].tolist(), ends[rows].tolist(), strict=True)
            found[rows] = [crc32(view[start:end]) for start, end in ranges]
        else:
            windows = np.ndarray((len(content) - length + 1,), f"V{length}", content, strides=(1,))
            found[rows] = _each(windows[starts[rows]])
    found &= SIGN_CLEARED
    return found


def even_checksums(content: Bytes, start: int, length: int, step: int) -> Numbers:
    """The checksums of bodies of one length that begin every `step` bytes."""
    import numpy as np

    count = len(content) // step
    if length > _SHORT:
        starts = np.arange(start, start + count * step, step)
        return body_checksums(content, starts, starts + length)
    return _each(np.ndarray((count,), f"V{length}", content, start, (step,))) & SIGN_CLEARED


def _each(bodies: np.ndarray[tuple[int], np.dtype[np.void]]) -> Numbers:
    import numpy as np

    return np.fromiter(map(crc32, bodies.tolist()), np.int64, len(bodies))


def _by_length(lengths: Numbers) -> Iterator[tuple[int, Numbers]]:
    """Group rows by length."""
    import numpy as np

    if not len(lengths):
        return
    if (lengths == lengths[0]).all():
        yield int(lengths[0]), np.arange(len(lengths))
        return
    order = np.argsort(lengths, kind="stable")
    edges = np.flatnonzero(np.diff(lengths[order])) + 1
    for rows in np.split(order, edges):
        yield int(lengths[rows[0]]), rows


class RecordBulk:
    """Encoded records for the queue of `head`. They are completed in place if the body is writable."""

    __slots__ = (
        "_codes",
        "_common_body",
        "_common_size",
        "_data",
        "_hashes",
        "_heads",
        "_sizes",
        "_starts",
        "count",
        "head",
        "packed_size",
    )

    is_bulk: ClassVar[bool] = True
    encoded_size = 0
    sizes: Sequence[int] = ()

    def __init__(self, head: Record, body: Body, count: int, *, keyed: bool, max_size: int) -> None:
        """Raises `MessageError` if these are not records of this topic."""
        import numpy as np

        self.head, self.count = head, count
        topic = head.topic.encode()
        columns = count * (SIZE_BYTES + CODE_BYTES + (HASH_BYTES if keyed else 0))
        if not count or len(body) < columns + count * MIN_RECORD_SIZE or len(topic) > MAX_TOPIC_LENGTH_V1:
            raise MessageError(f"{len(body)} bytes cannot be {count} records")
        self._sizes: Numbers = np.frombuffer(body, ">i4", count).astype(np.int64)
        at = count * SIZE_BYTES
        self._codes: Numbers = np.frombuffer(body, ">i8", count, at).astype(np.int64)
        at += count * CODE_BYTES
        self._hashes: Numbers | None = None
        if keyed:
            self._hashes = np.frombuffer(body, ">i4", count, at).astype(np.int64)
        ends = np.cumsum(self._sizes)
        data = np.frombuffer(body, np.uint8, offset=columns)
        self._data = data if data.flags.writeable else data.copy()
        smallest, largest = int(self._sizes.min()), int(self._sizes.max())
        if smallest < MIN_RECORD_SIZE or int(ends[-1]) != len(self._data):
            raise MessageError("the sizes of the records are not those of the request")
        self._starts: Numbers = ends - self._sizes
        self.packed_size = len(self._data)
        self._common_size = largest if smallest == largest else 0
        self._heads: Table = self._table(RECORD_HEAD)
        self._common_body = self._body_of_all(topic, max_size) if self._common_size else 0
        if not self._common_body:
            self._check(topic, max_size)
        self._refuse_checksums()
        if self._hashes is not None and int(self._hashes.min()) < 0:
            raise MessageError("the hash of a key is negative")

    def _table(self, dtype: list[tuple[str, str]]) -> Table:
        """The fixed parts of the records: a view if all have one size, else a copy."""
        import numpy as np

        if self._common_size:
            return np.ndarray((self.count,), dtype, self._data, strides=(self._common_size,))
        return self._rows(FIXED_V4.size, self._starts).view(dtype).reshape(-1)

    def _rows(self, width: int, starts: Numbers) -> Table:
        """Copy `width` bytes from each start."""
        import numpy as np

        rows: Table = np.lib.stride_tricks.sliding_window_view(self._data, width)[starts]
        return rows

    def _body_of_all(self, topic: bytes, max_size: int) -> int:
        """The common body size of records of one size; 0 if they differ, or one is malformed."""
        size, name = self._common_size, topic_field(topic, MAGIC_V1)
        length = int(self._heads["body_length"][0])
        body_end = FIXED_V4.size + length
        rest = size - body_end - len(name) - 2
        if not 0 < length <= max_size or not 0 <= rest <= MAX_PROPERTIES_LENGTH:
            return 0
        is_right = (
            self._all_have(0, HEAD.pack(size, MAGIC_V1))
            and self._all_have(SYS_FLAG_AT, bytes(4))
            and self._all_have(FIXED_V4.size - _LAST.size, _LAST.pack(0, 0, length))
            and self._all_have(body_end, name + rest.to_bytes(2, "big"))
            and (not rest or self._all_have(size - 1, _PROPERTY_END))
        )
        return length if is_right else 0

    def _all_have(self, at: int, wanted: bytes) -> bool:
        """Whether all records, which have one size, contain these bytes at a position."""
        import numpy as np

        found = np.ndarray((self.count,), f"V{len(wanted)}", self._data, at, (self._common_size,))
        return found.tobytes() == wanted * self.count

    def _check(self, topic: bytes, max_size: int) -> None:
        import numpy as np

        heads, sizes = self._heads, self._sizes
        lengths = heads["body_length"].astype(np.int64)
        tails = self._starts + FIXED_V4.size + lengths
        name = topic_field(topic, MAGIC_V1)
        rest = sizes - FIXED_V4.size - lengths - len(name) - 2
        is_wrong = (
            (heads["total_size"] != sizes)
            | (heads["magic"] != MAGIC_V1)
            | (heads["sys_flag"] != 0)
            | (heads["reconsume_times"] != 0)
            | (heads["prepared_transaction_offset"] != 0)
            | (lengths <= 0)
            | (rest < 0)
            | (rest > MAX_PROPERTIES_LENGTH)
        )
        if not is_wrong.any():
            wanted = np.frombuffer(name, np.uint8)
            is_wrong = (self._rows(len(name), tails) != wanted).any(axis=1)
            block_lengths = self._rows(2, tails + len(name)).view(">u2").reshape(-1)
            is_wrong |= block_lengths != rest
            is_wrong |= (rest > 0) & (self._data[self._starts + sizes - 1] != _PROPERTY_END[0])
        if is_wrong.any():
            number = int(np.flatnonzero(is_wrong)[0])
            raise MessageError(f"record {number} of {len(sizes)} is not one of this topic")
        if int(lengths.max()) > max_size:
            raise MessageError(f"a record has {lengths.max()} bytes; msg body length limit {max_size}B")

    def _refuse_checksums(self) -> None:
        """Raise `MessageError` if a record ends as if it had a checksum, which only a store writes."""
        import numpy as np

        ends = self._starts + self._sizes
        candidates = np.flatnonzero(self._data[ends + BEFORE_CRC] == 1)
        if not len(candidates):
            return
        tails = self._rows(CRC_PROPERTY_LENGTH, ends[candidates] - CRC_PROPERTY_LENGTH)
        names = np.frombuffer(CRC32.encode(), np.uint8)
        for tail in tails[(tails[:, : len(names)] != names).sum(axis=1) < len(names)]:
            if resembles_crc_property(tail.tobytes()):
                raise MessageError("a record ends with a property that looks like RocketMQ's checksum of it")

    def pack(
        self,
        magic: int,
        topic: bytes,
        physical_offset: int,
        stored_ms: int,
        store_host: bytes,
        *,
        sealed: bool,
    ) -> memoryview:
        """Complete the records; those of the producer are of version 1 and have no checksums of their own."""
        import numpy as np

        if sealed or magic != MAGIC_V1 or not can_take(self.head.born_host, store_host):
            raise MessageError("the records do not have the form that this log needs")
        heads, data = self._heads, self._data.data
        heads["queue_id"] = self.head.queue_id
        heads["queue_offset"] = self.head.queue_offset + np.arange(self.count)
        heads["physical_offset"] = physical_offset + self._starts
        heads["store_timestamp_ms"] = stored_ms
        heads["born_host"] = np.void(self.head.born_host)
        heads["store_host"] = np.void(store_host)
        if self._common_body:
            heads["body_crc"] = even_checksums(
                self._data, FIXED_V4.size, self._common_body, self._common_size
            )
        else:
            bodies = self._starts + FIXED_V4.size
            heads["body_crc"] = body_checksums(
                self._data, bodies, bodies + heads["body_length"].astype(np.int64)
            )
        if not self._common_size:
            rows = heads.view(np.uint8).reshape(self.count, FIXED_V4.size)
            windows = np.lib.stride_tricks.sliding_window_view(self._data, FIXED_V4.size, writeable=True)
            windows[self._starts] = rows
        return data

    def group(self, queue: UnitWriter, *, with_arrivals: bool) -> RecordGroup:
        import numpy as np

        head, offsets = self.head, self.head.physical_offset + self._starts
        group = RecordGroup(head.physical_offset, head.physical_offset)
        group.end, group.count = head.physical_offset + self.packed_size, self.count
        group.last_stored_ms = head.store_timestamp_ms
        rows = np.empty(self.count, _UNIT)
        rows["physical_offset"], rows["size"], rows["code"] = offsets, self._sizes, self._codes
        units = QueueUnits(queue.topic, queue.queue_id, head.queue_offset)
        units.packed = rows.tobytes()
        group.queues.append(units)
        if self._hashes is not None:
            group.key_columns = bulk_columns(self._hashes, offsets, head.store_timestamp_ms)
        if with_arrivals:
            messages = enumerate(zip(self._codes.tolist(), self._blocks(), strict=True), head.queue_offset)
            group.arrivals = [
                (head.topic, head.queue_id, at, code, head.store_timestamp_ms, block)
                for at, (code, block) in messages
            ]
        return group

    def _blocks(self) -> list[memoryview]:
        """The properties of each record."""
        import numpy as np

        data = self._data.data
        lengths = self._heads["body_length"].astype(np.int64)
        tails = self._starts + FIXED_V4.size + lengths
        begins = (tails + self._data[tails] + 3).tolist()
        return [
            data[begin:end] for begin, end in zip(begins, (self._starts + self._sizes).tolist(), strict=True)
        ]


def can_take(born_host: bytes, store_host: bytes) -> bool:
    """Whether records with these hosts can be put as a bulk: both are IPv4."""
    return len(born_host) == len(store_host) == _HOST_BYTES
