"""What a consumer answers when a broker asks it something on somebody's behalf."""

from __future__ import annotations

from typing import Any

from cometmq.model.message import StoredMessage
from cometmq.remoting.client import RemotingClient
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.header.schema import Header
from cometmq.wire.headers.offset import ResetOffsetRequest
from cometmq.wire.headers.session import (
    ConsumeMessageDirectlyResultRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusRequest,
)
from cometmq.wire.json import fastjson
from tests.behaviour.consumer_kit import Seen, numbered, push, queues_of, send
from tests.behaviour.server import Server
from tests.waiting import eventually


async def ask_broker(server: Server, code: RequestCode, header: Header) -> Command:
    """Ask the one broker behind the name server, as an administrator's tool does."""
    async with server.admin() as admin:
        (address,) = (await admin.masters()).values()
    client = RemotingClient()
    try:
        return await client.call(address, code, header, timeout_s=15.0)
    finally:
        await client.stop()


def read(answer: Command) -> Any:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return fastjson.loads(answer.body)


async def running_info(server: Server, header: GetConsumerRunningInfoRequest) -> Any:
    return read(await ask_broker(server, RequestCode.GET_CONSUMER_RUNNING_INFO, header))


async def test_a_consumer_reports_what_it_does(server: Server) -> None:
    """C6: running info, with the stacks of its threads."""
    topic, group, seen = await server.new_topic(queues=2), server.new_name("group"), Seen()
    consumer = push(server, group, consume_threads=3)
    consumer.subscribe(topic, "paid || open", listener=seen)
    await send(server, topic, numbered(6), tags="paid")
    async with consumer:
        await seen.reaches(6)
        header = GetConsumerRunningInfoRequest(
            consumer_group=group, client_id=consumer.client_id, jstack_enable=True
        )
        # A listener has a message a moment before that is counted.
        info = await eventually(
            lambda: running_info(server, header),
            "the consumption is counted",
            lambda told: told["statusTable"].get(topic, {}).get("consumeOKTPS", 0) > 0,
        )
    properties = info["properties"]
    assert properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert properties["PROP_THREADPOOL_CORE_SIZE"] == "3"
    assert int(properties["PROP_CONSUMER_START_TIMESTAMP"]) > 0
    queues = {dict(key)["queueId"] for key in info["mqTable"] if dict(key)["topic"] == topic}
    assert queues == {0, 1}
    assert {each["topic"]: each["subString"] for each in info["subscriptionSet"]}[topic] == "paid || open"
    assert "test_a_consumer_reports_what_it_does" in info["jstack"] or "MainThread" in info["jstack"]


async def test_a_consumer_consumes_a_message_on_request(server: Server) -> None:
    """C6: and says how it went."""
    topic, group = await server.new_topic(queues=1), server.new_name("group")
    seen, fails = Seen(), False

    def listener(message: StoredMessage) -> None:
        seen(message)
        if fails:
            raise ValueError("not today")

    consumer = push(server, group)
    consumer.subscribe(topic, listener=listener)
    (receipt,) = await send(server, topic, ["once more"])
    async with consumer:
        await seen.reaches(1)
        header = ConsumeMessageDirectlyResultRequest(
            consumer_group=group, client_id=consumer.client_id, msg_id=receipt.offset_msg_id, topic=topic
        )
        report = read(await ask_broker(server, RequestCode.CONSUME_MESSAGE_DIRECTLY, header))
        assert (report["consumeResult"], report["order"]) == ("CR_SUCCESS", False)
        fails = True
        report = read(await ask_broker(server, RequestCode.CONSUME_MESSAGE_DIRECTLY, header))
        assert report["consumeResult"] == "CR_THROW_EXCEPTION"
        assert "not today" in report["remark"]
    assert seen.bodies == ["once more"] * 3


async def test_a_consumer_tells_its_offsets(server: Server) -> None:
    """C6."""
    topic, group, seen = await server.new_topic(queues=1), server.new_name("group"), Seen()
    consumer = push(server, group)
    consumer.subscribe(topic, listener=seen)
    await send(server, topic, numbered(7))
    async with consumer:
        await seen.reaches(7)
        await eventually(lambda: list(consumer.status(topic).values()) == [7], "the offset is known")
        header = GetConsumerStatusRequest(topic=topic, group=group)
        code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        table = read(await ask_broker(server, code, header))["consumerTable"]
        assert [list(offsets.values()) for offsets in table.values()] == [[7]]
        assert list(table) == [consumer.client_id]


async def test_a_group_that_is_set_back_gets_its_messages_again(server: Server) -> None:
    """C6, B9."""
    topic, group, seen = await server.new_topic(queues=1), server.new_name("group"), Seen()
    consumer = push(server, group)
    consumer.subscribe(topic, listener=seen)
    await send(server, topic, numbered(5))
    (queue,) = await queues_of(server, topic)
    async with consumer, server.admin() as admin:
        await seen.reaches(5)
        await eventually(lambda: admin.consumer_offset(group, queue), "all is committed", lambda at: at == 5)
        header = ResetOffsetRequest(topic=topic, group=group, timestamp=0, is_force=True)
        answer = await ask_broker(server, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        await send(server, topic, ["new"])
        assert sorted(await seen.reaches(11)) == sorted([*numbered(5), *numbered(5), "new"])


async def test_a_consumer_goes_on_at_the_offsets_that_it_is_sent(server: Server) -> None:
    """C6: the older way, by which a broker tells its clients."""
    topic, group, seen = await server.new_topic(queues=1), server.new_name("group"), Seen()
    consumer = push(server, group)
    consumer.subscribe(topic, listener=seen)
    await send(server, topic, numbered(5))
    (queue,) = await queues_of(server, topic)
    async with consumer:
        await seen.reaches(5)
        await consumer.reset_offsets(topic, {queue: 3})
        assert sorted(await seen.reaches(7)) == sorted([*numbered(5), "m3", "m4"])


async def test_asking_for_a_group_that_is_not_here_is_answered_with_a_sentence(server: Server) -> None:
    """C6."""
    header = GetConsumerRunningInfoRequest(consumer_group=server.new_name("nobody"), client_id="1.2.3.4@1")
    answer = await ask_broker(server, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark
