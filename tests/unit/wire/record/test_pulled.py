"""The messages in the answer to a pull."""

from __future__ import annotations

import pickle

import msgspec
import pytest

from cometmq.model.message import Host
from cometmq.model.queue import MessageQueue
from cometmq.model.sysflag import INNER_BATCH, NEED_UNWRAP, CompressionType, with_compression
from cometmq.wire.record.batch import BatchItem, encode_batch
from cometmq.wire.record.codec import Record, decode_record, encode_record
from cometmq.wire.record.compression import compress
from cometmq.wire.record.ids import pack_host
from cometmq.wire.record.properties import encode_properties
from cometmq.wire.record.pulled import LazyProperties, decode_pulled
from cometmq.wire.record.walk import to_stored_message

QUEUE = MessageQueue("orders", "broker-a", 1)
V4, V6 = pack_host(Host("127.0.0.1", 10911)), pack_host(Host("::1", 10911))


def record(
    offset: int, tags: str | None = None, topic: str = "orders", host: bytes = V4, sys_flag: int = 0
) -> Record:
    properties = {"UNIQ_KEY": f"ID{offset}", "TAGS": tags}
    return Record(
        topic,
        b"body %d" % offset,
        encode_properties(properties),
        queue_id=1,
        queue_offset=offset,
        physical_offset=offset * 300,
        born_host=host,
        store_host=host,
        reconsume_times=offset,
        sys_flag=sys_flag,
        born_timestamp_ms=1_700_000_000_000 + offset,
    )


def pulled(*records: Record) -> bytes:
    return b"".join(encode_record(each) for each in records)


@pytest.mark.parametrize(
    "form",
    [
        record(3),
        record(3, "paid"),
        record(3, host=V6),
        record(3, topic="t" * 200),
        record(3, topic="größe"),
    ],
    ids=["plain", "tags", "IPv6", "long topic", "wide topic"],
)
def test_messages_are_what_the_exact_reader_makes_of_them(form: Record) -> None:
    """C4."""
    body = pulled(form, form)
    messages, error = decode_pulled(body, QUEUE)
    assert error is None
    assert messages == [to_stored_message(decode_record(body), "broker-a")] * 2


def test_a_compressed_body_comes_as_it_was() -> None:
    plain = record(1)
    packed = msgspec.structs.replace(
        plain,
        body=compress(bytes(plain.body), CompressionType.ZSTD),
        sys_flag=with_compression(0, CompressionType.ZSTD),
    )
    ((message,), error) = decode_pulled(pulled(packed), QUEUE)
    assert (message.body, error) == (b"body 1", None)


def test_an_inner_batch_comes_as_its_messages() -> None:
    items = [BatchItem(b"one", encode_properties({"TAGS": "a"}), 1), BatchItem(b"two", b"", 2)]
    outer = msgspec.structs.replace(record(10, sys_flag=INNER_BATCH | NEED_UNWRAP), body=encode_batch(items))
    messages, error = decode_pulled(pulled(record(9), outer, record(12)), QUEUE)
    assert error is None
    assert [(each.queue_offset, each.body) for each in messages] == [
        (9, b"body 9"),
        (10, b"one"),
        (11, b"two"),
        (12, b"body 12"),
    ]
    assert (messages[1].tags, messages[1].flag, messages[2].tags) == ("a", 1, None)


def test_only_messages_with_one_of_the_tags_are_kept() -> None:
    """C1: a broker compares hashes, and those of Aa and BB are equal."""
    body = pulled(record(0, "Aa"), record(1, "BB"), record(2), record(3, "paid", host=V6))
    messages, _ = decode_pulled(body, QUEUE, ("Aa", "paid"))
    assert [each.queue_offset for each in messages] == [0, 3]


def test_offsets_of_a_static_topic_are_shifted() -> None:
    messages, _ = decode_pulled(pulled(record(0), record(1)), QUEUE, offset_delta=100)
    assert [each.queue_offset for each in messages] == [100, 101]


@pytest.mark.parametrize("cut", [1, 20, 95, 100])
def test_reading_stops_at_what_is_no_record_and_says_why(cut: int) -> None:
    """C4."""
    body = pulled(record(0), record(1))
    messages, error = decode_pulled(body[:-cut], QUEUE)
    assert [each.queue_offset for each in messages] == [0]
    assert error is not None


def test_any_damage_is_an_error_and_never_an_exception() -> None:
    body = bytearray(pulled(record(0), record(1)))
    for position in range(len(body)):
        damaged = bytearray(body)
        damaged[position] ^= 0xFF
        messages, _ = decode_pulled(damaged, QUEUE)
        assert len(messages) <= 2


def test_properties_are_read_late_and_behave_like_any_mapping() -> None:
    properties = LazyProperties(encode_properties({"a": "1", "b": "2"}))
    assert properties == {"a": "1", "b": "2"}
    plain = {"a": "1", "b": "2"}
    assert plain == properties
    assert ("a" in properties, "c" in properties, len(properties)) == (True, False, 2)
    assert properties.get("c", "none") == "none"
    assert repr(properties) == "{'a': '1', 'b': '2'}"
    again = pickle.loads(pickle.dumps(properties))
    assert again == properties
    ((message,), _) = decode_pulled(pulled(record(5, "paid")), QUEUE)
    assert pickle.loads(pickle.dumps(message)) == message
    assert (message.msg_id, message.tags) == ("ID5", "paid")
