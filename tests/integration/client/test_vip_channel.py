"""The VIP channel: sends go to the broker's port for sends only."""

from __future__ import annotations

import pytest

from cometmq.client.consumer.listener import ConsumeResult
from cometmq.client.consumer.push import PushConsumer
from cometmq.client.instance.routes import vip_address
from cometmq.client.producer.producer import Producer
from cometmq.model.message import Message, StoredMessage
from cometmq.testing import EmbeddedBroker
from cometmq.wire.bodies.heartbeat import ConsumeFromWhere
from cometmq.wire.codes import RequestCode
from tests.waiting import eventually


@pytest.mark.parametrize(
    ("address", "vip"), [("10.0.0.1:10911", "10.0.0.1:10909"), ("[::1]:10911", "[::1]:10909")]
)
def test_it_is_two_ports_below(address: str, vip: str) -> None:
    assert vip_address(address) == vip


async def test_sends_and_send_backs_use_the_vip_channel() -> None:
    """P1, C4: vip_channel_enabled."""
    async with EmbeddedBroker() as embedded:
        tried: list[int] = []

        async def listen(message: StoredMessage) -> ConsumeResult:
            tried.append(message.reconsume_times)
            return ConsumeResult.RECONSUME_LATER

        async with Producer("g", namesrv=embedded.namesrv, vip_channel_enabled=True) as producer:
            await producer.send(Message("orders", b"x"))
        consumer = PushConsumer(
            "c",
            namesrv=embedded.namesrv,
            vip_channel_enabled=True,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        consumer.subscribe("orders", listener=listen)
        main, fast = embedded.broker.server.metrics, embedded.broker.fast_server.metrics
        async with consumer:
            await eventually(lambda: fast.of(RequestCode.CONSUMER_SEND_MSG_BACK).requests > 0, "sent back")
        assert fast.of(RequestCode.SEND_MESSAGE_V2).requests == 1
        assert main.of(RequestCode.SEND_MESSAGE_V2).requests == 0
        assert tried
