"""Rows as records: what a broker makes of them is what the rows say."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pyarrow as pa
import pytest

from cometmq.spark.sink.encode import LogRecords, encode_records, unique_ids
from cometmq.store.index.key_hash import key_hash
from cometmq.store.put.bulk import RecordBulk
from cometmq.wire.java_hash import java_hash, tags_code
from cometmq.wire.record.codec import Record, decode_record
from cometmq.wire.record.layout import MAGIC_V1

HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])
TOPIC = "orders"
IDS = unique_ids(bytes(range(10)), np.arange(70_000, 70_100))
"""Of which some differ in more than their last digits."""

ONE_LENGTH = [b"body %05d" % number for number in range(100)]
MANY_LENGTHS = [b"b" * (1 + number * 37 % 300) for number in range(100)]


def stored(records: LogRecords, first: int, end: int, *, keyed: bool) -> list[Record]:
    """What the broker writes of some rows."""
    body = bytearray(b"".join(records.body(first, end)))
    head = Record(TOPIC, b"", queue_id=3, queue_offset=500, born_host=HOST)
    bulk = RecordBulk(head, body, end - first, keyed=keyed, max_size=4 * 1024 * 1024)
    data = bulk.pack(MAGIC_V1, TOPIC.encode(), 10_000, 1_700_000_000_000, HOST, sealed=False)
    starts = [*accumulate(np.frombuffer(body, ">i4", end - first).tolist()[:-1], initial=0)]
    return [
        decode_record(bytes(data[start:behind]), check_crc=True)
        for start, behind in zip(starts, [*starts[1:], len(data)], strict=True)
    ]


@pytest.mark.parametrize("bodies", [ONE_LENGTH, MANY_LENGTHS], ids=["one length", "many lengths"])
@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("tag", ["", "one", "several"])
@pytest.mark.parametrize("skipped", [0, 7])
def test_rows_become_the_records_that_they_say(
    bodies: list[bytes], keyed: bool, tag: str, skipped: int
) -> None:
    """D2: all of them and a part, of a whole column and of a slice of one."""
    columns = {"body": pa.array([b"x" * number for number in range(skipped)] + bodies).slice(skipped)}
    tags = [tag if tag != "several" else "t" * (number % 3) for number in range(100)]
    if tag:
        columns["tags"] = pa.array(tags)
    records = encode_records(columns, IDS if keyed else None, TOPIC)
    for first, end in ((0, 100), (13, 14), (40, 90)):
        found = stored(records, first, end, keyed=keyed)
        assert [bytes(each.body) for each in found] == bodies[first:end]
        assert [each.queue_offset for each in found] == list(range(500, 500 + end - first))
        assert {(each.topic, each.queue_id, each.store_timestamp_ms) for each in found} == {
            (TOPIC, 3, 1_700_000_000_000)
        }
        expected = [
            {
                **({"TAGS": tags[number]} if tags[number] else {}),
                **({"UNIQ_KEY": bytes(IDS[number]).decode()} if keyed else {}),
            }
            for number in range(first, end)
        ]
        assert [each.properties() for each in found] == expected
    assert records.codes.tolist() == [tags_code(each) if each else 0 for each in tags]


def test_hashes_are_those_that_the_index_has() -> None:
    """D2, B10"""
    records = encode_records({"body": pa.array(ONE_LENGTH)}, IDS, TOPIC)
    assert records.hashes is not None
    beginning = java_hash(f"{TOPIC}#")
    assert records.hashes.tolist() == [key_hash(beginning, bytes(each)) for each in IDS]
