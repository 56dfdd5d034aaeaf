"""Messages as the records that stand for them in the log, packed complete before they are written.

Rules kept here:
- Every item of a batch becomes an ordinary record; what the request says of all of them stands in each.
- The batch's own properties follow those of each item, as Apache 5.3 writes them: of a name that occurs twice
  the last counts. A batch that has none leaves the items' properties as they are.
- With a checksum of its own, a record ends in the property that carries it; see `wire/record/crc.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import msgspec
from zlib_ng.zlib_ng import crc32

from cometmq.model.errors import MessageError
from cometmq.model.sysflag import HOST_V6_MASK
from cometmq.wire.record.batch import BatchItem
from cometmq.wire.record.codec import Record
from cometmq.wire.record.crc import CRC_PROPERTY_LENGTH, crc_property, with_crc_room, without_crc_property
from cometmq.wire.record.layout import FIELDS, HOST_BITS, packed_format
from cometmq.wire.record.properties import MAX_PROPERTIES_LENGTH

SIGN_CLEARED: Final = 0x7FFFFFFF
_PAIR_END: Final = b"\x02"
_PAIR_END_BYTE: Final = _PAIR_END[0]

Part = bytes | bytearray | memoryview


class MessageBatch(msgspec.Struct):
    """Messages to be appended as one unit.

    `head` has what they share: topic, queue, flags, times, hosts, the batch's own properties, and the queue
    offset of the first. The append sets its physical offset, store time and total size, which is that of all
    records together; `sizes` are those of each. `encoded_size` is the length of the request's body, which is
    what the limit of a message's size is held against.
    """

    head: Record
    items: Sequence[BatchItem]
    encoded_size: int
    sizes: list[int] = []


class PropertiesTooLongError(Exception):
    """The properties of an item do not fit into a record."""


_SHARED: Final = (
    "sys_flag",
    "born_timestamp_ms",
    "born_host",
    "store_timestamp_ms",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
)
"""Fields that are equal in all records of a batch; they follow one another in a record."""


class _Layout(msgspec.Struct, frozen=True):
    """The fixed part of a record, with the shared fields as one."""

    host_bits: int
    shared: struct.Struct
    fixed: struct.Struct


def _layout(host_bits: int) -> _Layout:
    names = tuple(FIELDS)
    before, after = packed_format(*names[: names.index(_SHARED[0])]), FIELDS["body_length"]
    shared = struct.Struct(packed_format(*_SHARED, host_bits=host_bits))
    return _Layout(host_bits, shared, struct.Struct(f"{before}{shared.size}s{after}"))


_LAYOUTS: Final = {lengths: _layout(host_bits) for lengths, host_bits in HOST_BITS.items()}


def pack_records(
    batch: MessageBatch,
    magic: int,
    topic: bytes,
    physical_offset: int,
    store_timestamp_ms: int,
    store_host: bytes,
    *,
    sealed: bool,
) -> list[Part]:
    """The bytes of all records, in parts; `topic` begins with its length. Sets the sizes of the batch."""
    head = batch.head
    layout = _LAYOUTS.get((len(head.born_host), len(store_host)))
    if layout is None:
        raise MessageError(f"a host of {len(head.born_host)} bytes cannot be written; pack it first")
    shared = layout.shared.pack(
        head.sys_flag & ~HOST_V6_MASK | layout.host_bits,
        head.born_timestamp_ms,
        head.born_host,
        store_timestamp_ms,
        store_host,
        head.reconsume_times,
        head.prepared_transaction_offset,
    )
    pack = layout.fixed.pack
    overhead = layout.fixed.size + len(topic) + 2
    own = bytes(without_crc_property(head.properties_block))
    queue_id, queue_offset = head.queue_id, head.queue_offset
    parts: list[Part] = []
    sizes: list[int] = []
    last_length, between = -1, b""
    for item in batch.items:
        body, block = item.body, item.properties_block
        rest = own  # written behind the block, which need not be copied for that
        if sealed or (block and block[-1] != _PAIR_END_BYTE and own):
            block, rest = behind_each_other(block, own) if own else bytes(block), b""
            if sealed:
                block = with_crc_room(block)
        if not own and not sealed:
            block = without_crc_property(block)
        body_length, block_length = len(body), len(block) + len(rest)
        if block_length != last_length:  # it is that of the item before, mostly
            if block_length > MAX_PROPERTIES_LENGTH:
                raise PropertiesTooLongError
            last_length, between = block_length, topic + block_length.to_bytes(2, "big")
        size = overhead + body_length + block_length
        fixed = pack(
            size,
            magic,
            crc32(body) & SIGN_CLEARED,
            queue_id,
            item.flag,
            queue_offset,
            physical_offset,
            shared,
            body_length,
        )
        if sealed:
            parts += _sealed(fixed, body, between, block)
        else:
            parts += (fixed, body, between, block, rest)
        sizes.append(size)
        physical_offset += size
        queue_offset += 1
    batch.sizes = sizes
    return parts


def behind_each_other(block: bytes | memoryview, own: bytes) -> bytes:
    """The properties of an item, with those of its batch."""
    if not block or block[-1:] == _PAIR_END:
        return b"".join((block, own))
    return b"".join((block, _PAIR_END, own))


def _sealed(*record: Part) -> list[Part]:
    """The parts of a record, with its checksum in the room that the last one has for it."""
    *parts, block = record
    parts.append(block[:-CRC_PROPERTY_LENGTH])
    value = 0
    for part in parts:
        value = crc32(part, value)
    return [*parts, crc_property(value & SIGN_CLEARED)]
