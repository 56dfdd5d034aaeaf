"""Packing the records of a message batch before they are appended.

Rules kept here:
- Every item becomes an ordinary record that repeats the fields of the batch.
- The batch's own properties follow those of each item, as Apache 5.3 writes them: of a name that occurs twice
  the last counts.
- With a checksum property, a record ends in it; see `wire/record/crc.py`.
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
from cometmq.wire.record.crc import (
    CRC_PROPERTY_LENGTH,
    crc_property,
    with_crc_room,
    without_crc_property,
)
from cometmq.wire.record.layout import FIELDS, HOST_BITS, packed_format
from cometmq.wire.record.properties import MAX_PROPERTIES_LENGTH

SIGN_CLEARED: Final = 0x7FFFFFFF
_PAIR_END: Final = b"\x02"
_PAIR_END_BYTE: Final = _PAIR_END[0]

Part = bytes | bytearray | memoryview


class MessageBatch(msgspec.Struct):
    """Messages to be appended as a group.

    `head` has the fields they share: topic, queue, flags, times, hosts, the batch's own properties, and the
    queue offset of the first. The append sets its physical offset, store time and total size, which is that
    of all records together; `sizes` has that of each. `encoded_size` is the length of the request's body, to
    which the limit of a message's size applies.
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
    """The fixed part of a record, with the fields that all records of a batch share as one."""

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
    """Pack all records into parts; `topic` is length-prefixed. Sets the sizes of the batch."""
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
    # Brokers give every batch properties of its own, so that no item ends a record.
    own = bytes(without_crc_property(head.properties_block))
    queue_id, queue_offset = head.queue_id, head.queue_offset
    parts: list[Part] = []
    sizes: list[int] = []
    last_length, between = -1, b""
    for item in batch.items:
        body, block = item.body, item.properties_block
        rest = own  # a part of its own, so that the block is not copied
        if sealed or (block and block[-1] != _PAIR_END_BYTE and own):
            block, rest = joined_properties(block, own) if own else bytes(block), b""
            if sealed:
                block = with_crc_room(block)
        body_length, block_length = len(body), len(block) + len(rest)
        if block_length != last_length:  # mostly they are equal
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


def joined_properties(block: bytes | memoryview, own: bytes) -> bytes:
    """The properties of an item, with those of its batch."""
    if not block or block[-1:] == _PAIR_END:
        return b"".join((block, own))
    return b"".join((block, _PAIR_END, own))


def _sealed(*record: Part) -> list[Part]:
    """The parts of a record, with the checksum in the room that its properties have for it."""
    *parts, block = record
    parts.append(block[:-CRC_PROPERTY_LENGTH])
    value = 0
    for part in parts:
        value = crc32(part, value)
    return [*parts, crc_property(value & SIGN_CLEARED)]
