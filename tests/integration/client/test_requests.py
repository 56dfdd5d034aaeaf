"""Requests and replies, with brokers that do what the test tells them."""

from __future__ import annotations

import asyncio
import zlib

import msgspec
import pytest

from cometmq.client.blocking import producer as blocking_producer
from cometmq.client.producer.producer import Producer
from cometmq.model.errors import (
    CallTimeoutError,
    ClientError,
    RouteNotFoundError,
    SendError,
    StateError,
    TooManyRequestsError,
)
from cometmq.model.message import Host, Message, StoredMessage
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.send import ReplyMessageRequest
from cometmq.wire.record.properties import format_properties
from tests.integration.client.client_kit import HANG_UP, TOPIC, FakeBroker, FakeCluster, running_cluster
from tests.waiting import eventually

REPLIES = "DefaultCluster_REPLY_TOPIC"


def producer_of(cluster: FakeCluster, **options: object) -> Producer:
    cluster.set_route(REPLIES, queues=1)
    return Producer("askers", namesrv=cluster.namesrv, **options)  # type: ignore[arg-type]


async def bring(
    broker: FakeBroker, correlation_id: str, body: bytes = b"fine", *, sys_flag: int = 0
) -> Command:
    """Have a broker bring a reply to the client that it heard of last."""
    header = ReplyMessageRequest(
        producer_group="answerers",
        topic=REPLIES,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=sys_flag,
        born_timestamp=1000,
        flag=0,
        born_host="/10.0.0.7:4711",
        store_host="broker/10.0.0.1:10911",
        store_timestamp=2000,
        properties=format_properties({"CORRELATION_ID": correlation_id, "MSG_TYPE": "reply", "shop": "x"}),
    )
    call = broker.connections[-1].call(
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header, body, timeout_s=5.0, serialize_type=0
    )
    return await call


async def asked(broker: FakeBroker, count: int = 1) -> str:
    """Wait until this many requests have come; returns the correlation id of the last."""
    await eventually(lambda: len(broker.received) == count, "the request came")
    return broker.received[-1].properties["CORRELATION_ID"]


async def test_a_request_waits_for_its_reply() -> None:
    """P6, C6."""
    async with running_cluster() as cluster, producer_of(cluster) as producer:
        (broker,) = cluster.brokers
        task = asyncio.create_task(producer.request(Message(TOPIC, b"how are you?", tags="t"), timeout_s=5))
        correlation_id = await asked(broker)
        properties = broker.received[0].properties
        assert properties["REPLY_TO_CLIENT"] == producer.client_id
        assert properties["TTL"] == "5000"
        assert (await bring(broker, correlation_id)).code == ResponseCode.SUCCESS
        reply = await task
    assert (reply.body, reply.topic, reply.user_properties) == (b"fine", REPLIES, {"shop": "x"})
    assert reply.born_host == Host("10.0.0.7", 4711)
    assert reply.store_host == Host("10.0.0.1", 10911)
    assert (reply.born_timestamp_ms, reply.store_timestamp_ms) == (1000, 2000)
    assert int(reply.properties["ARRIVE_TIME"]) > 0


async def test_brokers_know_who_waits_before_the_request_is_sent() -> None:
    """A reply may come over every broker of the cluster, also over one that does not have the topic."""
    async with running_cluster(brokers=2) as cluster:
        cluster.set_route(TOPIC, brokers=cluster.brokers[:1])
        async with producer_of(cluster) as producer:
            task = asyncio.create_task(producer.request(Message(TOPIC, b"?"), timeout_s=5))
            correlation_id = await asked(cluster.brokers[0])
            other = cluster.brokers[1]
            assert [entry.group_name for entry in other.heartbeats[0].producer_data_set] == ["askers"]
            await bring(other, correlation_id)
            assert (await task).body == b"fine"


async def test_a_compressed_reply_comes_whole() -> None:
    async with running_cluster() as cluster, producer_of(cluster) as producer:
        task = asyncio.create_task(producer.request(Message(TOPIC, b"?"), timeout_s=5))
        correlation_id = await asked(cluster.brokers[0])
        await bring(cluster.brokers[0], correlation_id, zlib.compress(b"fine " * 1000), sys_flag=0x301)
        assert (await task).body == b"fine " * 1000


async def test_replies_find_their_requests_in_any_order() -> None:
    async with running_cluster() as cluster, producer_of(cluster) as producer:
        (broker,) = cluster.brokers
        tasks = [
            asyncio.create_task(producer.request(Message(TOPIC, b"%d" % number), timeout_s=5))
            for number in range(20)
        ]
        await asked(broker, 20)
        for request in reversed(broker.received):
            await bring(broker, request.properties["CORRELATION_ID"], b"re " + request.body)
        assert [(await task).body for task in tasks] == [b"re %d" % number for number in range(20)]


async def test_a_request_without_a_reply_ends_with_its_time(caplog: pytest.LogCaptureFixture) -> None:
    """P6: and what comes later is dropped."""
    async with running_cluster() as cluster, producer_of(cluster) as producer:
        with pytest.raises(CallTimeoutError, match=r"no reply came within 0\.05 s") as caught:
            await producer.request(Message(TOPIC, b"?"), timeout_s=0.05)
        assert caught.value.code == 10006
        assert caught.value.maybe_applied
        correlation_id = await asked(cluster.brokers[0])
        answer = await bring(cluster.brokers[0], correlation_id)
        assert answer.code == ResponseCode.SUCCESS
        assert (
            f"came too late, or was not asked for here; it is dropped (correlation id {correlation_id})"
            in (caplog.text)
        )
        assert (await bring(cluster.brokers[0], "")).code == ResponseCode.SUCCESS
        assert "(correlation id missing)" in caplog.text


async def test_a_request_that_was_not_sent_says_so_and_leaves_nothing() -> None:
    async with running_cluster() as cluster, producer_of(cluster, retry_times=0) as producer:
        cluster.brokers[0].always = ResponseCode.NO_PERMISSION
        with pytest.raises(SendError, match="not today"):
            await producer.request(Message(TOPIC, b"?"))
        with pytest.raises(RouteNotFoundError):
            await producer.request(Message("nowhere", b"?"))
        cluster.brokers[0].always = ResponseCode.SUCCESS
        task = asyncio.create_task(producer.request(Message(TOPIC, b"?"), timeout_s=5))
        await bring(cluster.brokers[0], await asked(cluster.brokers[0], 2))
        assert (await task).body == b"fine"


async def test_brokers_that_do_not_get_to_know_the_client_use_up_its_time() -> None:
    async with running_cluster() as cluster, producer_of(cluster) as producer:
        await producer.queues(TOPIC)
        cluster.name_servers[0].silent = True
        with pytest.raises(CallTimeoutError, match="did not answer in time") as caught:
            await producer.request(Message(TOPIC, b"?"), timeout_s=0.05)
        assert not caught.value.maybe_applied
        assert cluster.received == []


async def test_only_so_many_requests_wait() -> None:
    async with running_cluster() as cluster, producer_of(cluster, max_pending_requests=2) as producer:
        (broker,) = cluster.brokers
        tasks = [asyncio.create_task(producer.request(Message(TOPIC, b"?"), timeout_s=5)) for _ in range(2)]
        await asked(broker, 2)
        with pytest.raises(TooManyRequestsError, match="2 requests wait"):
            await producer.request(Message(TOPIC, b"?"))
        for request in broker.received:
            await bring(broker, request.properties["CORRELATION_ID"])
        await asyncio.gather(*tasks)
        with pytest.raises(CallTimeoutError):
            await producer.request(Message(TOPIC, b"?"), timeout_s=0.05)


async def test_a_stop_ends_requests_that_wait() -> None:
    async with running_cluster() as cluster:
        producer = producer_of(cluster)
        await producer.start()
        task = asyncio.create_task(producer.request(Message(TOPIC, b"?"), timeout_s=60))
        await asked(cluster.brokers[0])
        await producer.stop()
        with pytest.raises(StateError, match="stopped before the reply came"):
            await task


def request_message(broker_name: str = "broker-b") -> StoredMessage:
    """A request as a consumer gets it."""
    return StoredMessage(
        topic=TOPIC,
        body=b"how are you?",
        properties={
            "CLUSTER": "DefaultCluster",
            "CORRELATION_ID": "C",
            "REPLY_TO_CLIENT": "10.0.0.7@1",
            "TTL": "3000",
            "UNIQ_KEY": "ID",
        },
        broker_name=broker_name,
        queue_id=0,
        queue_offset=0,
        commit_log_offset=0,
        store_size=0,
        body_crc=0,
        flag=0,
        sys_flag=0,
        born_timestamp_ms=0,
        born_host=Host("127.0.0.1", 1),
        store_timestamp_ms=0,
        store_host=Host("127.0.0.1", 1),
        reconsume_times=0,
        prepared_transaction_offset=0,
        offset_msg_id="",
    )


async def test_a_reply_goes_to_the_broker_that_had_the_request() -> None:
    """P6."""
    async with running_cluster(brokers=3) as cluster, producer_of(cluster) as producer:
        for _ in range(4):
            await producer.reply(request_message(), b"fine", tags="t", properties={"shop": "x"})
        received = cluster.by_name("broker-b").received
        assert len(received) == 4
        reply = received[0]
    assert reply.code == RequestCode.SEND_REPLY_MESSAGE_V2
    assert reply.header.topic == REPLIES
    assert reply.body == b"fine"
    kept = {"CORRELATION_ID": "C", "REPLY_TO_CLIENT": "10.0.0.7@1", "TTL": "3000", "MSG_TYPE": "reply"}
    assert reply.properties.items() >= (kept | {"TAGS": "t", "shop": "x"}).items()


async def test_a_reply_goes_over_another_broker_if_that_one_is_gone() -> None:
    async with running_cluster(brokers=2) as cluster, producer_of(cluster) as producer:
        first, second = cluster.by_name("broker-b"), cluster.by_name("broker-a")
        first.always = HANG_UP
        receipt = await producer.reply(request_message(), b"fine")
        assert receipt.queue.broker_name == "broker-a"
        assert len(second.received) == 1
        assert (
            await producer.reply(request_message("broker-z"), b"fine", timeout_s=3)
        ).queue.topic == REPLIES


async def test_a_reply_that_nobody_waits_for_is_an_error() -> None:
    async with running_cluster() as cluster, producer_of(cluster) as producer:
        cluster.brokers[0].always = ResponseCode.SYSTEM_ERROR
        with pytest.raises(SendError):
            await producer.reply(request_message(), b"fine")


@pytest.mark.parametrize("missing", ["CLUSTER", "CORRELATION_ID", "REPLY_TO_CLIENT"])
async def test_an_ordinary_message_wants_no_reply(missing: str) -> None:
    async with running_cluster() as cluster, producer_of(cluster) as producer:
        request = request_message()
        properties = {name: text for name, text in request.properties.items() if name != missing}
        ordinary = msgspec.structs.replace(request, properties=properties)
        with pytest.raises(ClientError, match="was not sent as a request") as caught:
            await producer.reply(ordinary, b"fine")
        assert caught.value.code == 10007
        assert cluster.received == []


async def test_the_reply_topic_stays_out_of_namespaces() -> None:
    async with running_cluster() as cluster, producer_of(cluster, namespace="ns") as producer:
        await producer.reply(request_message("broker-a"), b"fine")
        assert cluster.received[0].header.topic == REPLIES


async def test_the_blocking_producer_asks_and_answers_too() -> None:
    async with running_cluster() as cluster:
        cluster.set_route(REPLIES)

        def use() -> StoredMessage:
            with blocking_producer.Producer("askers", namesrv=cluster.namesrv) as producer:
                producer.reply(request_message("broker-a"), b"fine")
                return producer.request(Message(TOPIC, b"?"), timeout_s=5)

        task = asyncio.create_task(asyncio.to_thread(use))
        await bring(cluster.brokers[0], await asked(cluster.brokers[0], 2), b"well")
        assert (await task).body == b"well"
