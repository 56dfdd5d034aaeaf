"""What clients say about themselves."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

import cometmq
from cometmq import Message, MessageQueue, SendError, StoredMessage
from cometmq.testing import EmbeddedBroker
from tests.waiting import wait_until


def send(rocketmq: EmbeddedBroker, count: int, topic: str = "orders", **options: Any) -> None:
    with cometmq.Producer("shop", namesrv=rocketmq.namesrv, **options) as producer:
        for number in range(count):
            producer.send(Message(topic, b"%03d" % number))


@pytest.fixture
def queue(rocketmq: EmbeddedBroker) -> MessageQueue:
    with cometmq.Admin(namesrv=rocketmq.namesrv) as admin:
        admin.create_topic("orders", queues=1)
        (queue,) = admin.queues("orders")
        return queue


def test_a_producer_counts_what_it_sends_and_what_fails(rocketmq: EmbeddedBroker) -> None:
    """C1."""
    with cometmq.Producer("shop", namesrv=rocketmq.namesrv, max_message_size=8 * 1024 * 1024) as producer:
        before = producer.statistics()
        assert (before.sent, before.failed, before.send_ms, before.send_ms_p99) == (0, 0, 0, 0)
        producer.send(Message("orders", b"one"))
        producer.send_batch([Message("orders", b"two"), Message("orders", b"three")])
        with pytest.raises(SendError, match="illegal"):
            producer.send(Message("orders", os.urandom(5 * 1024 * 1024)))
        after = producer.statistics()
    assert (after.sent, after.failed, after.retries) == (3, 1, 0)
    assert 0 < after.send_ms <= after.send_ms_p99 * 2
    assert (after.in_flight_messages, after.in_flight_bytes) == (0, 0)
    assert after.connections == 2, "a broker and a name server"


def test_a_producer_counts_attempts_again() -> None:
    broker = EmbeddedBroker()
    with broker:
        producer = cometmq.Producer("shop", namesrv=broker.namesrv)
        producer.start()
        producer.send(Message("orders", b"one"))
    with pytest.raises(SendError):
        producer.send(Message("orders", b"two"), timeout_s=0.5)
    seen = producer.statistics()
    producer.stop()
    assert (seen.sent, seen.failed) == (1, 1)
    assert seen.retries > 0


@pytest.mark.parametrize("ordered", [False, True])
def test_a_push_consumer_counts_results_and_knows_what_it_holds(
    rocketmq: EmbeddedBroker, queue: MessageQueue, ordered: bool
) -> None:
    go_on = threading.Event()
    consumer = cometmq.PushConsumer(
        "billing", namesrv=rocketmq.namesrv, consume_threads=1, ordered=ordered, consume_from_where="earliest"
    )

    @consumer.subscribe("orders")
    def bill(message: StoredMessage) -> None:
        go_on.wait()
        if message.body == b"004":
            raise ValueError("not this one")

    send(rocketmq, 5)
    with consumer:
        try:
            busy = wait_until(
                consumer.statistics,
                "all are held, and a listener runs",
                lambda seen: seen.running_listeners and seen.held_messages == 5,
            )
            assert busy.queues[queue] == cometmq.QueueStatistics(5, 15, 5)
            assert (busy.lag, busy.held_bytes, busy.topics["orders"].pulled) == (5, 15, 5)
        finally:
            go_on.set()
        after = wait_until(
            consumer.statistics, "one has failed", lambda seen: seen.topics["orders"].failed
        ).topics["orders"]
    assert (after.consumed, after.failed) == (4, 1)
    assert 0 < after.failed_per_s < after.consumed_per_s
    assert after.consume_ms > 0
    assert after.pull_ms > 0


def test_a_pop_consumer_does_too(rocketmq: EmbeddedBroker, queue: MessageQueue) -> None:
    go_on = threading.Event()
    consumer = cometmq.PopConsumer(
        "billing", namesrv=rocketmq.namesrv, consume_from_where="earliest", pop_threshold_for_queue=1
    )
    consumer.subscribe("orders", listener=lambda message: go_on.wait() and None)
    send(rocketmq, 40)
    with consumer:
        try:
            busy = wait_until(
                consumer.statistics, "32 of 40 are popped", lambda seen: seen.held_messages == 32
            )
            assert busy.lag == 40
            assert busy.running_listeners == 20
        finally:
            go_on.set()
        done = wait_until(
            consumer.statistics, "all are done", lambda seen: seen.topics["orders"].consumed == 40
        )
    assert done.topics["orders"].failed == 0


def test_a_pull_consumer_knows_how_far_behind_it_is(rocketmq: EmbeddedBroker, queue: MessageQueue) -> None:
    send(rocketmq, 5)
    with cometmq.PullConsumer("billing", namesrv=rocketmq.namesrv, namespace="") as consumer:
        consumer.assign([queue])
        consumer.seek_to_beginning("orders")
        assert wait_until(consumer.statistics, "all are held", lambda seen: seen.held_messages == 5).lag == 5
        assert len(consumer.poll(timeout_s=30, max_count=2)) == 2
        seen = consumer.statistics()
        assert (seen.held_messages, seen.lag, seen.topics["orders"].consumed) == (3, 3, 2)


def test_a_namespace_does_not_split_a_topic(rocketmq: EmbeddedBroker) -> None:
    send(rocketmq, 3, "orders", namespace="here")
    consumer = cometmq.PushConsumer(
        "billing", namesrv=rocketmq.namesrv, namespace="here", consume_from_where="earliest"
    )
    consumer.subscribe("orders", listener=lambda message: None)
    with consumer:
        seen = wait_until(
            consumer.statistics,
            "all are done",
            lambda seen: "orders" in seen.topics and seen.topics["orders"].consumed == 3,
        )
    assert seen.topics["orders"].pulled == 3
    assert {queue.topic for queue in seen.queues} >= {"orders"}
