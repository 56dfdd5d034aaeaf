"""Values go through a broker: typed producers and consumers."""

from __future__ import annotations

import threading

import msgspec
import pytest

from cometmq import (
    Admin,
    ConsumeFromWhere,
    MessageError,
    PopConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    StoredMessage,
    TransactionProducer,
    TransactionState,
    aio,
    json_serializer,
)
from cometmq.testing import EmbeddedBroker
from tests.waiting import wait_until


class Order(msgspec.Struct):
    number: int


ORDERS = json_serializer(Order)


@pytest.mark.parametrize("kind", [PushConsumer, PopConsumer])
def test_a_listener_gets_values(rocketmq: EmbeddedBroker, kind: type[PushConsumer[Order]]) -> None:
    seen: list[Order] = []
    done = threading.Event()
    consumer = kind(
        "billing",
        namesrv=rocketmq.namesrv,
        serializer=ORDERS,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )

    @consumer.subscribe("orders", "paid")
    def bill(message: StoredMessage[Order]) -> None:
        seen.append(message.value)
        done.set()

    with Producer("shop", namesrv=rocketmq.namesrv, serializer=ORDERS) as producer:
        producer.send_value("orders", Order(1), tags="open")
        receipt = producer.send_value("orders", Order(2), tags="paid", keys=["2"])
        assert receipt.queue.topic == "orders"
        with consumer:
            assert done.wait(30)
    assert seen == [Order(2)]


async def test_a_list_listener_and_polls_get_values(rocketmq: EmbeddedBroker) -> None:
    async with (
        aio.Producer("shop", namesrv=rocketmq.namesrv, serializer=ORDERS) as producer,
        aio.PullConsumer("readers", namesrv=rocketmq.namesrv, serializer=ORDERS) as consumer,
    ):
        receipt = await producer.send_value("orders", Order(1))
        await producer.send(producer.message("orders", Order(2)), queue=receipt.queue)
        await consumer.assign([receipt.queue])
        await consumer.seek(receipt.queue, 0)
        polled: list[StoredMessage[Order]] = []
        while len(polled) < 2:
            polled += await consumer.poll(30)
    assert [message.value.number for message in polled] == [1, 2]


def test_a_loop_gets_values(rocketmq: EmbeddedBroker) -> None:
    """C1, C5: `for message in consumer`, with a serializer."""
    with Producer("g", namesrv=rocketmq.namesrv, serializer=ORDERS) as producer:
        receipt = producer.send_value("orders", Order(1))
    with PullConsumer("loopers", namesrv=rocketmq.namesrv, serializer=ORDERS) as consumer:
        consumer.assign([receipt.queue])
        consumer.seek_to_beginning(receipt.queue)
        for message in consumer:
            assert message.value == Order(1)
            break


def test_a_transaction_sends_a_value(rocketmq: EmbeddedBroker) -> None:
    with (
        TransactionProducer(
            "pay", check=lambda message: TransactionState.COMMIT, namesrv=rocketmq.namesrv, serializer=ORDERS
        ) as producer,
        producer.transaction(producer.message("orders", Order(1))) as transaction,
    ):
        assert transaction.message.body == b'{"number":1}'


def test_a_body_that_cannot_be_decoded_becomes_a_dead_letter_and_stops_nobody(
    rocketmq: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []
    consumer = PushConsumer(
        "billing",
        namesrv=rocketmq.namesrv,
        serializer=ORDERS,
        max_reconsume_times=0,
        consume_from_where="earliest",
    )

    @consumer.subscribe("orders")
    def bill(message: StoredMessage[Order]) -> None:
        seen.append(message.value.number)

    with Producer("shop", namesrv=rocketmq.namesrv) as producer:
        queue = producer.send_value("orders", b"no JSON").queue
        producer.send(producer.message("orders", b'{"number":2}'), queue=queue)
    with consumer, Admin(namesrv=rocketmq.namesrv) as admin:
        wait_until(lambda: seen == [2], "the good one is consumed")
        wait_until(lambda: "%DLQ%billing" in admin.topics(), "the bad one is a dead letter")
    assert "cannot be decoded by JSON of Order" in caplog.text

    with PullConsumer("readers", namesrv=rocketmq.namesrv, serializer=ORDERS) as reader:
        reader.assign([queue])
        reader.seek(queue, 0)
        polled: list[StoredMessage[Order]] = []
        while len(polled) < 2:
            polled += reader.poll(30)
    bad, good = polled
    assert good.value == Order(2)
    with pytest.raises(MessageError, match="cannot be decoded"):
        _ = bad.value
