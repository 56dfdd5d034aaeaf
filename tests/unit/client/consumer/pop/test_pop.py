"""Pop consumers without a broker: settings, and handles."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import cometmq
import cometmq.aio
from cometmq.client.consumer.pop.handles import (
    PopHandle,
    handles_of,
    marked_topic,
    read_handle,
    with_attempts,
)
from cometmq.client.consumer.pop.settings import PopSettings
from cometmq.model.errors import HeaderError, SettingsError
from cometmq.model.message import Host, StoredMessage
from cometmq.wire.bodies.heartbeat import ConsumeFromWhere, MessageModel
from cometmq.wire.headers.pop import PopMessageResponse


def test_the_defaults_are_those_of_rocketmq() -> None:
    """B12."""
    settings = PopSettings()
    assert (settings.pop_invisible_time_ms, settings.pop_batch_nums) == (60_000, 32)
    assert settings.pop_threshold_for_queue == 96
    assert (settings.retry_delays_s[:3], settings.retry_delays_s[-1]) == ((10, 30, 60), 7200)
    assert len(settings.retry_delays_s) == settings.send_back_limit == 16


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"pop_invisible_time_ms": 4_999}, "pop_invisible_time_ms"),
        ({"pop_invisible_time_ms": 300_001}, "pop_invisible_time_ms"),
        ({"pop_batch_nums": 33}, "pop_batch_nums"),
        ({"pop_threshold_for_queue": 0}, "pop_threshold_for_queue"),
        ({"retry_delays_s": ()}, "retry_delays_s"),
        ({"retry_delays_s": (0,)}, "retry_delays_s"),
        ({"message_model": MessageModel.BROADCASTING}, "broadcasting"),
        ({"consume_from_where": ConsumeFromWhere.CONSUME_FROM_TIMESTAMP}, "not at a time"),
    ],
)
def test_what_popping_cannot_do_is_refused_by_name(options: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        PopSettings(**options)


def test_both_faces_offer_the_same() -> None:
    aio, blocking = cometmq.aio.PopConsumer, cometmq.PopConsumer
    assert inspect.signature(aio).parameters.keys() == inspect.signature(blocking).parameters.keys()
    for name in ("subscribe", "unsubscribe", "start", "stop", "run", "suspend", "resume", "assignment"):
        assert hasattr(aio, name)
        assert hasattr(blocking, name)


def message(offset: int, *, queue_id: int = 0, topic: str = "orders", **properties: str) -> StoredMessage:
    return StoredMessage(
        topic=topic,
        body=b"",
        properties=properties,
        broker_name="broker-a",
        queue_id=queue_id,
        queue_offset=offset,
        commit_log_offset=0,
        store_size=0,
        body_crc=0,
        flag=0,
        sys_flag=0,
        born_timestamp_ms=0,
        born_host=Host("127.0.0.1", 1),
        store_timestamp_ms=0,
        store_host=Host("127.0.0.1", 2),
        reconsume_times=0,
        prepared_transaction_offset=0,
        offset_msg_id="",
    )


def answer(
    starts: str | None = None, offsets: str | None = None, counts: str | None = None
) -> PopMessageResponse:
    return PopMessageResponse(
        pop_time=1000,
        invisible_time=60_000,
        revive_qid=3,
        rest_num=0,
        start_offset_info=starts,
        msg_offset_info=offsets,
        order_count_info=counts,
    )


def test_a_handle_is_the_text_that_brokers_read() -> None:
    """B12."""
    text = "5 1000 60000 3 0 broker-a 1 7"
    handle = PopHandle(5, 1000, 60_000, 3, "0", "broker-a", 1, 7)
    assert str(handle) == text
    assert read_handle(text) == handle
    assert read_handle(f"{text} 4711") == handle  # as a proxy writes it


@pytest.mark.parametrize("text", ["", "1 2 3", "a b c d 0 broker-a 1 7", "5 1000 60000 3 0 broker-a 1"])
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(HeaderError, match="no handle"):
        read_handle(text)


def test_handles_are_made_of_where_the_pop_began_and_where_each_message_is() -> None:
    """B12."""
    messages = [message(6), message(5), message(9, queue_id=1)]
    handles = handles_of(messages, answer("0 0 4;0 1 9", "0 0 5,6;0 1 9"), "broker-a")
    assert [(each.start_offset, each.queue_id, each.offset) for each in handles] == [
        (4, 0, 6),
        (4, 0, 5),
        (9, 1, 9),
    ]
    assert {each[1:6] for each in handles} == {(1000, 60_000, 3, "0", "broker-a")}


def test_the_offsets_that_the_broker_lists_win_over_those_in_the_records() -> None:
    """B12: they differ where a queue is counted otherwise than the log counts it."""
    handles = handles_of([message(2), message(1)], answer("0 0 101", "0 0 101,102"), "broker-a")
    assert [each.offset for each in handles] == [102, 101]


def test_without_a_beginning_the_first_message_of_each_queue_is_it() -> None:
    """B12."""
    handles = handles_of([message(5), message(6), message(2, queue_id=1)], answer(), "broker-a")
    assert [(each.start_offset, each.offset) for each in handles] == [(5, 5), (5, 6), (2, 2)]


def test_messages_that_come_again_bring_their_handles_and_others_may_not() -> None:
    """B12: a property of that name in a message of the topic itself is somebody's copy."""
    brought = "4 1000 60000 3 2 broker-a 0 4"
    again = message(4, POP_CK=brought)
    assert handles_of([again], answer("2 0 4", "2 0 4"), "broker-a") == [read_handle(brought)]
    (made,) = handles_of([again], answer("0 0 4", "0 0 4"), "broker-a")
    assert made.mark == "0"


@pytest.mark.parametrize(
    ("topic", "mark"), [("orders", "0"), ("%RETRY%billing_orders", "1"), ("%RETRY%billing+orders", "2")]
)
def test_a_mark_says_which_topic_a_message_is_in(topic: str, mark: str) -> None:
    """B12."""
    (handle,) = handles_of([message(4, topic=topic)], answer(f"{mark} 0 3", f"{mark} 0 4"), "broker-a")
    assert (handle.mark, handle.start_offset) == (mark, 3)
    assert marked_topic("orders", "billing", mark) == topic


def test_an_answer_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(HeaderError, match="no place"):
        handles_of([message(4)], answer("0 0"), "broker-a")


def test_an_ordered_pop_tells_how_often_messages_were_handed_out() -> None:
    """B12: by message, else by queue."""
    messages = [message(4), message(5), message(6, queue_id=1), message(7, queue_id=2)]
    counted = with_attempts(messages, answer(counts="0 0 1;0 qo0%5 3;0 1 0"))
    assert [each.reconsume_times for each in counted] == [1, 3, 0, 0]
