"""Where the fields of a stored message are, and how to look at or change one without decoding the record.

Rules kept here:
- All numbers are big-endian. Up to the born host every field has a fixed place; behind it the places depend
  on whether a host is IPv4 or IPv6, which the system flag says.
- Nothing outside the given buffer is ever touched: a place that is not inside it is a `RecordError`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from cometmq.model.errors import ProtocolError
from cometmq.model.sysflag import BORN_HOST_V6, STORE_HOST_V6
from cometmq.wire.record.ids import PACKED_IPV4_LENGTH, PACKED_IPV6_LENGTH

if TYPE_CHECKING:
    from mmap import mmap

    ReadableBuffer = bytes | bytearray | memoryview | mmap
    WritableBuffer = bytearray | memoryview | mmap

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
MAGIC_FILLER: Final = 0xCBD43194
"""Stands in place of a record where the rest of a commit log file was too small for the next one."""

MAX_TOPIC_LENGTH_V1: Final = 127
MAX_TOPIC_LENGTH_V2: Final = 32767

FLAG_AT: Final = 16
QUEUE_OFFSET_AT: Final = 20
PHYSICAL_OFFSET_AT: Final = 28
SYS_FLAG_AT: Final = 36
BORN_TIMESTAMP_AT: Final = 40
BORN_HOST_AT: Final = 48

HEAD: Final = struct.Struct(">iI")
"""Total size and magic: the least that can be said about a record, and all that there is of a filler."""


def _fixed_part(born_host_length: int, store_host_length: int) -> struct.Struct:
    """Everything from the total size to the length of the body."""
    return struct.Struct(f">iIiiiqqiq{born_host_length}sq{store_host_length}siqi")


FIXED_V4: Final = _fixed_part(PACKED_IPV4_LENGTH, PACKED_IPV4_LENGTH)
FIXED_PARTS: Final = {
    0: FIXED_V4,
    BORN_HOST_V6: _fixed_part(PACKED_IPV6_LENGTH, PACKED_IPV4_LENGTH),
    STORE_HOST_V6: _fixed_part(PACKED_IPV4_LENGTH, PACKED_IPV6_LENGTH),
    BORN_HOST_V6 | STORE_HOST_V6: _fixed_part(PACKED_IPV6_LENGTH, PACKED_IPV6_LENGTH),
}
"""The fixed part by the two host bits of the system flag."""

HOST_BITS: Final = {
    (PACKED_IPV4_LENGTH, PACKED_IPV4_LENGTH): 0,
    (PACKED_IPV6_LENGTH, PACKED_IPV4_LENGTH): BORN_HOST_V6,
    (PACKED_IPV4_LENGTH, PACKED_IPV6_LENGTH): STORE_HOST_V6,
    (PACKED_IPV6_LENGTH, PACKED_IPV6_LENGTH): BORN_HOST_V6 | STORE_HOST_V6,
}
"""Those two bits by the lengths of born host and store host."""

TAIL_LENGTHS_V1: Final = 3
TAIL_LENGTHS_V2: Final = 4
"""What the lengths of topic and properties take behind the body."""

MIN_RECORD_SIZE: Final = FIXED_V4.size + TAIL_LENGTHS_V1

_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_OFFSETS: Final = struct.Struct(">qq")


class RecordError(ProtocolError):
    """Bytes that are not a record: where they are, what was expected there and what was found."""

    def __init__(self, offset: int, expected: str, found: object) -> None:
        super().__init__(f"at {offset}: expected {expected}, found {found}")
        self.offset = offset
        self.expected = expected


class FillerError(RecordError):
    """The end-of-file filler where a record was asked for: the log goes on in the next file."""


def peek_head(buffer: ReadableBuffer, offset: int) -> tuple[int, int]:
    """Total size and magic of the record, or the filler, at this offset."""
    check_inside(buffer, offset, HEAD.size)
    size, magic = HEAD.unpack_from(buffer, offset)
    return size, magic


def peek_queue_offset(buffer: ReadableBuffer, offset: int) -> int:
    return _peek(_INT64, buffer, offset + QUEUE_OFFSET_AT)


def peek_physical_offset(buffer: ReadableBuffer, offset: int) -> int:
    return _peek(_INT64, buffer, offset + PHYSICAL_OFFSET_AT)


def peek_sys_flag(buffer: ReadableBuffer, offset: int) -> int:
    return _peek(_INT32, buffer, offset + SYS_FLAG_AT)


def peek_store_timestamp(buffer: ReadableBuffer, offset: int) -> int:
    return _peek(_INT64, buffer, offset + store_timestamp_at(peek_sys_flag(buffer, offset)))


def store_timestamp_at(sys_flag: int) -> int:
    """The place of the store timestamp, which is behind the born host."""
    return BORN_HOST_AT + (PACKED_IPV6_LENGTH if sys_flag & BORN_HOST_V6 else PACKED_IPV4_LENGTH)


def patch_offsets(buffer: WritableBuffer, offset: int, queue_offset: int, physical_offset: int) -> None:
    """Give the record at `offset` its place in the queue and in the log."""
    check_inside(buffer, offset + QUEUE_OFFSET_AT, _OFFSETS.size)
    _OFFSETS.pack_into(buffer, offset + QUEUE_OFFSET_AT, queue_offset, physical_offset)


def patch_store_timestamp(buffer: WritableBuffer, offset: int, store_timestamp_ms: int) -> None:
    place = offset + store_timestamp_at(peek_sys_flag(buffer, offset))
    check_inside(buffer, place, _INT64.size)
    _INT64.pack_into(buffer, place, store_timestamp_ms)


def write_filler(buffer: WritableBuffer, offset: int, size: int) -> None:
    """Mark the `size` bytes from here to the end of a file as unused."""
    check_inside(buffer, offset, HEAD.size)
    HEAD.pack_into(buffer, offset, size, MAGIC_FILLER)


def _peek(field: struct.Struct, buffer: ReadableBuffer, place: int) -> int:
    check_inside(buffer, place, field.size)
    value: int = field.unpack_from(buffer, place)[0]
    return value


def check_inside(buffer: ReadableBuffer, place: int, size: int) -> None:
    """Refuse a place whose `size` bytes are not all inside the buffer."""
    # A negative place would count from the end, as everywhere in Python.
    if place < 0 or place + size > len(buffer):
        raise RecordError(place, f"{size} bytes of a record", f"a buffer of {len(buffer)} bytes")
