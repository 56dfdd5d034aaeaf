"""Trace records: written as Apache's clients write them, and read from whatever version wrote them."""

from __future__ import annotations

import pytest

from cometmq.client.trace.records import (
    ConsumeBegan,
    ConsumeEnded,
    ConsumeOutcome,
    RecallTrace,
    SendTrace,
    TraceMessageType,
    TraceRecord,
    TransactionTrace,
    decode_records,
    encode_record,
    keys_of,
)

SENT = SendTrace(
    timestamp_ms=1000,
    region_id="DefaultRegion",
    group="shop",
    topic="orders",
    msg_id="ID",
    tags=None,
    keys="a b",
    store_host="10.0.0.1:10911",
    body_length=3,
    cost_ms=7,
    message_type=TraceMessageType.HALF,
    offset_msg_id="OFFSET",
    success=True,
)
BEGAN = ConsumeBegan(
    timestamp_ms=2000,
    region_id=None,
    group="billing",
    request_id="R",
    msg_id="ID",
    retry_times=2,
    keys=None,
)
ENDED = ConsumeEnded(
    request_id="R",
    msg_id="ID",
    cost_ms=5,
    success=False,
    keys="a",
    outcome=ConsumeOutcome.EXCEPTION,
    timestamp_ms=2005,
    group="billing",
)
TRANSACTION = TransactionTrace(
    timestamp_ms=3000,
    region_id="DefaultRegion",
    group="shop",
    topic="orders",
    msg_id="ID",
    tags="paid",
    keys=None,
    store_host="10.0.0.1:10911",
    message_type=TraceMessageType.COMMIT,
    transaction_id="ID",
    state="COMMIT_MESSAGE",
    from_check=True,
)
RECALL = RecallTrace(
    timestamp_ms=4000, region_id="DefaultRegion", group="shop", topic="orders", msg_id="ID", success=True
)


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (SENT, "Pub|1000|DefaultRegion|shop|orders|ID|null|a b|10.0.0.1:10911|3|7|1|OFFSET|true#"),
        (BEGAN, "SubBefore|2000|null|billing|R|ID|2|null#"),
        (ENDED, "SubAfter|R|ID|5|false|a|2|2005|billing#"),
        (
            TRANSACTION,
            "EndTransaction|3000|DefaultRegion|shop|orders|ID|paid|null|10.0.0.1:10911|2|ID|COMMIT_MESSAGE|true#",
        ),
        (RECALL, "Recall|4000|DefaultRegion|shop|orders|ID|true#"),
    ],
    ids=["sent", "began", "ended", "transaction", "recall"],
)
def test_a_record_is_written_and_read_field_by_field(record: TraceRecord, text: str) -> None:
    wire = text.replace("|", "\x01").replace("#", "\x02")
    assert encode_record(record) == wire
    assert decode_records(wire.encode()) == [record]


def test_a_body_has_many_records() -> None:
    records: list[TraceRecord] = [SENT, BEGAN, ENDED, TRANSACTION, RECALL]
    assert decode_records("".join(map(encode_record, records))) == records


def decoded(text: str) -> TraceRecord:
    (record,) = decode_records(text.replace("|", "\x01"))
    return record


def test_a_record_without_an_offset_id_is_of_an_old_client() -> None:
    record = decoded("Pub|1|r|g|t|ID|null|null|h|3|7|0|false")
    assert isinstance(record, SendTrace)
    assert (record.offset_msg_id, record.success) == (None, False)


def test_a_record_with_the_host_of_its_client_is_read_too() -> None:
    record = decoded("Pub|1|r|g|t|ID|null|null|h|3|7|0|OFFSET|true|10.0.0.9")
    assert isinstance(record, SendTrace)
    assert (record.offset_msg_id, record.success, record.client_host) == ("OFFSET", True, "10.0.0.9")


@pytest.mark.parametrize("end", ["", "|4|", "|4"])
def test_the_end_of_a_consumption_may_say_less(end: str) -> None:
    record = decoded("SubAfter|R|ID|5|false|null" + end)
    assert isinstance(record, ConsumeEnded)
    assert (record.outcome, record.timestamp_ms, record.group) == (ConsumeOutcome.FAILED, None, None)


@pytest.mark.parametrize(
    "text",
    ["", "Nonsense|1|2", "Pub", "Pub|x|r|g|t|ID|null|null|h|3|7|0|O|true", "SubBefore|1|r", "\x01\x01"],
)
def test_what_cannot_be_read_is_left_out(text: str) -> None:
    body = text.replace("|", "\x01") + "\x02" + encode_record(RECALL)
    assert decode_records(body.encode() + b"\xff\x02") == [RECALL]


def test_a_record_is_found_by_its_id_and_its_keys() -> None:
    assert list(keys_of(SENT)) == ["ID", "a", "b"]
    assert list(keys_of(BEGAN)) == ["ID"]
    assert list(keys_of(RECALL)) == ["ID"]
