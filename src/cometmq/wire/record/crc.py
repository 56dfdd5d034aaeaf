"""CRC-32 checksums of message records: of the body, and of the whole record as its last property.

Rules kept here:
- Every checksum is a CRC-32 with the sign bit cleared: the peers keep it in a signed 32-bit field.
- The record checksum is the last property of a record and takes `CRC_PROPERTY_LENGTH` bytes. The writer
  leaves room for it and fills it in when offsets and store time are final. It covers every byte before
  itself.
- Its value is ten decimal digits with the least significant first: 123456789 is written `9876543210`.
"""

from __future__ import annotations

from operator import ne
from typing import TYPE_CHECKING, Final

from zlib_ng.zlib_ng import crc32

from cometmq.wire.record.layout import MIN_RECORD_SIZE, RecordError, check_inside

if TYPE_CHECKING:
    from cometmq.wire.record.layout import ReadableBuffer, WritableBuffer

SIGN_CLEARED: Final = 0x7FFFFFFF
_DIGITS: Final = 10
_PREFIX: Final = b"__CRC32#\x01"
_SUFFIX: Final = b"\x02"

CRC_PROPERTY_LENGTH: Final = len(_PREFIX) + _DIGITS + len(_SUFFIX)
_VALUE_AT: Final = len(_PREFIX)
BEFORE_CRC: Final = _VALUE_AT - 1 - CRC_PROPERTY_LENGTH
"""The byte between name and value of a checksum, from the end of a record: 1."""
_DAMAGED_AT_MOST: Final = 4
"""With no more wrong bytes than that, the end of a record is what is left of a checksum."""


def checksum(data: bytes | bytearray | memoryview) -> int:
    """Returns the CRC-32 of these bytes as the 31-bit number of a record."""
    return crc32(data) & SIGN_CLEARED


def crc_property(value: int) -> bytes:
    return _PREFIX + str(value).encode("ascii")[::-1].ljust(_DIGITS, b"0") + _SUFFIX


def parse_crc_property(tail: bytes) -> int | None:
    """Returns the checksum in the last `CRC_PROPERTY_LENGTH` bytes of a record; None if there is none."""
    digits = tail[len(_PREFIX) : -len(_SUFFIX)]
    if len(tail) != CRC_PROPERTY_LENGTH or not (tail.startswith(_PREFIX) and tail.endswith(_SUFFIX)):
        return None
    return int(digits[::-1]) if digits.isdigit() else None


def resembles_crc_property(tail: bytes, *, sealed: bool = False) -> bool:
    """Whether the last `CRC_PROPERTY_LENGTH` bytes of a record are a checksum, or what damage left of one.

    All but a few of its bytes have to be there. In a log whose records are `sealed`, the separators may be
    among the wrong ones; elsewhere a sender's value could look like that.
    """
    if len(tail) != CRC_PROPERTY_LENGTH:
        return False
    separators = (tail[_VALUE_AT - 1] != 1) + (tail[-1] != 2)
    if separators and not sealed:
        return False
    name, value = tail[: _VALUE_AT - 1], tail[_VALUE_AT:-1]
    wrong = separators + sum(map(ne, name, _PREFIX)) + sum(not 48 <= byte <= 57 for byte in value)
    return bool(wrong <= _DAMAGED_AT_MOST)


def without_crc_property(block: bytes | memoryview) -> bytes | memoryview:
    """Properties of a sender, ended so that nobody takes the last of them for the checksum of the record.

    A further separator at the end says nothing, here and to Apache's readers.
    """
    if not resembles_crc_property(bytes(block[-CRC_PROPERTY_LENGTH:])):
        return block
    return b"".join((block, _SUFFIX))


def with_crc_room(properties_block: bytes) -> bytes:
    """Returns the properties block with room for the record's checksum; `seal_record` fills it in."""
    separator = b"" if not properties_block or properties_block.endswith(_SUFFIX) else _SUFFIX
    return properties_block + separator + bytes(CRC_PROPERTY_LENGTH)


def seal_record(buffer: WritableBuffer, offset: int, total_size: int) -> None:
    """Write the checksum of a record that was encoded with `with_crc_room`."""
    crc_at = _crc_place(buffer, offset, total_size)
    buffer[crc_at : offset + total_size] = crc_property(checksum(memoryview(buffer)[offset:crc_at]))


def record_is_intact(buffer: ReadableBuffer, offset: int, total_size: int) -> bool | None:
    """Whether a record's checksum is right; None for a record without one."""
    crc_at = _crc_place(buffer, offset, total_size)
    stored = parse_crc_property(bytes(buffer[crc_at : offset + total_size]))
    return None if stored is None else stored == checksum(memoryview(buffer)[offset:crc_at])


def _crc_place(buffer: ReadableBuffer, offset: int, total_size: int) -> int:
    if total_size < MIN_RECORD_SIZE:
        raise RecordError(offset, f"a record of {MIN_RECORD_SIZE} bytes or more", total_size)
    check_inside(buffer, offset, total_size)
    return offset + total_size - CRC_PROPERTY_LENGTH
