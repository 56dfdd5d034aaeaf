"""Values as bodies of messages. The types are checked too: mypy reads this file with `make check`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

import msgspec
import pydantic
import pytest

import cometmq
from cometmq import (
    ConsumeContext,
    Message,
    MessageError,
    Producer,
    PullConsumer,
    PushConsumer,
    Serializer,
    StoredMessage,
    aio,
    json_serializer,
)
from cometmq.client.serializer import encoded, with_value
from cometmq.model.errors import ClientError
from cometmq.model.message import Host

NAMESRV = "127.0.0.1:1"


class Order(msgspec.Struct):
    number: int
    item: str = "bicycle"


@dataclass
class DataOrder:
    number: int
    item: str = "bicycle"


class DictOrder(TypedDict):
    number: int
    item: str


class ModelOrder(pydantic.BaseModel):
    number: int = pydantic.Field(alias="number")
    item: str = "bicycle"


def stored(body: bytes) -> StoredMessage:
    host = Host("127.0.0.1", 1)
    return StoredMessage(
        topic="orders",
        body=body,
        properties={"UNIQ_KEY": "A1"},
        broker_name="a",
        queue_id=1,
        queue_offset=2,
        commit_log_offset=3,
        store_size=4,
        body_crc=5,
        flag=0,
        sys_flag=0,
        born_timestamp_ms=6,
        born_host=host,
        store_timestamp_ms=7,
        store_host=host,
        reconsume_times=0,
        prepared_transaction_offset=0,
        offset_msg_id="B2",
    )


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Order, Order(7)),
        (DataOrder, DataOrder(7)),
        (DictOrder, {"number": 7, "item": "bicycle"}),
        (ModelOrder, ModelOrder(number=7)),
        (dict, {"number": 7, "item": "bicycle"}),
        (dict[str, Any], {"number": 7, "item": "bicycle"}),
    ],
)
def test_json_of_every_kind_of_type(kind: type[Any], value: object) -> None:
    serializer = json_serializer(kind)
    body = encoded(serializer, value)
    assert body == b'{"number":7,"item":"bicycle"}'
    message = with_value(stored(body), serializer)
    assert message.value == value
    assert message.value is message.value  # decoded once
    assert (message.queue_offset, message.msg_id, message.body) == (2, "A1", body)


@pytest.mark.parametrize("kind", [Order, DataOrder, DictOrder, ModelOrder])
def test_a_body_of_another_kind_is_refused_when_its_value_is_read(kind: type[Any]) -> None:
    message = with_value(stored(b'{"item":"x"}'), json_serializer(kind))
    with pytest.raises(
        MessageError, match=r"message A1 in topic orders cannot be decoded by JSON of \w*Order"
    ):
        _ = message.value


def test_without_a_serializer_values_are_bodies() -> None:
    assert stored(b"x").value == b"x"
    producer = Producer("shop", namesrv=NAMESRV)
    assert producer.message("orders", b"x", tags="paid") == Message("orders", b"x", tags="paid")
    with pytest.raises(MessageError, match="a body is bytes, not dict"):
        producer.message("orders", {})  # type: ignore[arg-type]


def test_what_cannot_be_encoded_is_refused() -> None:
    producer = Producer("shop", namesrv=NAMESRV, serializer=json_serializer(dict))
    with pytest.raises(MessageError, match="a value of type dict cannot be encoded by JSON of dict: "):
        producer.message("orders", {"a": object()})
    with pytest.raises(ClientError, match="leave the serializer out"):
        json_serializer(bytes)
    with pytest.raises(ClientError, match="cannot be read from JSON"):
        json_serializer(list[Order | DataOrder])


class Reversed:
    """A serializer of one's own."""

    def encode(self, value: str) -> bytes:
        return value[::-1].encode()

    def decode(self, body: bytes) -> str:
        return body.decode()[::-1]


def test_any_object_with_both_methods_is_a_serializer() -> None:
    serializer: Serializer[str] = Reversed()
    producer = cometmq.Producer("shop", namesrv=NAMESRV, serializer=serializer)
    message = producer.message("orders", "abc", keys=["7"])
    assert (message.body, message.keys) == (b"cba", ("7",))
    assert with_value(stored(b"cba"), serializer).value == "abc"


def test_type_checkers_know_the_values() -> None:
    """`assert_type` is for mypy, and so is each `type: ignore`: an unused one is an error."""
    orders = json_serializer(Order)
    producer = Producer("shop", namesrv=NAMESRV, serializer=orders)
    assert_type(producer, Producer[Order])
    assert_type(Producer("shop", namesrv=NAMESRV), Producer[bytes])
    producer.message("orders", Order(7))
    producer.message("orders", b"x")  # type: ignore[arg-type]
    other: aio.Producer[Order] = aio.Producer("shop", namesrv=NAMESRV, serializer=orders)
    assert_type(other, aio.Producer[Order])
    consumer = PushConsumer("billing", namesrv=NAMESRV, serializer=orders)

    @consumer.subscribe("orders")
    def bill(message: StoredMessage[Order]) -> str:
        assert_type(message.value, Order)
        return message.value.item

    assert_type(bill(with_value(stored(b'{"number":1}'), orders)), str)

    @consumer.subscribe("with-context")
    def with_context(message: StoredMessage[Order], context: ConsumeContext) -> None: ...

    @consumer.subscribe("lists")
    async def lists(messages: list[StoredMessage[Order]]) -> None: ...

    @consumer.subscribe("wrong")  # type: ignore[arg-type]
    def wrong(message: StoredMessage[int]) -> None: ...

    consumer.subscribe("given", listener=bill)
    plain = aio.PushConsumer("billing", namesrv=NAMESRV)
    plain.subscribe("bytes", listener=lambda message: print(message.body))

    async def poll(consumer: aio.PullConsumer[Order], blocking: PullConsumer[Order]) -> None:
        for message in [*await consumer.poll(), *blocking.poll()]:
            assert_type(message.value, Order)
