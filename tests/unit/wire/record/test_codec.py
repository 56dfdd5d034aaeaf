"""The message record: writing, reading, looking at and changing single fields."""

import mmap
import pickle
import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.model.errors import MessageError, ProtocolError
from cometmq.model.message import Host
from cometmq.model.sysflag import COMPRESSED, HOST_V6_MASK, CompressionType, with_compression
from cometmq.wire.record import layout as layout
from cometmq.wire.record.codec import Record, decode_record, encode_record
from cometmq.wire.record.compression import compress
from cometmq.wire.record.ids import pack_host
from cometmq.wire.record.layout import FillerError, RecordError
from cometmq.wire.record.properties import encode_properties

V4 = pack_host(Host("10.0.0.1", 50000))
V6 = pack_host(Host("fd00::2", 10911))
REFERENCE = bytes.fromhex(
    "00000080 daa320a7 3610a686 00000003 00000000 0000000000000007 0000000000001000 00000000"
    "0000018bcfe56800 0a000001 0000c350 0000018bcfe5687b 7f000001 00002a9f 00000000 0000000000000000"
    "00000005 68656c6c6f 09 546f70696354657374 0017 554e49515f4b4559 01 414243 02 54414753 01 54616741 02"
)

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
hosts = st.sampled_from([V4, V6])
records = st.builds(
    Record,
    topic=st.text(st.characters(blacklist_categories=["Cs"]), max_size=140),
    body=st.binary(max_size=300),
    properties_block=st.binary(max_size=80),
    queue_id=int32,
    flag=int32,
    queue_offset=int64,
    physical_offset=int64,
    sys_flag=int32,
    born_timestamp_ms=int64,
    born_host=hosts,
    store_timestamp_ms=int64,
    store_host=hosts,
    reconsume_times=int32,
    prepared_transaction_offset=int64,
)


def values(record: Record) -> dict[str, Any]:
    return {
        name: bytes(value) if isinstance(value, memoryview) else value
        for name, value in msgspec.structs.asdict(record).items()
    }


def record_or_error(buffer: bytearray, check_crc: bool, decompress_body: bool) -> Record | RecordError:
    try:
        return decode_record(
            buffer, check_crc=check_crc, decompress_body=decompress_body, max_body_size=10_000
        )
    except RecordError as error:
        return error


def reference_record() -> Record:
    return Record(
        topic="TopicTest",
        body=b"hello",
        properties_block=encode_properties({"UNIQ_KEY": "ABC", "TAGS": "TagA"}),
        queue_id=3,
        queue_offset=7,
        physical_offset=4096,
        born_timestamp_ms=1700000000000,
        born_host=V4,
        store_timestamp_ms=1700000000123,
        store_host=pack_host(Host("127.0.0.1", 10911)),
    )


def test_the_reference_record_is_written_byte_for_byte() -> None:
    """B4"""
    assert encode_record(reference_record()) == REFERENCE


def test_the_reference_record_is_read_field_by_field() -> None:
    """B4"""
    expected = reference_record()
    expected.total_size, expected.magic, expected.body_crc = 128, layout.MAGIC_V1, 0x3610A686

    decoded = decode_record(REFERENCE, check_crc=True)

    assert values(decoded) == values(expected)
    assert decoded.properties() == {"UNIQ_KEY": "ABC", "TAGS": "TagA"}


@settings(deadline=None)
@given(records)
def test_a_record_comes_back_as_it_was_with_host_bits_that_fit_its_hosts(record: Record) -> None:
    encoded = encode_record(record)
    decoded = decode_record(encoded, check_crc=True)

    ours, theirs = values(record), values(decoded)
    for name in ("total_size", "magic", "body_crc", "sys_flag"):
        del ours[name], theirs[name]
    assert theirs == ours
    assert decoded.sys_flag & ~HOST_V6_MASK == record.sys_flag & ~HOST_V6_MASK
    assert decoded.total_size == len(encoded)
    assert encode_record(decoded) == encoded


@pytest.mark.parametrize(
    ("length", "magic"),
    [(127, layout.MAGIC_V1), (128, layout.MAGIC_V2), (255, layout.MAGIC_V2), (32767, layout.MAGIC_V2)],
)
def test_long_topics_make_version_two(length: int, magic: int) -> None:
    encoded = encode_record(Record("t" * length, b"body"))

    assert layout.peek_head(encoded, 0) == (len(encoded), magic)
    assert decode_record(encoded).topic == "t" * length


def test_a_version_two_record_with_a_short_topic_keeps_its_version() -> None:
    encoded = encode_record(Record("short", b"body", magic=layout.MAGIC_V2))

    decoded = decode_record(encoded)

    assert (decoded.topic, decoded.magic, decoded.total_size) == ("short", layout.MAGIC_V2, len(encoded))
    assert encode_record(decoded) == encoded


@pytest.mark.parametrize(
    ("born", "store", "size"), [(V4, V4, 97), (V6, V4, 109), (V4, V6, 109), (V6, V6, 121)]
)
def test_each_ipv6_host_adds_twelve_bytes(born: bytes, store: bytes, size: int) -> None:
    encoded = encode_record(Record("T", b"hello", born_host=born, store_host=store))

    assert len(encoded) == size
    assert (decode_record(encoded).born_host, decode_record(encoded).store_host) == (born, store)


def test_a_record_read_from_a_mapped_file_is_a_view_of_it() -> None:
    with mmap.mmap(-1, 4096) as mapped:
        mapped[10:138] = REFERENCE
        with memoryview(mapped) as view:
            record = decode_record(view, 10)
            mapped[10 + 88] = ord("j")
            assert record.body == b"jello"
            assert isinstance(record.body, memoryview)
            assert isinstance(record.properties_block, memoryview)
            record.body.release()
            record.properties_block.release()


@pytest.mark.parametrize(
    "field", ["queue_id", "flag", "queue_offset", "born_timestamp_ms", "reconsume_times"]
)
def test_a_number_too_large_for_its_field_is_refused(field: str) -> None:
    record = reference_record()
    setattr(record, field, 2**63)

    with pytest.raises(MessageError, match="does not fit"):
        encode_record(record)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (Record("t" * 32768, b""), "topic"),
        (Record("\ud800", b""), "UTF-8"),
        (Record("t", b"", bytes(32768)), "properties"),
        (Record("t", b"", born_host=b"1234"), "hosts"),
    ],
)
def test_what_cannot_be_a_record_is_refused(record: Record, reason: str) -> None:
    with pytest.raises(MessageError, match=reason):
        encode_record(record)


def test_a_wrong_checksum_is_found_only_when_asked_for() -> None:
    damaged = bytearray(REFERENCE)
    damaged[88] ^= 0x01

    assert decode_record(damaged).body == b"iello"
    with pytest.raises(RecordError, match="checksum") as caught:
        decode_record(damaged, check_crc=True)
    assert caught.value.offset == 88


@pytest.mark.parametrize("kind", list(CompressionType))
def test_a_compressed_body_is_decompressed_on_request_and_its_bit_cleared(kind: CompressionType) -> None:
    """P6"""
    body = b"compress me " * 1000
    flag = with_compression(0x8, kind)
    encoded = encode_record(Record("T", compress(body, kind), sys_flag=flag))

    as_stored = decode_record(encoded, check_crc=True)
    as_sent = decode_record(encoded, check_crc=True, decompress_body=True)

    assert (as_stored.body, as_stored.sys_flag) == (compress(body, kind), flag)
    assert (as_sent.body, as_sent.sys_flag) == (body, flag & ~COMPRESSED)
    assert as_sent.total_size == len(encoded)


def test_a_body_compressed_without_a_type_is_zlib() -> None:
    encoded = encode_record(Record("T", compress(b"old client", CompressionType.ZLIB), sys_flag=COMPRESSED))

    assert decode_record(encoded, decompress_body=True).body == b"old client"


@pytest.mark.parametrize(
    ("sys_flag", "body", "reason"),
    [
        (0x301, b"not zlib", "not valid ZLIB"),
        (0x701, b"whatever", "compression type 7"),
        (0x301, compress(bytes(2000), CompressionType.ZLIB), "more than the limit of 1000 bytes"),
    ],
)
def test_a_body_that_cannot_be_decompressed_says_where_it_is(sys_flag: int, body: bytes, reason: str) -> None:
    encoded = encode_record(Record("T", body, sys_flag=sys_flag))

    with pytest.raises(RecordError, match=reason) as caught:
        decode_record(encoded, decompress_body=True, max_body_size=1000)
    assert caught.value.offset == 88


def test_an_empty_body_marked_compressed_is_empty() -> None:
    assert (
        decode_record(encode_record(Record("T", b"", sys_flag=COMPRESSED)), decompress_body=True).body == b""
    )


def test_the_filler_at_the_end_of_a_file_is_told_apart_from_damage() -> None:
    """B4"""
    buffer = bytearray(50)
    layout.write_filler(buffer, 10, 40)

    assert layout.peek_head(buffer, 10) == (40, layout.MAGIC_FILLER)
    with pytest.raises(FillerError, match="of 40 bytes") as caught:
        decode_record(buffer, 10)
    assert caught.value.offset == 10
    with pytest.raises(FillerError):
        decode_record(buffer, 10, 18)


@settings(deadline=None, max_examples=50)
@given(records, st.integers(0, 30), st.binary(max_size=30), st.data())
def test_a_record_cut_off_anywhere_is_an_error_even_if_bytes_follow(
    record: Record, offset: int, behind: bytes, data: st.DataObject
) -> None:
    encoded = encode_record(record)
    buffer = bytes(offset) + encoded + behind
    limit = data.draw(st.integers(offset, offset + len(encoded) - 1))

    for source in (buffer, memoryview(buffer)):
        with pytest.raises(RecordError):
            decode_record(source, offset, limit)
    with pytest.raises(RecordError):
        decode_record(buffer[:limit], offset)
    assert decode_record(buffer, offset).total_size == len(encoded)


@settings(deadline=None)
@given(records, st.integers(0), st.binary(min_size=1, max_size=8), st.booleans(), st.booleans())
def test_changed_bytes_are_a_record_or_a_record_error(
    record: Record, place: int, change: bytes, check_crc: bool, decompress_body: bool
) -> None:
    buffer = encode_record(record)
    at = place % len(buffer)
    buffer[at : at + len(change)] = change
    outcome = record_or_error(buffer, check_crc, decompress_body)
    if isinstance(outcome, RecordError):
        assert 0 <= outcome.offset <= len(buffer)
    else:
        assert outcome.total_size <= len(buffer)


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(-10, 210), st.integers(-10, 210))
def test_any_bytes_at_any_place_are_a_record_error(buffer: bytes, offset: int, limit: int) -> None:
    with pytest.raises(ProtocolError, match="expected"):
        decode_record(buffer, offset, limit)


@pytest.mark.parametrize(
    ("at", "format_", "value", "reason"),
    [
        (0, ">i", 127, "properties that end at 127"),
        (0, ">i", 90, "a total size of 91 or more"),
        (0, ">i", -1, "a total size of 91 or more"),
        (0, ">i", 129, "ends at or before 128"),
        (4, ">I", 0xDAA320A8, "the magic 0xdaa320a7 or 0xdaa320ab, found 0xdaa320a8"),
        (84, ">i", -1, "body"),
        (84, ">i", 41, "body"),
        (84, ">i", 40, "topic"),
        (84, ">i", 2**31 - 1, "body"),
        (93, ">B", 128, "topic"),
        (93, ">B", 33, "topic"),
        (94, ">B", 0xFF, "a topic in UTF-8"),
        (103, ">h", 22, "properties"),
        (103, ">h", 24, "properties"),
        (103, ">h", -1, "properties"),
    ],
)
def test_a_wrong_length_or_magic_is_named(at: int, format_: str, value: int, reason: str) -> None:
    buffer = bytearray(REFERENCE)
    struct.pack_into(format_, buffer, at, value)

    with pytest.raises(RecordError, match=reason):
        decode_record(buffer)


def test_host_bits_that_the_record_has_no_room_for_are_an_error() -> None:
    buffer = encode_record(Record("", b""))
    struct.pack_into(">i", buffer, layout.SYS_FLAG_AT, HOST_V6_MASK)

    with pytest.raises(RecordError, match="IPv6"):
        decode_record(buffer)


def test_a_record_error_survives_pickling() -> None:
    with pytest.raises(RecordError) as caught:
        decode_record(b"")

    copy = pickle.loads(pickle.dumps(caught.value))

    assert type(copy) is RecordError
    assert (str(copy), copy.offset, copy.expected) == (str(caught.value), 0, caught.value.expected)


@pytest.mark.parametrize("born_host", [V4, V6])
def test_single_fields_are_read_in_place(born_host: bytes) -> None:
    """B4"""
    record = reference_record()
    record.born_host, record.sys_flag = born_host, 0x8
    record.queue_offset, record.physical_offset, record.store_timestamp_ms = 2**40, 2**50, 1800000000000
    buffer = bytearray(50) + encode_record(record)

    assert layout.peek_head(buffer, 50) == (len(buffer) - 50, layout.MAGIC_V1)
    assert layout.peek_queue_offset(buffer, 50) == 2**40
    assert layout.peek_physical_offset(buffer, 50) == 2**50
    assert layout.peek_store_timestamp(buffer, 50) == 1800000000000


@pytest.mark.parametrize("offset", [-1, -200, 10, 1000])
def test_fields_outside_the_buffer_are_neither_read_nor_written(offset: int) -> None:
    buffer = bytearray(16)

    for peek in (
        layout.peek_head,
        layout.peek_queue_offset,
        layout.peek_physical_offset,
        layout.peek_store_timestamp,
    ):
        with pytest.raises(RecordError):
            peek(buffer, offset)
    with pytest.raises(RecordError):
        layout.write_filler(buffer, offset, 8)
    assert buffer == bytearray(16)


def test_a_record_has_the_fields_of_the_layout_in_its_order() -> None:
    assert (*Record.__struct_fields__[3:], "body_length") == tuple(layout.FIELDS)


def test_struct_formats_numpy_types_and_offsets_follow_from_the_table_of_fields() -> None:
    offsets = {name: layout.field_at(name) for name in layout.FIELDS}

    assert layout.FIXED_V4.format == ">iIiiiqqiq8sq8siqi"
    assert layout.FIXED_PARTS[HOST_V6_MASK].format == ">iIiiiqqiq20sq20siqi"
    assert list(offsets.values()) == [0, 4, 8, 12, 16, 20, 28, 36, 40, 48, 56, 64, 72, 76, 84]
    assert layout.fields_format("total_size", "magic", "physical_offset") == ">iI20xq"
    assert layout.packed_format("reconsume_times", "body_length") == ">ii"
    assert [kind for _, kind in layout.numpy_fields("V8")][:3] == [">i4", ">u4", ">i4"]
    assert dict(layout.numpy_fields("V8"))["born_host"] == "V8"
