"""Records behind one another."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.model.errors import ProtocolError
from cometmq.model.message import Host
from cometmq.model.sysflag import CompressionType, with_compression
from cometmq.wire.record.codec import Record, decode_record, encode_record
from cometmq.wire.record.compression import compress
from cometmq.wire.record.ids import pack_host
from cometmq.wire.record.layout import write_filler
from cometmq.wire.record.walk import RecordWalk, WalkEnd, to_stored_message

BODIES = [b"first", b"", b"third body"]


def log_of(bodies: list[bytes]) -> bytearray:
    return bytearray().join(encode_record(Record("T", body)) for body in bodies)


def test_a_walk_gives_all_records_and_ends_at_the_limit() -> None:
    walk = RecordWalk(log_of(BODIES))

    assert [bytes(record.body) for record in walk] == BODIES
    assert (walk.end, walk.error, walk.position) == (WalkEnd.LIMIT, None, len(log_of(BODIES)))


def test_a_walk_over_nothing_ends_at_once() -> None:
    walk = RecordWalk(b"")

    assert list(walk) == []
    assert walk.end is WalkEnd.LIMIT


def test_a_walk_knows_where_it_is_while_it_goes() -> None:
    walk = RecordWalk(log_of(BODIES))
    ends = []
    for _ in walk:
        assert walk.end is None
        ends.append(walk.position)

    assert ends == [len(log_of(BODIES[:count])) for count in (1, 2, 3)]


def test_a_walk_begins_and_ends_where_it_is_told() -> None:
    log = log_of(BODIES)
    second, third = len(log_of(BODIES[:1])), len(log_of(BODIES[:2]))

    walk = RecordWalk(log, second, third)

    assert [bytes(record.body) for record in walk] == [b""]
    assert (walk.end, walk.position) == (WalkEnd.LIMIT, third)


def test_a_walk_stops_at_the_filler() -> None:
    """B5"""
    log = log_of(BODIES)
    end = len(log)
    log += bytes(40)
    write_filler(log, end, 40)

    walk = RecordWalk(log)

    assert len(list(walk)) == 3
    assert (walk.end, walk.position) == (WalkEnd.FILLER, end)


def test_a_walk_stops_where_nothing_was_written_yet_and_says_so() -> None:
    """B5"""
    log = log_of(BODIES)
    end = len(log)

    walk = RecordWalk(log + bytes(1000))

    assert len(list(walk)) == 3
    assert (walk.end, walk.position) == (WalkEnd.MALFORMED, end)
    assert "found 0x0" in str(walk.error)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=50), min_size=1, max_size=5), st.data())
def test_a_log_cut_anywhere_gives_the_records_before_the_cut(
    bodies: list[bytes], data: st.DataObject
) -> None:
    """B5"""
    log = log_of(bodies)
    ends = [len(log_of(bodies[:count])) for count in range(len(bodies) + 1)]
    cut = data.draw(st.integers(0, len(log)))
    whole = max(count for count, end in enumerate(ends) if end <= cut)

    walk = RecordWalk(log[:cut])

    assert [bytes(record.body) for record in walk] == bodies[:whole]
    assert walk.position == ends[whole]
    assert walk.end is (WalkEnd.LIMIT if cut in ends else WalkEnd.MALFORMED)


@settings(deadline=None)
@given(st.integers(0), st.binary(min_size=1, max_size=8))
def test_damage_ends_a_walk_and_never_breaks_it(place: int, change: bytes) -> None:
    log = log_of(BODIES)
    at = place % len(log)
    log[at : at + len(change)] = change

    walk = RecordWalk(log, decompress_body=True)

    assert len(list(walk)) <= 3
    assert walk.end is not None
    assert (walk.end is WalkEnd.LIMIT) == (walk.error is None)


def test_a_body_that_cannot_be_decompressed_ends_the_walk() -> None:
    log = log_of([b"good"]) + encode_record(Record("T", b"not lz4", sys_flag=0x101)) + log_of([b"unread"])

    walk = RecordWalk(log, decompress_body=True)

    assert [record.body for record in walk] == [b"good"]
    assert walk.end is WalkEnd.MALFORMED
    assert "LZ4" in str(walk.error)


def test_a_record_becomes_a_message_that_owns_its_bytes() -> None:
    """C4"""
    body = b"payload " * 100
    buffer = encode_record(
        Record(
            "orders",
            compress(body, CompressionType.ZSTD),
            b"TAGS\x01paid\x02UNIQ_KEY\x01ABC\x02",
            queue_id=2,
            queue_offset=7,
            physical_offset=4096,
            flag=5,
            sys_flag=with_compression(0, CompressionType.ZSTD),
            born_timestamp_ms=1,
            born_host=pack_host(Host("fd00::2", 50000)),
            store_timestamp_ms=2,
            store_host=pack_host(Host("127.0.0.1", 10911)),
            reconsume_times=3,
            prepared_transaction_offset=4,
        )
    )
    size = len(buffer)

    message = to_stored_message(decode_record(buffer, decompress_body=True), "broker-a")
    buffer[:] = bytes(size)

    assert message.topic == "orders"
    assert message.body == body
    assert message.properties == {"TAGS": "paid", "UNIQ_KEY": "ABC"}
    assert (message.msg_id, message.offset_msg_id) == ("ABC", "7F00000100002A9F0000000000001000")
    assert (message.broker_name, message.queue_id, message.queue_offset) == ("broker-a", 2, 7)
    assert (message.commit_log_offset, message.store_size, message.flag) == (4096, size, 5)
    assert (message.born_host, message.store_host) == (Host("fd00::2", 50000), Host("127.0.0.1", 10911))
    assert (message.born_timestamp_ms, message.store_timestamp_ms) == (1, 2)
    assert (message.reconsume_times, message.prepared_transaction_offset) == (3, 4)


def test_a_host_with_an_impossible_port_is_a_protocol_error() -> None:
    buffer = encode_record(Record("T", b"", born_host=b"\x7f\0\0\1\xff\xff\xff\xff"))

    with pytest.raises(ProtocolError, match="port"):
        to_stored_message(decode_record(buffer), "broker-a")
