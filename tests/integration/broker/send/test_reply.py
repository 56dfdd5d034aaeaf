"""Replies: brought to the client that asked, and what who replies is told (P6)."""

from __future__ import annotations

import asyncio

import pytest

from cometmq.remoting.handler import Answer
from cometmq.wire.codes import RequestCode
from cometmq.wire.header.schema import Header
from cometmq.wire.headers.send import SendMessageRequest
from cometmq.wire.record.properties import format_properties, parse_properties
from tests.answers import Told, now_ms
from tests.integration.broker.broker_kit import BORN_MS, BrokerKit, running_broker, send_header
from tests.integration.broker.message_types_kit import NEVER, Producer
from tests.waiting import eventually

REPLIES = "DefaultCluster_REPLY_TOPIC"
PROPERTIES = {"MSG_TYPE": "reply", "CORRELATION_ID": "42", "REPLY_TO_CLIENT": "asker", "TTL": "3000"}


async def reply(kit: BrokerKit, body: bytes = b"fine", **properties: str) -> Told:
    header: Header = send_header(REPLIES, {**PROPERTIES, **properties}, flag=7)
    return await kit.call(RequestCode.SEND_REPLY_MESSAGE_V2, header, body)


async def test_a_reply_is_brought_to_the_client_that_asked_and_stored() -> None:
    """P6: with the header that Apache's broker sends."""
    async with running_broker() as kit, Producer(kit, "other"), Producer(kit, "asker") as asker:
        before_ms = now_ms()
        answer = await reply(kit)
        assert (answer.code, answer.remark) == (0, None)
        (stored,) = kit.stored(REPLIES)
        assert (bytes(stored.body), stored.properties()) == (b"fine", PROPERTIES)
        assert (answer.fields["queueId"], answer.fields["queueOffset"]) == ("0", "0")
        assert (answer.fields["MSG_REGION"], answer.fields["TRACE_ON"]) == ("DefaultRegion", "true")
        ((header, body),) = asker.replies
        assert body == b"fine"
        assert (header.topic, header.producer_group, header.flag) == (REPLIES, "shop", 7)
        assert (header.born_timestamp, header.store_host) == (BORN_MS, kit.embedded.address)
        assert header.born_host.startswith("127.0.0.1:")
        assert before_ms <= header.store_timestamp <= now_ms()
        properties = parse_properties(header.properties or "")
        assert int(properties.pop("PUSH_REPLY_TIME")) >= before_ms
        assert properties == PROPERTIES


async def test_the_long_form_of_a_reply_is_one_too() -> None:
    """P6."""
    async with (
        running_broker(settings={"storeReplyMessageEnable": "false"}) as kit,
        Producer(kit, "asker") as asker,
    ):
        header = SendMessageRequest(
            producer_group="shop",
            topic=REPLIES,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=-1,
            sys_flag=0,
            born_timestamp=BORN_MS,
            flag=0,
            properties=format_properties(PROPERTIES),
        )
        answer = await kit.call(RequestCode.SEND_REPLY_MESSAGE, header, b"fine")
        assert (answer.code, answer.fields["msgId"], answer.fields["queueOffset"]) == (0, "0", "0")
        assert len(asker.replies) == 1
        assert kit.stored(REPLIES) == []


async def test_a_reply_that_nobody_takes_is_stored_all_the_same() -> None:
    """P6: and who replied hears why it was not taken."""
    async with running_broker() as kit, Producer(kit, "asker") as asker:
        gone = await reply(kit, REPLY_TO_CLIENT="gone")
        assert gone[:2] == (1, "push reply message fail, channel of <gone> not found.")
        nobody = await reply(kit, REPLY_TO_CLIENT="")
        assert nobody[:2] == (1, "reply message properties[REPLY_TO_CLIENT] is null")
        asker.reply_answer = Answer(1, remark="too late")
        refused = await reply(kit)
        assert refused[:2] == (1, "push reply message to askerfail.")
        assert refused.fields["queueOffset"] == "2"
        assert len(kit.stored(REPLIES)) == 3


async def test_a_client_that_goes_away_while_it_is_told_counts_as_gone() -> None:
    """P6: and one that comes back on another connection is found there."""
    async with running_broker() as kit:
        async with Producer(kit, "asker") as asker:
            assert (await reply(kit)).code == 0
            asker.reply_answer = NEVER
            task = asyncio.ensure_future(reply(kit))
            await eventually(lambda: len(asker.replies) == 2, "the reply is brought")
        assert (await task)[:2] == (1, "push reply message to askerfail.")
        async with Producer(kit, "asker") as asker:
            assert (await reply(kit)).code == 0
            assert len(asker.replies) == 1


async def test_a_reply_that_is_on_its_way_is_answered_when_the_broker_stops() -> None:
    """P6, B1: its sender is not left waiting."""
    async with running_broker() as kit, Producer(kit, "asker") as asker:
        asker.reply_answer = NEVER
        task = asyncio.ensure_future(reply(kit))
        await eventually(lambda: len(asker.replies) == 1, "the reply is brought")
        await kit.embedded.stop()
        assert (await task).code == 1


@pytest.mark.parametrize(("topic", "code"), [("no such topic!", 29), ("SCHEDULE_TOPIC_XXXX", 16)])
async def test_the_topic_of_a_reply_is_checked_like_that_of_any_message(topic: str, code: int) -> None:
    """B7."""
    async with running_broker() as kit, Producer(kit, "asker") as asker:
        answer = await kit.call(RequestCode.SEND_REPLY_MESSAGE_V2, send_header(topic, PROPERTIES), b"fine")
        assert (answer.code, answer.fields["MSG_REGION"]) == (code, "DefaultRegion")
        assert asker.replies == []
