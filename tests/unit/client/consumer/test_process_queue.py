"""What is held of a queue, how far it is done, and when it is enough."""

from __future__ import annotations

import pytest

from cometmq.client.consumer.process_queue import FlowControl, ProcessQueue, Thresholds
from cometmq.model.message import Host, StoredMessage
from cometmq.model.queue import MessageQueue

QUEUE = MessageQueue("orders", "broker-a", 0)
HOST = Host("127.0.0.1", 10911)


def message(offset: int, body: bytes = b"x") -> StoredMessage:
    return StoredMessage(
        topic="orders",
        body=body,
        properties={},
        broker_name="broker-a",
        queue_id=0,
        queue_offset=offset,
        commit_log_offset=offset * 100,
        store_size=100,
        body_crc=0,
        flag=0,
        sys_flag=0,
        born_timestamp_ms=0,
        born_host=HOST,
        store_timestamp_ms=0,
        store_host=HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
        offset_msg_id="",
    )


@pytest.fixture
async def pq() -> ProcessQueue:
    return ProcessQueue(QUEUE)


async def test_the_offset_never_passes_a_message_that_is_not_done(pq: ProcessQueue) -> None:
    """C3."""
    assert pq.commit_offset() is None
    messages = [message(offset) for offset in (5, 6, 7, 9)]
    pq.put(messages)
    assert pq.commit_offset() == 5
    pq.done([messages[2]])
    pq.done([messages[1]])
    assert pq.commit_offset() == 5
    pq.done([messages[0]])
    assert pq.commit_offset() == 9
    pq.done([messages[3]])
    assert pq.commit_offset() == 10
    pq.put([message(12)])
    assert pq.commit_offset() == 12


async def test_what_is_done_twice_or_was_never_held_does_not_count(pq: ProcessQueue) -> None:
    pq.put([message(0, b"abc"), message(1, b"de")])
    pq.done([message(0, b"abc")])
    pq.done([message(0, b"abc"), message(8, b"never")])
    assert (pq.cached_bytes, pq.commit_offset()) == (2, 1)


@pytest.mark.parametrize(
    ("thresholds", "reason"),
    [
        (Thresholds(2, 1000, 2000), FlowControl.COUNT),
        (Thresholds(1000, 299, 2000), FlowControl.SIZE),
        (Thresholds(1000, 1000, 49), FlowControl.SPAN),
        (Thresholds(3, 300, 50), None),
        (Thresholds(3, 300, None), None),
    ],
)
async def test_enough_is_counted_in_messages_bytes_and_span(
    pq: ProcessQueue, thresholds: Thresholds, reason: FlowControl | None
) -> None:
    """C4."""
    pq.put([message(offset, b"x" * 100) for offset in (0, 1, 50)])
    assert pq.flow_control(thresholds) is reason


async def test_messages_are_taken_in_order_behind_those_that_a_listener_has(pq: ProcessQueue) -> None:
    """C5."""
    pq.put([message(offset) for offset in range(5)])
    assert [each.queue_offset for each in pq.next_messages(2)] == [0, 1]
    pq.being_consumed = 2
    assert [each.queue_offset for each in pq.next_messages(10)] == [2, 3, 4]
    assert [each.queue_offset for each in pq.first_messages(3)] == [0, 1, 2]


async def test_a_lock_counts_for_half_the_time_that_a_broker_keeps_it(pq: ProcessQueue) -> None:
    """C5."""
    assert not pq.lock_held
    pq.lock_renewed()
    assert pq.lock_held
    pq.locked_at_s -= 31
    assert not pq.lock_held
    assert not pq.lock_may_have_moved
    pq.locked_at_s -= 30
    assert pq.lock_may_have_moved


async def test_who_waits_for_room_hears_that_the_queue_was_dropped(pq: ProcessQueue) -> None:
    await pq.wait_for_room(0.001)
    pq.drop()
    await pq.wait_for_room(0.001)
    assert pq.dropped
