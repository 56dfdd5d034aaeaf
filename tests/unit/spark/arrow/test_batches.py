"""Records to Arrow batches: the same rows as the decoder that reads one record at a time."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.model.sysflag import INNER_BATCH, NEED_UNWRAP, CompressionType, with_compression
from cometmq.spark.arrow.batches import to_batch
from cometmq.spark.arrow.record_fields import RecordFields
from cometmq.spark.arrow.record_scan import record_starts
from cometmq.spark.columns import ARROW_SCHEMA
from cometmq.spark.options import IncludeProperties
from cometmq.wire.record.batch import BatchItem, encode_batch
from cometmq.wire.record.codec import Record
from cometmq.wire.record.compression import compress
from cometmq.wire.record.layout import MAGIC_V2, RecordError
from cometmq.wire.record.properties import encode_properties
from tests.unit.spark.records_kit import (
    BORN_MS,
    BROKER_V6,
    CLIENT_V6,
    consumer_row,
    moment,
    placed,
    record,
    rows_of,
)
from tests.unit.spark.stores_kit import DATA, lines_of

DELETED_TOPICS = {"VecAuto", "VecAutoB"}
"""Their messages are in the log; the topics were deleted before the broker stopped."""


def rows(content: bytes, *, include_properties: IncludeProperties = True) -> list[dict[str, object]]:
    batch = to_batch(
        RecordFields(content, record_starts(content)), broker_name="b", include_properties=include_properties
    )
    assert batch.schema.equals(ARROW_SCHEMA)
    batch.validate(full=True)
    found: list[dict[str, object]] = batch.to_pylist()
    return found


def check(records: list[Record]) -> None:
    content = placed(records)
    starts = record_starts(content).tolist()
    assert rows(content) == rows_of(content, starts, "b", with_properties=True)


def test_a_plain_message_has_every_column() -> None:
    block = encode_properties({"UNIQ_KEY": "ABC", "TAGS": "paid", "KEYS": "k1 k2", "colour": "grün"})
    content = placed([record(block=block, queue_id=3, queue_offset=7, reconsume_times=2)])
    assert rows(content) == [
        {
            "topic": "orders",
            "brokerName": "b",
            "queueId": 3,
            "queueOffset": 7,
            "msgId": "ABC",
            "tags": "paid",
            "keys": ["k1", "k2"],
            "properties": [("UNIQ_KEY", "ABC"), ("TAGS", "paid"), ("KEYS", "k1 k2"), ("colour", "grün")],
            "body": b"hello",
            "bornTimestamp": moment(BORN_MS),
            "storeTimestamp": moment(BORN_MS + 5),
            "bornHost": "10.0.0.1:50000",
            "reconsumeTimes": 2,
        }
    ]


def test_properties_as_a_map_are_made_only_when_asked_for() -> None:
    content = placed([record(block=encode_properties({"TAGS": "a"}))])
    (row,) = rows(content, include_properties=False)
    assert row["properties"] is None
    assert row["tags"] == "a"


SENT = {"UNIQ_KEY": "ABC", "colour": "grün", "TAGS": "paid", "WAIT": "true", "__SHARDINGKEY": "7"}
USER = [("colour", "grün"), ("__SHARDINGKEY", "7")]
ODD = b"colour\x01a\x01b\x02UNIQ_KEY\x01ABC\x02"


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ([encode_properties(SENT)] * 3, [USER] * 3),
        ([encode_properties(SENT), encode_properties({"TAGS": "x"}), b""], [USER, [], []]),
        ([encode_properties({"UNIQ_KEY": "ABC"})] * 2, [[], []]),
        ([encode_properties(SENT), ODD], [USER, [("colour", "a\x01b")]]),
        ([b"a\x011\x02TAGS\x01x\x02a\x012\x02"], [[("a", "2")]]),
    ],
    ids=["alike", "different", "none of users", "a separator in a value", "one name twice"],
)
def test_of_properties_those_of_the_system_can_be_left_out(
    blocks: list[bytes], expected: list[list[tuple[str, str]]]
) -> None:
    """D1: what only the system writes costs an archive nothing."""
    content = placed([record(block=block) for block in blocks])
    assert [row["properties"] for row in rows(content, include_properties="user")] == expected


def test_only_the_columns_that_are_asked_for_are_made_in_their_order() -> None:
    content = placed([record(), record(b"other")])
    batch = to_batch(
        RecordFields(content, record_starts(content)), broker_name="b", columns=["body", "physicalOffset"]
    )
    assert batch.to_pydict() == {"body": [b"hello", b"other"], "physicalOffset": [0, len(content) // 2]}


def test_without_a_column_the_rows_are_still_counted() -> None:
    content = placed([record(), record()])
    assert to_batch(RecordFields(content, record_starts(content)), broker_name="b", columns=[]).num_rows == 2


def test_no_record_gives_an_empty_batch() -> None:
    assert rows(b"") == []


HOSTS = [
    {},
    {"born_host": CLIENT_V6},
    {"store_host": BROKER_V6},
    {"born_host": CLIENT_V6, "store_host": BROKER_V6},
]


def test_messages_of_all_kinds_of_hosts_and_versions_lie_behind_one_another() -> None:
    check(
        [
            record(bytes([number]), topic="t" * length, queue_id=number, reconsume_times=number, **hosts)
            for number, (length, hosts) in enumerate((a, b) for a in (1, 127, 128, 300) for b in HOSTS)
        ]
        + [record(magic=MAGIC_V2)]
    )


@pytest.mark.parametrize("kind", list(CompressionType))
def test_compressed_bodies_come_as_they_were(kind: CompressionType) -> None:
    compressed = record(compress(b"long " * 1000, kind), sys_flag=with_compression(0, kind))
    check([record(b"plain"), compressed, record(b""), compressed])


def test_a_body_that_cannot_be_decompressed_is_an_error_that_says_where() -> None:
    content = placed([record(), record(b"nonsense", sys_flag=with_compression(0, CompressionType.ZLIB))])
    with pytest.raises(RecordError, match="a body that can be decompressed"):
        rows(content)


@pytest.mark.parametrize("kind", [None, CompressionType.LZ4])
def test_a_record_that_holds_several_messages_gives_them_all(kind: CompressionType | None) -> None:
    items = [BatchItem(bytes([number]), f"TAGS\x01t{number}\x02".encode()) for number in range(3)]
    body, flags = encode_batch(items), INNER_BATCH | NEED_UNWRAP
    if kind is not None:
        body, flags = compress(body, kind), with_compression(flags, kind)
    inner = record(body, sys_flag=flags, queue_offset=5, queue_id=2)
    found = rows(placed([record(b"before"), inner, record(b"behind", queue_offset=8)]))
    assert [(row["body"], row["tags"], row["queueOffset"]) for row in found] == [
        (b"before", None, 0),
        (b"\0", "t0", 5),
        (b"\1", "t1", 6),
        (b"\2", "t2", 7),
        (b"behind", None, 8),
    ]
    assert [row["queueId"] for row in found] == [0, 2, 2, 2, 0]


def test_ids_of_the_broker_stand_in_for_missing_ids_of_producers() -> None:
    with_id = encode_properties({"UNIQ_KEY": "ABC"})
    check([record(), record(block=with_id), record(store_host=BROKER_V6), record(born_host=CLIENT_V6)])
    check([record(), record(born_host=CLIENT_V6)])


ODD_BLOCKS = [
    b"",
    b"\x02",
    b"\x02\x02\x02",
    b"TAGS",
    b"TAGS\x01",
    b"TAGS\x01\x02",
    b"\x01value\x02",
    b"TAGS\x01a",
    b"TAGS\x01a\x02TAGS\x01b\x02",
    b"TAGS\x01a\x02TAGS\x01\x02",
    b"TAGS\x01a\x01b\x02KEYS\x01 x  y \x02",
    b"\x01\x01\x02TAGS\x01\x01\x02",
    b"XTAGS\x01a\x02TAGSX\x01b\x02",
    b"TAGS\x01a\x00b\x02UNIQ_KEY\x01\x00\x02",
    b"TAGS\x01\xff\xfe\x02\xff\x01x\x02",
    "TAGS\x01größe\x02KEYS\x01schlüssel 键\x02".encode(),
    b"KEYS\x01 \x02",
    b"UNIQ_KEY\x01A\x02KEYS\x01only\x02TAGS\x01t\x02",
]


@pytest.mark.parametrize("block", ODD_BLOCKS)
def test_every_block_of_properties_is_read_as_one_at_a_time(block: bytes) -> None:
    check([record(block=block), record(block=b"TAGS\x01z\x02"), record(block=block)])


def test_all_odd_blocks_together_are_read_as_one_at_a_time() -> None:
    check([record(block=block) for block in ODD_BLOCKS])


PIECES = st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"x", b"\x01", b"\x02", b" ", b"\x00", b"\xc3\xa4"])


@given(st.lists(st.lists(PIECES, max_size=12).map(b"".join), min_size=1, max_size=6))
def test_any_block_of_properties_is_read_as_one_at_a_time(blocks: list[bytes]) -> None:
    check([record(block=block) for block in blocks])


def test_lengths_that_do_not_add_up_are_an_error_that_says_where() -> None:
    good = placed([record()])
    for place, value in ((84, 0x7F), (84, 0xFF), (88 + 5, 0xFF), (88 + 5, 0), (36 + 3, 0x30)):
        content = bytearray(good + good)
        content[len(good) + place] = value
        with pytest.raises(RecordError, match=f"at {len(good)}"):
            rows(bytes(content))


def test_the_log_that_apache_wrote_gives_the_rows_that_its_consumer_saw() -> None:
    """D3: every record of a real commit log, next to what a Java consumer read."""
    content = gzip.decompress((DATA / "commitlog-clean.gz").read_bytes())
    starts = record_starts(content)
    batch = to_batch(RecordFields(content, starts), broker_name="broker-a", include_properties=True)
    lines = map(consumer_row, lines_of("messages-clean.jsonl.gz"))
    seen = {(row["topic"], row["queueId"], row["queueOffset"]): row for row in lines}
    found = [row for row in batch.to_pylist() if row["topic"] not in DELETED_TOPICS]
    for row in found:
        row["properties"] = dict(row["properties"])
    assert found == [seen[row["topic"], row["queueId"], row["queueOffset"]] for row in found]
    assert len(found) == len(seen) == 151
