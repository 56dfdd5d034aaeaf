"""Numbers that no broker means, in what a client is given: refused or passed over, and nothing dies."""

from __future__ import annotations

import pytest

from cometmq.client.consumer.pop.handles import handles_of, read_handle
from cometmq.client.trace.records import decode_records
from cometmq.model.errors import HeaderError
from cometmq.model.message import StoredMessage
from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.queue_table import decode_queue_table
from cometmq.wire.headers.pop import PopMessageResponse
from cometmq.wire.record.codec import Record, encode_record
from cometmq.wire.record.pulled import decode_pulled

ODD = ["9" * 5000, str(10**30), "1_0", "\u0661", "x", "NaN"]


def message(properties: str) -> StoredMessage:
    data = encode_record(Record("Orders", b"hello", properties.encode(), queue_offset=7))
    (found,) = decode_pulled(bytes(data), MessageQueue("Orders", "broker", 0)).messages
    return found


@pytest.mark.parametrize("text", ODD)
def test_a_message_with_a_handle_that_its_sender_wrote_is_popped_all_the_same(text: str) -> None:
    popped = message(f"POP_CK\x01{text} 2 3 4 0 broker 0 7\x02")
    header = PopMessageResponse(
        pop_time=1, invisible_time=2, revive_qid=3, rest_num=0, start_offset_info="0 0 7;1 0 5"
    )
    (handle,) = handles_of([popped], header, "broker")
    assert (handle.start_offset, handle.offset, handle.pop_time_ms) == (7, 7, 1)


@pytest.mark.parametrize("text", ODD)
def test_a_handle_with_such_a_number_is_none(text: str) -> None:
    with pytest.raises(HeaderError, match="no handle"):
        read_handle(f"1 {text} 3 4 0 broker 0 7")


@pytest.mark.parametrize("text", ODD)
def test_a_trace_with_such_a_number_is_passed_over(text: str) -> None:
    fields = ["Recall", text, "region", "group", "topic", "id", "true"]
    good = ["Recall", "5", "region", "group", "topic", "id", "true"]
    (found,) = decode_records("\x02".join("\x01".join(each) for each in (fields, good)))
    assert found.msg_id == "id"


@pytest.mark.parametrize("text", [str(10**30), '"x"', '"1_0"', "[]", "1.5"])
def test_a_table_with_such_an_offset_is_refused(text: str) -> None:
    key = '{"brokerName":"a","queueId":0,"topic":"t"}'
    with pytest.raises(HeaderError):
        decode_queue_table(f'{{"offsetTable":{{{key}:{text}}}}}'.encode(), "offsetTable")


@pytest.mark.parametrize("text", ODD)
def test_a_message_with_such_properties_is_read(text: str) -> None:
    names = (
        "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "1ST_POP_TIME", "UNIQ_KEY", "DELAY",
        "TIMER_DELIVER_MS", "TTL", "MIN_OFFSET", "MAX_OFFSET", "INNER_NUM", "BORN_TIMESTAMP",
    )  # fmt: skip
    for name in names:
        found = message(f"{name}\x01{text}\x02")
        assert (found.body, found.properties[name]) == (b"hello", text)
        assert repr(found)
