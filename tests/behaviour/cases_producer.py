"""What a producer does, whoever the broker is."""

from __future__ import annotations

import asyncio
import os

import pytest

from cometmq.client.blocking import admin as blocking_admin
from cometmq.client.blocking import producer as blocking_producer
from cometmq.client.producer.producer import Producer
from cometmq.client.producer.sender import SendStatus
from cometmq.model.errors import SendError
from cometmq.model.message import Message
from cometmq.model.queue import MessageQueue
from cometmq.remoting.client import RemotingClient
from cometmq.remoting.tls import ClientTls
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.framing import JSON, ROCKETMQ
from cometmq.wire.headers.session import GetProducerConnectionListRequest
from tests.behaviour.server import Server
from tests.waiting import eventually, wait_until


async def test_a_message_is_stored_as_it_was_sent(server: Server) -> None:
    """P4."""
    message = Message(
        await server.new_topic(),
        "Größe 42 ✓".encode(),
        tags="paid",
        keys=["order-7", "customer-3"],
        properties={"shop": "nörd", "emoji": "🚀"},
        flag=7,
    )
    async with Producer("producers", namesrv=server.namesrv) as producer, server.admin() as admin:
        receipt = await producer.send(message)
        stored = await admin.view_message(receipt.offset_msg_id)
    assert receipt.status is SendStatus.SEND_OK
    assert receipt.region_id == "DefaultRegion"
    assert stored.topic == message.topic
    assert stored.body == message.body
    assert (stored.tags, stored.keys, stored.flag) == ("paid", ("order-7", "customer-3"), 7)
    assert stored.user_properties == {"shop": "nörd", "emoji": "🚀"}
    assert stored.msg_id == receipt.msg_id
    assert (stored.queue_id, stored.queue_offset) == (receipt.queue.queue_id, receipt.queue_offset)
    assert abs(stored.born_timestamp_ms - stored.store_timestamp_ms) < 60_000


async def test_messages_spread_over_all_queues(server: Server) -> None:
    """P5."""
    topic = await server.new_topic(queues=4)
    async with Producer("producers", namesrv=server.namesrv) as producer:
        receipts = [await producer.send(Message(topic, b"x")) for _ in range(8)]
        assert {receipt.queue for receipt in receipts} == set(await producer.queues(topic))
    assert sorted(receipt.queue_offset for receipt in receipts) == [0, 0, 0, 0, 1, 1, 1, 1]


async def test_messages_with_one_key_stay_in_order(server: Server) -> None:
    """P4, ordered by key."""
    topic = await server.new_topic(queues=8)
    async with Producer("producers", namesrv=server.namesrv) as producer:
        receipts = [await producer.send(Message(topic, b"x", sharding_key="order-7")) for _ in range(5)]
    assert len({receipt.queue for receipt in receipts}) == 1
    assert [receipt.queue_offset for receipt in receipts] == [0, 1, 2, 3, 4]


async def test_a_batch_is_stored_in_one_queue_one_behind_the_other(server: Server) -> None:
    """P4."""
    topic = await server.new_topic()
    messages = [Message(topic, b"item %d" % number, keys=[f"k{number}"]) for number in range(20)]
    async with Producer("producers", namesrv=server.namesrv) as producer, server.admin() as admin:
        receipts = await producer.send_batch(messages)
        stored = [await admin.view_message(receipt.offset_msg_id) for receipt in receipts]
    assert len({receipt.queue for receipt in receipts}) == 1
    assert [each.body for each in stored] == [message.body for message in messages]
    assert [each.queue_offset for each in stored] == [receipt.queue_offset for receipt in receipts]
    assert [each.msg_id for each in stored] == [receipt.msg_id for receipt in receipts]


async def test_a_batch_over_the_size_limit_arrives_in_pieces(server: Server) -> None:
    topic = await server.new_topic(queues=1)
    async with Producer("producers", namesrv=server.namesrv) as producer:
        receipts = await producer.send_batch([Message(topic, bytes(1 << 20)) for _ in range(6)])
    await server.stored(receipts[0].queue, 6)
    assert [receipt.queue_offset for receipt in receipts] == list(range(6))


async def test_a_batch_of_very_many_messages_is_stored_in_their_order(server: Server) -> None:
    """P4."""
    topic = await server.new_topic(queues=1)
    messages = [Message(topic, b"%d" % number) for number in range(9_000)]
    async with Producer("producers", namesrv=server.namesrv) as producer:
        receipts = await producer.send_batch(messages, timeout_s=30.0)
    await server.stored(receipts[0].queue, len(messages))
    assert [receipt.queue_offset for receipt in receipts] == list(range(len(messages)))


async def test_an_answer_that_names_very_many_messages_is_read(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P4: what Java's client may send in one request; the header of the answer has almost a megabyte."""
    monkeypatch.setattr("cometmq.client.producer.send_request.MAX_BATCH_MESSAGES", 100_000)
    topic = await server.new_topic(queues=1)
    messages = [Message(topic, b"x") for _ in range(25_000)]
    async with Producer("producers", namesrv=server.namesrv) as producer:
        receipts = await producer.send_batch(messages, timeout_s=30.0)
    assert [receipt.queue_offset for receipt in receipts] == list(range(len(messages)))
    assert len({receipt.offset_msg_id for receipt in receipts}) == len(messages)


@pytest.mark.parametrize("kind", ["ZLIB", "LZ4", "ZSTD"])
async def test_a_compressed_body_comes_back_whole(server: Server, kind: str) -> None:
    """P6."""
    topic = await server.new_topic()
    body = b"all work and no play " * 20_000
    async with (
        Producer("producers", namesrv=server.namesrv, compression=kind) as producer,  # type: ignore[arg-type]
        server.admin() as admin,
    ):
        receipt = await producer.send(Message(topic, body))
        stored = await admin.view_message(receipt.offset_msg_id)
    assert stored.body == body
    assert stored.store_size < len(body) // 10


async def test_a_topic_is_made_by_its_first_message(server: Server) -> None:
    """B2: with the smaller of both numbers of queues, and without the permission to inherit."""
    topic = server.new_name("auto")
    options = {"default_topic_queue_nums": 3, "poll_name_server_interval_ms": 50}
    async with (
        Producer("producers", namesrv=server.namesrv, **options) as producer,  # type: ignore[arg-type]
        server.admin() as admin,
    ):
        receipt = await producer.send(Message(topic, b"first"))
        route = await eventually(
            lambda: admin.topic_route(topic), "the topic has a route", lambda found: found is not None
        )
        assert route is not None
        assert [(each.write_queue_nums, each.perm) for each in route.queue_datas] == [(3, 6)]
        again = await producer.send(Message(topic, b"second"), queue=receipt.queue)
    assert again.queue_offset == receipt.queue_offset + 1


async def test_a_one_way_message_arrives(server: Server) -> None:
    """P4."""
    topic = await server.new_topic(queues=1)
    async with Producer("producers", namesrv=server.namesrv) as producer:
        await producer.send_oneway(Message(topic, b"x"))
        (queue,) = await producer.queues(topic)
        await server.stored(queue, 1)


async def test_many_sends_at_once_all_get_their_own_place(server: Server) -> None:
    topic = await server.new_topic(queues=4)
    async with Producer("producers", namesrv=server.namesrv) as producer:
        receipts = await asyncio.gather(*(producer.send(Message(topic, b"x")) for _ in range(500)))
    assert len({(receipt.queue, receipt.queue_offset) for receipt in receipts}) == 500
    assert len({receipt.offset_msg_id for receipt in receipts}) == 500


@pytest.mark.parametrize("encoding", [JSON, ROCKETMQ], ids=["json", "binary"])
async def test_both_header_encodings_are_understood(server: Server, encoding: int) -> None:
    topic = await server.new_topic()
    async with Producer("producers", namesrv=server.namesrv, serialize_type=encoding) as producer:
        receipt = await producer.send(Message(topic, b"x", properties={"name": "Größe"}))
    async with server.admin() as admin:
        stored = await admin.view_message(receipt.offset_msg_id)
    assert stored.user_properties == {"name": "Größe"}


async def test_tls_is_spoken_if_asked_for(server: Server) -> None:
    """B13."""
    topic = await server.new_topic()
    async with Producer("producers", namesrv=server.namesrv, tls=ClientTls()) as producer:
        assert (await producer.send(Message(topic, b"x"))).status is SendStatus.SEND_OK


async def test_a_queue_that_does_not_exist_is_refused(server: Server) -> None:
    """B7."""
    topic = await server.new_topic(queues=2)
    async with Producer("producers", namesrv=server.namesrv) as producer:
        broker_name = (await producer.queues(topic))[0].broker_name
        with pytest.raises(SendError) as caught:
            await producer.send(Message(topic, b"x"), queue=MessageQueue(topic, broker_name, 2))
    assert caught.value.code == 29
    assert not caught.value.maybe_applied


async def test_a_body_that_is_too_large_for_the_broker_is_refused(server: Server) -> None:
    """B7."""
    topic = await server.new_topic()
    options = {"max_message_size": 8 << 20, "compress_body_over_bytes": 16 << 20, "retry_times": 0}
    async with Producer("producers", namesrv=server.namesrv, **options) as producer:  # type: ignore[arg-type]
        with pytest.raises(SendError) as caught:
            await producer.send(Message(topic, os.urandom(5 << 20)))
    assert caught.value.code == 13


async def test_the_broker_knows_a_producer_while_it_runs(server: Server) -> None:
    """P1, P3, B3."""
    group = server.new_name("producers")
    topic = await server.new_topic()
    remoting = RemotingClient()
    async with server.admin() as admin:
        (address,) = (await admin.masters()).values()

    async def known() -> bytes:
        header = GetProducerConnectionListRequest(producer_group=group)
        code = RequestCode.GET_PRODUCER_CONNECTION_LIST
        return bytes((await remoting.call(address, code, header)).body)

    try:
        async with Producer(group, namesrv=server.namesrv) as producer:
            await producer.send(Message(topic, b"x"))
            id_ = producer.client_id.encode()
            await eventually(known, "the producer is known", lambda body: id_ in body)
        await eventually(known, "the producer is forgotten", lambda body: id_ not in body)
    finally:
        await remoting.stop()


async def test_a_delayed_message_is_not_in_its_queue_at_once(server: Server) -> None:
    """B6."""
    topic = await server.new_topic(queues=1)
    async with Producer("producers", namesrv=server.namesrv) as producer, server.admin() as admin:
        receipt = await producer.send(Message(topic, b"x", delay_level=18))
        assert receipt.status is SendStatus.SEND_OK
        assert (await admin.view_message(receipt.offset_msg_id)).topic == "SCHEDULE_TOPIC_XXXX"
        assert await admin.max_offset(receipt.queue) == 0


def test_the_blocking_producer_does_the_same(server: Server) -> None:
    """P4."""
    topic = server.new_name("topic")
    with (
        blocking_admin.Admin(namesrv=server.namesrv, call_timeout_ms=20_000) as admin,
        blocking_producer.Producer("producers", namesrv=server.namesrv) as producer,
    ):
        admin.create_topic(topic, queues=2)
        receipt = producer.send(Message(topic, b"one"))
        assert admin.view_message(receipt.offset_msg_id).body == b"one"
        futures = [producer.send_async(Message(topic, b"%d" % number)) for number in range(50)]
        places = {(future.result().queue, future.result().queue_offset) for future in futures}
        assert len(places) == 50
        assert len(producer.send_batch([Message(topic, b"x")] * 3)) == 3
        wait_until(
            lambda: sum(each.max_offset for each in admin.topic_status(topic).values()),
            "all messages are in their queues",
            lambda stored: stored == 54,
        )
