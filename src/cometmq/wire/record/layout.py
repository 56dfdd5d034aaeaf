"""Byte layout of a message record, as the commit log and the answer to a pull have it: one table of fields.

     0  total_size                   int32   all bytes of the record
     4  magic                        uint32  MAGIC_V1, or MAGIC_V2 with 2 bytes for the length of the topic
     8  body_crc                     int32   CRC-32 of the body, sign bit cleared
    12  queue_id                     int32
    16  flag                         int32   the sender's own
    20  queue_offset                 int64
    28  physical_offset              int64   where the record begins in the commit log
    36  sys_flag                     int32   `model/sysflag.py`
    40  born_timestamp_ms            int64
    48  born_host                    address and port: 4 + 4 bytes, with BORN_HOST_V6 16 + 4
    56  store_timestamp_ms           int64
    64  store_host                   address and port: 4 + 4 bytes, with STORE_HOST_V6 16 + 4
    72  reconsume_times              int32
    76  prepared_transaction_offset  int64
    84  body_length                  int32
    88  body
        topic_length                 uint8, in version 2 uint16
        topic                        UTF-8
        properties_length            int16
        properties                   `wire/record/properties.py`

Numbers are big-endian. An IPv6 host moves all fields after it by 12 bytes. Where the rest of a commit log
file is too small for the next record, `total_size` and MAGIC_FILLER take its place.

Rules kept here:
- Struct formats, NumPy types and offsets of other modules follow from `FIELDS`, by the names above.
- Nothing outside the given buffer is ever touched: an offset that is not inside it is a `RecordError`.
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

MAX_TOPIC_LENGTH_V1: Final = 127
MAX_TOPIC_LENGTH_V2: Final = 32767

FIELDS: Final = {
    "total_size": "i",
    "magic": "I",
    "body_crc": "i",
    "queue_id": "i",
    "flag": "i",
    "queue_offset": "q",
    "physical_offset": "q",
    "sys_flag": "i",
    "born_timestamp_ms": "q",
    "born_host": f"{PACKED_IPV4_LENGTH}s",
    "store_timestamp_ms": "q",
    "store_host": f"{PACKED_IPV4_LENGTH}s",
    "reconsume_times": "i",
    "prepared_transaction_offset": "q",
    "body_length": "i",
}
"""The fixed part of a record with IPv4 hosts: names and struct codes."""

_NUMPY_CODES: Final = {"i": ">i4", "I": ">u4", "q": ">i8"}


def fields_format(*names: str, host_bits: int = 0) -> str:
    """Returns the struct format of some fields in the order of the record, with pad bytes between them."""
    codes = [">"]
    padding = 0
    for name, code in _fields(host_bits).items():
        if name not in names:
            padding += struct.calcsize(f">{code}")
            continue
        codes += (f"{padding}x", code) if padding else (code,)
        padding = 0
    return "".join(codes)


def packed_format(*names: str, host_bits: int = 0) -> str:
    """Returns the struct format of some fields, one directly after the other."""
    fields = _fields(host_bits)
    return ">" + "".join(fields[name] for name in names)


def fields_struct(*names: str, host_bits: int = 0) -> struct.Struct:
    return struct.Struct(fields_format(*names, host_bits=host_bits))


def field_at(name: str) -> int:
    """Returns where a field begins in a record with IPv4 hosts."""
    return fields_struct(name).size - struct.calcsize(f">{FIELDS[name]}")


def numpy_fields(host: str) -> list[tuple[str, str]]:
    """Returns the fixed part of a record with IPv4 hosts as a NumPy type; `host` is the type of a host."""
    return [(name, _NUMPY_CODES.get(code, host)) for name, code in FIELDS.items()]


def _fields(host_bits: int) -> dict[str, str]:
    fields = dict(FIELDS)
    for name, bit in (("born_host", BORN_HOST_V6), ("store_host", STORE_HOST_V6)):
        if host_bits & bit:
            fields[name] = f"{PACKED_IPV6_LENGTH}s"
    return fields


def topic_field(topic: bytes, magic: int) -> bytes:
    """Returns the topic with its length before it."""
    return len(topic).to_bytes(1 if magic == MAGIC_V1 else 2, "big") + topic


HEAD: Final = fields_struct("total_size", "magic")
"""The least that can be said about a record, and all that there is of a filler."""
FIXED_PARTS: Final = {
    bits: fields_struct(*FIELDS, host_bits=bits)
    for bits in (0, BORN_HOST_V6, STORE_HOST_V6, BORN_HOST_V6 | STORE_HOST_V6)
}
"""All fields up to the length of the body, by the two host bits of the system flag."""
FIXED_V4: Final = FIXED_PARTS[0]

HOST_BITS: Final = {
    (PACKED_IPV4_LENGTH, PACKED_IPV4_LENGTH): 0,
    (PACKED_IPV6_LENGTH, PACKED_IPV4_LENGTH): BORN_HOST_V6,
    (PACKED_IPV4_LENGTH, PACKED_IPV6_LENGTH): STORE_HOST_V6,
    (PACKED_IPV6_LENGTH, PACKED_IPV6_LENGTH): BORN_HOST_V6 | STORE_HOST_V6,
}
"""Those two bits by the lengths of born host and store host."""

MAGIC_AT: Final = field_at("magic")
SYS_FLAG_AT: Final = field_at("sys_flag")
BORN_HOST_AT: Final = field_at("born_host")
PROPERTIES_LENGTH_SIZE: Final = 2
MIN_RECORD_SIZE: Final = FIXED_V4.size + 1 + PROPERTIES_LENGTH_SIZE

_QUEUE_OFFSET: Final = fields_struct("queue_offset")
_PHYSICAL_OFFSET: Final = fields_struct("physical_offset")
_SYS_FLAG: Final = fields_struct("sys_flag")
_STORE_TIMESTAMP: Final = {
    bit: fields_struct("store_timestamp_ms", host_bits=bit) for bit in (0, BORN_HOST_V6)
}


class RecordError(ProtocolError):
    """Bytes that are not a record: where they are, what was expected there and what was found."""

    def __init__(self, offset: int, expected: str, found: object) -> None:
        super().__init__(f"at {offset}: expected {expected}, found {found}")
        self.offset = offset
        self.expected = expected


class FillerError(RecordError):
    """The end-of-file filler instead of a record: the log goes on in the next file."""


def peek_head(buffer: ReadableBuffer, offset: int) -> tuple[int, int]:
    """Returns total size and magic of the record, or the filler, at this offset."""
    check_inside(buffer, offset, HEAD.size)
    size, magic = HEAD.unpack_from(buffer, offset)
    return size, magic


def peek_queue_offset(buffer: ReadableBuffer, offset: int) -> int:
    return _peek(_QUEUE_OFFSET, buffer, offset)


def peek_physical_offset(buffer: ReadableBuffer, offset: int) -> int:
    return _peek(_PHYSICAL_OFFSET, buffer, offset)


def peek_store_timestamp(buffer: ReadableBuffer, offset: int) -> int:
    sys_flag = _peek(_SYS_FLAG, buffer, offset)
    return _peek(_STORE_TIMESTAMP[sys_flag & BORN_HOST_V6], buffer, offset)


def write_filler(buffer: WritableBuffer, offset: int, size: int) -> None:
    """Mark the `size` bytes from here to the end of a file as unused."""
    check_inside(buffer, offset, HEAD.size)
    HEAD.pack_into(buffer, offset, size, MAGIC_FILLER)


def _peek(field: struct.Struct, buffer: ReadableBuffer, offset: int) -> int:
    check_inside(buffer, offset, field.size)
    value: int = field.unpack_from(buffer, offset)[0]
    return value


def check_inside(buffer: ReadableBuffer, offset: int, size: int) -> None:
    """Refuse an offset whose `size` bytes are not all inside the buffer."""
    # A negative offset would count from the end, as everywhere in Python.
    if offset < 0 or offset + size > len(buffer):
        raise RecordError(offset, f"{size} bytes of a record", f"a buffer of {len(buffer)} bytes")
