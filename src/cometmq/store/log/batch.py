"""Batches: the messages of one queue that are appended and dispatched together, all or none.

Rules kept here:
- Every item becomes an ordinary record that repeats the fields of the batch.
- The batch's own properties follow those of each item, as Apache 5.3 writes them: of a name that occurs twice
  the last counts.
- With a checksum property, a record ends in it; see `wire/record/crc.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import ClassVar, Final, Protocol

import msgspec
from zlib_ng.zlib_ng import crc32

from cometmq.model.errors import MessageError
from cometmq.model.sysflag import HOST_V6_MASK
from cometmq.store.dispatch_rules import NO_VALUES, put_values, unique_keys_of_all
from cometmq.store.log.group_walk import RecordGroup, UnitWriter
from cometmq.wire.record.batch import BatchItem
from cometmq.wire.record.codec import Record
from cometmq.wire.record.crc import SIGN_CLEARED, seal_record, with_crc_room, without_crc_property
from cometmq.wire.record.layout import FIELDS, HOST_BITS, packed_format
from cometmq.wire.record.properties import MAX_PROPERTIES_LENGTH

_PAIR_END: Final = b"\x02"
_PAIR_END_BYTE: Final = _PAIR_END[0]

Part = bytes | bytearray | memoryview


class PropertiesTooLongError(Exception):
    """The properties of an item do not fit into a record."""


class Batch(Protocol):
    """Messages to be appended as a group.

    `head` has the fields they share: topic, queue, flags, times, hosts, the batch's own properties, and the
    queue offset of the first. The append sets its physical offset, store time and total size, which is that
    of all records together.
    """

    head: Record
    count: int
    is_bulk: ClassVar[bool]
    """Whether its messages came as records."""
    encoded_size: int
    """The size to which the limit of a message's size applies."""
    packed_size: int
    """The size of all records; 0 if it is known only when they are packed."""
    sizes: Sequence[int]
    """The size of each record, set by `pack`, if the answer to the sender needs them."""

    def pack(
        self,
        magic: int,
        topic: bytes,
        physical_offset: int,
        stored_ms: int,
        store_host: bytes,
        *,
        sealed: bool,
    ) -> bytes | bytearray | memoryview:
        """The records for a physical offset; `topic` has its length before it.

        Raises `MessageError`, `PropertiesTooLongError` or `struct.error`.
        """
        ...

    def group(self, queue: UnitWriter, *, with_arrivals: bool) -> RecordGroup:
        """What is to be dispatched after the append."""
        ...


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


class MessageBatch:
    """The messages of a batch request, whose body has `encoded_size` bytes."""

    __slots__ = ("count", "encoded_size", "head", "items", "sizes")

    is_bulk: ClassVar[bool] = False
    packed_size = 0

    def __init__(self, head: Record, items: Sequence[BatchItem], encoded_size: int) -> None:
        self.head = head
        self.items = items
        self.count = len(items)
        self.encoded_size = encoded_size
        self.sizes: Sequence[int] = ()

    def pack(
        self,
        magic: int,
        topic: bytes,
        physical_offset: int,
        stored_ms: int,
        store_host: bytes,
        *,
        sealed: bool,
    ) -> bytes | bytearray:
        head = self.head
        layout = _LAYOUTS.get((len(head.born_host), len(store_host)))
        if layout is None:
            raise MessageError(f"a host of {len(head.born_host)} bytes cannot be written; pack it first")
        shared = layout.shared.pack(
            head.sys_flag & ~HOST_V6_MASK | layout.host_bits,
            head.born_timestamp_ms,
            head.born_host,
            stored_ms,
            store_host,
            head.reconsume_times,
            head.prepared_transaction_offset,
        )
        pack = layout.fixed.pack
        overhead = layout.fixed.size + len(topic) + 2
        # Brokers give every batch properties of its own, so that no item ends a record.
        own = bytes(head.properties_block)
        if own:
            own = bytes(without_crc_property(own))
        queue_id, queue_offset = head.queue_id, head.queue_offset
        parts: list[Part] = []
        sizes: list[int] = []
        last_length, between = -1, b""
        for item in self.items:
            body, block = item.body, item.properties_block
            rest = own  # a part of its own, so that the block is not copied
            if sealed or (block and block[-1] != _PAIR_END_BYTE and own):
                block, rest = _joined(block, own) if own else bytes(block), b""
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
            parts += (fixed, body, between, block, rest)
            sizes.append(size)
            physical_offset += size
            queue_offset += 1
        self.sizes = sizes
        return _sealed(parts, sizes) if sealed else b"".join(parts)

    def group(self, queue: UnitWriter, *, with_arrivals: bool) -> RecordGroup:
        head = self.head
        topic, stored_ms = head.topic, head.store_timestamp_ms
        group = RecordGroup(head.physical_offset, head.physical_offset)
        *starts, group.end = accumulate(self.sizes, initial=head.physical_offset)
        group.count, group.last_stored_ms = len(starts), stored_ms
        codes: list[int] = []
        own = bytes(head.properties_block)
        own_counts = bool(own) and put_values(own) != NO_VALUES  # the batch's own properties hardly ever do
        blocks = [item.properties_block for item in self.items]
        unique_keys = None if own_counts else unique_keys_of_all(blocks)
        if unique_keys is not None:
            codes = [put_values(blocks[0])[0]] * len(blocks)
            group.keyed = [
                (topic, key, None, start, stored_ms) for key, start in zip(unique_keys, starts, strict=True)
            ]
        else:
            previous: bytes | memoryview | None = None
            for start, block in zip(starts, blocks, strict=True):
                if block != previous:  # without keys, items often have the same properties
                    code, unique_key, keys, _ = put_values(_joined(block, own) if own_counts else block)
                    previous = block
                codes.append(code)
                if unique_key or keys:
                    group.keyed.append((topic, unique_key, keys, start, stored_ms))
        group.columns = queue, head.queue_offset, starts, self.sizes, codes
        if with_arrivals:
            for at, (code, block) in enumerate(zip(codes, blocks, strict=True), head.queue_offset):
                group.arrivals.append((topic, head.queue_id, at, code, stored_ms, block))
        return group


def _joined(block: bytes | memoryview, own: bytes) -> bytes:
    """The properties of an item, with those of its batch."""
    if not block or block[-1:] == _PAIR_END:
        return b"".join((block, own))
    return b"".join((block, _PAIR_END, own))


def _sealed(parts: list[Part], sizes: list[int]) -> bytearray:
    """The records, with their checksums in the room that their properties have for them."""
    records = bytearray().join(parts)
    for start, size in zip(accumulate(sizes, initial=0), sizes, strict=False):
        seal_record(records, start, size)
    return records
