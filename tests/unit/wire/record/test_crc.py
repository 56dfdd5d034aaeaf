"""Checksums of bodies and records."""

import pytest

from cometmq.wire.record.codec import Record, decode_record, encode_record
from cometmq.wire.record.crc import (
    CRC_PROPERTY_LENGTH,
    checksum,
    crc_property,
    parse_crc_property,
    record_is_intact,
    resembles_crc_property,
    seal_record,
    with_crc_room,
    without_crc_property,
)
from cometmq.wire.record.layout import RecordError
from cometmq.wire.record.properties import decode_properties


def test_the_sign_bit_of_a_checksum_is_cleared() -> None:
    """The check value of CRC-32 is 0xCBF43926, which has that bit set."""
    assert checksum(b"123456789") == 0x4BF43926
    assert checksum(b"") == 0


def test_the_digits_of_a_record_checksum_begin_with_the_least_significant() -> None:
    assert crc_property(123456789) == b"__CRC32#\x019876543210\x02"
    assert crc_property(0) == b"__CRC32#\x010000000000\x02"
    assert len(crc_property(0x7FFFFFFF)) == CRC_PROPERTY_LENGTH == 20


@pytest.mark.parametrize("value", [0, 1, 10, 123456789, 0x7FFFFFFF])
def test_a_record_checksum_is_read_again(value: int) -> None:
    assert parse_crc_property(crc_property(value)) == value


@pytest.mark.parametrize(
    "other",
    [
        b"",
        b"__CRC32#\x01987654321\x02",
        b"__CRC32#\x01987654321x\x02",
        b"__CRC32#\x019876543210\x01",
        b"x" + crc_property(1),
    ],
)
def test_something_else_is_not_taken_for_a_record_checksum(other: bytes) -> None:
    assert parse_crc_property(other) is None


def test_room_for_the_checksum_is_separated_from_the_properties() -> None:
    room = bytes(CRC_PROPERTY_LENGTH)
    assert with_crc_room(b"") == room
    assert with_crc_room(b"a\x01b") == b"a\x01b\x02" + room
    assert with_crc_room(b"a\x01b\x02") == b"a\x01b\x02" + room


def test_a_sealed_record_is_intact_until_any_of_its_bytes_changes() -> None:
    """B4"""
    buffer = encode_record(Record("T", b"body", with_crc_room(b"TAGS\x01a")))
    assert record_is_intact(buffer, 0, len(buffer)) is None

    seal_record(buffer, 0, len(buffer))

    assert record_is_intact(buffer, 0, len(buffer)) is True
    properties = decode_record(buffer).properties()
    covered = checksum(memoryview(buffer)[:-CRC_PROPERTY_LENGTH])
    assert properties == {"TAGS": "a", "__CRC32#": str(covered)[::-1].ljust(10, "0")}
    for position in range(len(buffer)):
        changed = bytearray(buffer)
        changed[position] ^= 0x01
        assert record_is_intact(changed, 0, len(changed)) is not True


@pytest.mark.parametrize(("offset", "size"), [(0, 90), (-1, 100), (1, 200), (0, 201), (200, 91)])
def test_a_record_outside_the_buffer_is_refused(offset: int, size: int) -> None:
    buffer = bytearray(200)
    with pytest.raises(RecordError):
        seal_record(buffer, offset, size)
    with pytest.raises(RecordError):
        record_is_intact(buffer, offset, size)
    assert buffer == bytearray(200)


@pytest.mark.parametrize("name", [b"__CRC32#", b"x__CRC32#", b"__CRC3__", b"a\x01__CRC32#"])
def test_properties_of_a_sender_are_not_taken_for_a_checksum(name: bytes) -> None:
    """B7: the record would count as damaged."""
    block = b"a\x01b\x02" + name + b"\x011234567890\x02"
    assert resembles_crc_property(block[-CRC_PROPERTY_LENGTH:])
    ended = bytes(without_crc_property(block))
    assert ended == block + b"\x02"
    assert not resembles_crc_property(ended[-CRC_PROPERTY_LENGTH:])
    assert decode_properties(ended) == decode_properties(block)


@pytest.mark.parametrize(
    "block", [b"", b"a\x01b\x02", b"colour\x011234567890\x02", b"a\x01__CRC32#x1234567890\x02"]
)
def test_other_properties_stay_as_they_are(block: bytes) -> None:
    assert without_crc_property(block) is block
