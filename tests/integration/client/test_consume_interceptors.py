"""Interceptors of consumers, around listeners that a broker feeds."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import pytest

import cometmq
import cometmq.aio
from cometmq import ConsumeContext, ConsumeInterceptor, ConsumeResult, Message, StoredMessage
from cometmq.testing import EmbeddedBroker
from tests.waiting import eventually, wait_until

CURRENT: ContextVar[str] = ContextVar("current", default="")


class Around(ConsumeInterceptor):
    """Sets a variable for the listener, and remembers how deliveries ended."""

    def __init__(self) -> None:
        self.ended: list[tuple[bytes, ConsumeResult | None, BaseException | None]] = []

    def before_consume(self, messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
        CURRENT.set(messages[0].msg_id)

    def after_consume(
        self,
        messages: Sequence[StoredMessage],
        context: ConsumeContext,
        result: ConsumeResult | None,
        error: BaseException | None,
    ) -> None:
        CURRENT.set("")
        self.ended.append((messages[0].body, result, error))


@pytest.mark.parametrize("options", [{}, {"ordered": True}, {"consume_message_batch_max_size": 2}])
@pytest.mark.parametrize("kind", [cometmq.PushConsumer, cometmq.PopConsumer])
def test_they_are_around_every_delivery(
    kind: type[cometmq.PushConsumer], options: dict[str, Any], rocketmq: EmbeddedBroker
) -> None:
    """C1."""
    around = Around()
    in_listener: list[tuple[str, str]] = []
    with cometmq.Admin(namesrv=rocketmq.namesrv) as admin:
        admin.create_topic("orders", queues=1)
    consumer = kind(
        "billing", namesrv=rocketmq.namesrv, interceptors=[around], consume_from_where="earliest", **options
    )

    def listen(given: StoredMessage | list[StoredMessage]) -> ConsumeResult:
        first = given[0] if isinstance(given, list) else given
        in_listener.append((first.msg_id, CURRENT.get()))
        return ConsumeResult.SUCCESS

    consumer.subscribe("orders", listener=listen)
    with cometmq.Producer("shop", namesrv=rocketmq.namesrv) as producer, consumer:
        producer.send(Message("orders", b"one"))
        wait_until(lambda: around.ended, "a delivery")
    assert around.ended == [(b"one", ConsumeResult.SUCCESS, None)]
    ((msg_id, current),) = in_listener
    assert msg_id == current, "what an interceptor sets reaches the listener"


async def test_they_are_around_coroutine_functions_and_see_errors(rocketmq: EmbeddedBroker) -> None:
    around = Around()
    consumer = cometmq.aio.PushConsumer(
        "billing", namesrv=rocketmq.namesrv, interceptors=[around], consume_from_where="earliest"
    )
    error = KeyError("no such customer")

    @consumer.subscribe("orders")
    async def listen(message: StoredMessage) -> None:
        raise error

    async with cometmq.aio.Producer("shop", namesrv=rocketmq.namesrv) as producer:
        await producer.send(Message("orders", b"one"))
        async with consumer:
            await eventually(lambda: around.ended, "a delivery")
    assert around.ended == [(b"one", None, error)]
