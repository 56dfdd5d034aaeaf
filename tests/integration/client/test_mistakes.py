"""Mistakes of applications: each is refused where it is made, with what to write instead."""

from __future__ import annotations

from typing import Any

import pytest

from cometmq import Message, Producer, PullConsumer, PushConsumer
from cometmq.model.errors import ClientError, MessageError
from cometmq.testing import EmbeddedBroker


@pytest.mark.parametrize("way", ["send", "send_oneway"])
@pytest.mark.parametrize("given", ["orders", {"topic": "orders"}, None])
def test_what_is_no_message_is_not_sent(rocketmq: EmbeddedBroker, way: str, given: Any) -> None:
    """P1"""
    with Producer("g", namesrv=rocketmq.namesrv) as producer:
        with pytest.raises(MessageError, match=r"cannot be sent; write Message\(topic, body\)"):
            getattr(producer, way)(given)
        with pytest.raises(MessageError, match=r"cannot be sent; write Message\(topic, body\)"):
            producer.send_batch([Message("orders", b"x"), given])


def test_a_number_is_no_queue(rocketmq: EmbeddedBroker) -> None:
    """P3"""
    with (
        Producer("g", namesrv=rocketmq.namesrv) as producer,
        pytest.raises(MessageError, match=r"3 is no queue; producer.queues\('orders'\) has the queues"),
    ):
        producer.send(Message("orders", b"x"), queue=3)  # type: ignore[arg-type]


def test_a_listener_in_the_place_of_tags_is_refused_at_once() -> None:
    """C4: and not when the result is used as a decorator, which it never is."""
    consumer = PushConsumer("g", namesrv="127.0.0.1:9876")
    with pytest.raises(ClientError, match="a listener is given as listener="):
        consumer.subscribe("orders", print)  # type: ignore[call-overload]


def test_a_consumer_that_reads_nothing_says_so(rocketmq: EmbeddedBroker) -> None:
    """C5: instead of waiting for messages that cannot come."""
    with PullConsumer("g", namesrv=rocketmq.namesrv) as consumer:
        for read in (consumer.poll, lambda: next(iter(consumer))):
            with pytest.raises(ClientError, match="subscribe to a topic, or assign queues, first"):
                read()
