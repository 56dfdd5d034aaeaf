"""Checking that the units of a consume queue lead to records of this queue and these offsets.

Rules kept here:
- A record belongs to a unit if it has the unit's physical offset and size, and the queue's topic, id and
  offset; or if it names the queue in its multi-dispatch properties.
- After a loss, Apache's queues can have messages at other offsets than their records say, all shifted by the
  same number. A record whose neighbour has the same shift belongs there, too.
- The lengths in a record have to add up, so that a reader of several finds the next one. In a bulk read,
  topic and lengths are checked in one of 16 records: fewer than the units in one disk sector.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from operator import sub
from typing import Final, Protocol

from cometmq.model.sysflag import HOST_V6_MASK
from cometmq.store.dispatch_rules import QueuePosition, is_in_queue
from cometmq.store.queue.files import Unit
from cometmq.wire.record.codec import Record, decode_record
from cometmq.wire.record.layout import (
    FIXED_PARTS,
    MAGIC_V1,
    MAGIC_V2,
    RecordError,
    fields_format,
    fields_struct,
    topic_field,
)

Fields = tuple[int, int, int, int, int]
_NAMES: Final = ("total_size", "magic", "queue_id", "queue_offset", "physical_offset")
FIELDS: Final = fields_struct(*_NAMES)
_FLAGS_AND_BODY: Final = fields_struct("sys_flag", "body_length")
"""Only where both hosts are IPv4."""
_BODY_LENGTH: Final = {bits: fields_struct("body_length", host_bits=bits) for bits in FIXED_PARTS}
_V4_HEAD: Final = fields_format(*_NAMES, "sys_flag", "body_length")
_V4_BODY_AT: Final = FIXED_PARTS[0].size
_EVERY: Final = 16
_MAGICS: Final = (MAGIC_V1, MAGIC_V2)


class NamedQueue(Protocol):
    """The name of a queue."""

    topic: str
    queue_id: int


def all_belong(
    queue: NamedQueue, offsets: Iterable[int], starts: Sequence[int], records: Sequence[memoryview]
) -> bool:
    """Whether records at these physical offsets belong to these offsets of a queue."""
    try:
        offsets, sizes = list(offsets), list(map(len, records))
        if _are_alike(queue, offsets, starts, sizes, records):
            return True
        found: list[Fields] = list(map(FIELDS.unpack_from, records))
        return _are(found, queue, offsets, starts, sizes) and _have_tails(records, queue.topic, found[0][1])
    except (struct.error, KeyError, IndexError, OverflowError):
        return False


def all_lie_in(
    view: memoryview, base: int, queue: NamedQueue, offset: int, starts: Sequence[int], sizes: Sequence[int]
) -> bool:
    """Whether records belong to a queue from an offset on; they are in one view that begins at `base`."""
    try:
        found: list[Fields] = list(map(FIELDS.unpack_from, repeat(view), map(sub, starts, repeat(base))))
        some = (*zip(starts[::_EVERY], sizes[::_EVERY], strict=True), (starts[-1], sizes[-1]))
        records = [view[start - base : start - base + size] for start, size in some]
        offsets = range(offset, offset + len(starts))
        return _are(found, queue, offsets, starts, sizes) and _have_tails(records, queue.topic, found[0][1])
    except (struct.error, KeyError, IndexError, OverflowError):
        return False


def belongs(queue: NamedQueue, offset: int, start: int, record: memoryview) -> bool:
    """Whether one record belongs to an offset of a queue."""
    return all_belong(queue, (offset,), (start,), (record,))


def _are(
    found: list[Fields],
    queue: NamedQueue,
    offsets: Iterable[int],
    starts: Iterable[int],
    sizes: Iterable[int],
) -> bool:
    return found == list(zip(sizes, repeat(found[0][1]), repeat(queue.queue_id), offsets, starts))


def _are_alike(
    queue: NamedQueue,
    offsets: Sequence[int],
    starts: Sequence[int],
    sizes: Sequence[int],
    records: Sequence[memoryview],
) -> bool:
    """Whether records with bodies and properties of one size belong to the queue, at half the cost.

    False if they do not, or are not alike.
    """
    if sizes.count(sizes[0]) != len(sizes):
        return False
    magic = FIELDS.unpack_from(records[0])[1]
    flags, body_length = _FLAGS_AND_BODY.unpack_from(records[0])
    name = _encoded_name(queue.topic, magic)
    properties_length = sizes[0] - _V4_BODY_AT - body_length - len(name) - 2
    if flags & HOST_V6_MASK or body_length < 0 or properties_length < 0:
        return False
    tail = name + properties_length.to_bytes(2, "big")
    alike = (repeat(flags), repeat(body_length), repeat(tail))
    expected = zip(sizes, repeat(magic), repeat(queue.queue_id), offsets, starts, *alike)
    return list(map(_whole_head(body_length, len(tail)).unpack_from, records)) == list(expected)


@lru_cache(256)
def _whole_head(body_length: int, tail_length: int) -> struct.Struct:
    """`FIELDS`, system flag, body length, and the bytes from the body to the properties."""
    return struct.Struct(f"{_V4_HEAD}{body_length}x{tail_length}s")


@lru_cache(256)
def _encoded_name(topic: str, magic: int) -> bytes:
    """The length-prefixed topic in a record of this version."""
    if magic not in _MAGICS:
        raise KeyError(magic)
    return topic_field(topic.encode("utf-8", "surrogatepass"), magic)


def _have_tails(records: Iterable[memoryview], topic: str, magic: int) -> bool:
    """Whether each body is followed by the topic, and by properties up to the end of the record."""
    name = _encoded_name(topic, magic)
    length = len(name) + 2
    for record in records:
        flags, body_length = _FLAGS_AND_BODY.unpack_from(record)
        at = _V4_BODY_AT + body_length
        if flags & HOST_V6_MASK:
            fixed = _BODY_LENGTH[flags & HOST_V6_MASK]
            at = fixed.size + fixed.unpack_from(record)[0]
        if record[at : at + length] != name + (len(record) - at - length).to_bytes(2, "big"):
            return False
    return True


def misplaced_record(
    queue: NamedQueue,
    offset: int,
    unit: Unit,
    record: memoryview,
    neighbours: Callable[[int], Iterable[tuple[int, memoryview]]],
) -> Record | None:
    """The record of a unit if it belongs there by multi-dispatch or by a shift; otherwise None.

    `neighbours` returns the offsets and records next to a queue offset.
    """
    found = _decoded(unit[0], record)
    if found is None:
        return None
    if is_in_queue(found, QueuePosition(queue.topic, queue.queue_id, offset)):
        return found
    if (found.topic, found.queue_id) != (queue.topic, queue.queue_id):
        return None
    shift = found.queue_offset - offset
    for other_offset, view in neighbours(offset):
        try:
            _, magic, queue_id, queue_offset, _ = FIELDS.unpack_from(view)
        except struct.error:
            continue
        if magic in _MAGICS and (queue_id, queue_offset - other_offset) == (queue.queue_id, shift):
            return found
    return None


def _decoded(start: int, record: memoryview) -> Record | None:
    try:
        found = decode_record(record)
    except RecordError:
        return None
    return found if found.physical_offset == start and found.total_size == len(record) else None
