"""What the admin client does, whoever the servers are."""

from __future__ import annotations

import pytest

from cometmq.client.producer.producer import Producer
from cometmq.model.errors import ClientError, ResponseError, RouteNotFoundError
from cometmq.model.message import Host, Message
from cometmq.model.queue import MessageQueue
from cometmq.model.subscription import SubscriptionGroupConfig
from cometmq.wire.record.ids import encode_offset_id, pack_host
from tests.behaviour.server import Server
from tests.waiting import eventually


async def test_a_topic_is_created_changed_listed_and_deleted(server: Server) -> None:
    topic = server.new_name("admin")
    async with server.admin() as admin:
        assert await admin.topic_route(topic) is None
        await admin.create_topic(topic, queues=3)
        assert topic in await admin.topics()
        await admin.create_topic(topic, queues=5)
        await eventually(
            lambda: admin.topic_route(topic),
            "the topic has five queues",
            lambda route: route is not None and [each.write_queue_nums for each in route.queue_datas] == [5],
        )
        await admin.delete_topic(topic)
        await eventually(lambda: admin.topic_route(topic), "the topic is gone", lambda route: route is None)


async def test_the_cluster_and_its_masters_are_known(server: Server) -> None:
    async with server.admin() as admin:
        info = await admin.cluster_info()
        masters = await admin.masters("DefaultCluster")
        with pytest.raises(ClientError, match="there is no cluster 'Elsewhere'"):
            await admin.masters("Elsewhere")
    assert set(info.cluster_addr_table["DefaultCluster"]) == set(masters)
    assert {name: each.broker_addrs[0] for name, each in info.broker_addr_table.items()} == masters


async def test_a_group_is_created_and_its_offsets_are_seen(server: Server) -> None:
    """B9."""
    topic, group = await server.new_topic(queues=1), server.new_name("group")
    async with server.admin() as admin, Producer("producers", namesrv=server.namesrv) as producer:
        await admin.create_group(SubscriptionGroupConfig(group, retry_max_times=3))
        (queue,) = await producer.queues(topic)
        for _ in range(4):
            await producer.send(Message(topic, b"x"))
        await server.stored(queue, 4)
        assert await admin.min_offset(queue) == 0
        progress = await admin.consumer_progress(group, topic)
        assert {each: found.broker_offset for each, found in progress.items()} in ({queue: 4}, {})
        await admin.delete_group(group, clean_offsets=True)


async def test_an_offset_is_found_by_time(server: Server) -> None:
    """B9."""
    topic = await server.new_topic(queues=1)
    async with server.admin() as admin, Producer("producers", namesrv=server.namesrv) as producer:
        receipts = [await producer.send(Message(topic, b"x")) for _ in range(3)]
        queue = receipts[0].queue
        await server.stored(queue, 3)
        first = await admin.view_message(receipts[0].offset_msg_id)
        last = await admin.view_message(receipts[2].offset_msg_id)
        assert await admin.search_offset(queue, first.store_timestamp_ms - 1000) == 0
        assert await admin.search_offset(queue, last.store_timestamp_ms + 60_000) in (2, 3)


async def test_messages_are_found_by_key_and_by_id(server: Server) -> None:
    """B10."""
    topic = await server.new_topic()
    async with server.admin() as admin, Producer("producers", namesrv=server.namesrv) as producer:
        receipts = [await producer.send(Message(topic, b"%d" % n, keys=["k", f"k{n}"])) for n in range(3)]
        all_of_them = await eventually(
            lambda: admin.query_messages(topic, "k"), "all are indexed", lambda found: len(found) == 3
        )
        assert sorted(each.body for each in all_of_them) == [b"0", b"1", b"2"]
        assert [each.body for each in await admin.query_messages(topic, "k1")] == [b"1"]
        assert await admin.query_messages(topic, "nobody") == []
        found = await admin.message_by_id(topic, receipts[2].msg_id)
        assert found is not None
        assert (found.body, found.offset_msg_id) == (b"2", receipts[2].offset_msg_id)
        assert await admin.message_by_id(topic, "0" * 32) is None


async def test_the_status_of_a_topic_shows_what_its_queues_hold(server: Server) -> None:
    topic = await server.new_topic(queues=2)
    async with server.admin() as admin, Producer("producers", namesrv=server.namesrv) as producer:
        queues = await producer.queues(topic)
        await producer.send(Message(topic, b"x"), queue=queues[1])
        status = await eventually(
            lambda: admin.topic_status(topic),
            "the second queue has its message",
            lambda status: [status[queue].max_offset for queue in queues] == [0, 1],
        )
    assert status[queues[1]].last_update_timestamp > 0


async def test_questions_about_what_is_not_there_are_answered_with_a_sentence(server: Server) -> None:
    async with server.admin() as admin:
        with pytest.raises(RouteNotFoundError, match="no name server knows topic nowhere"):
            await admin.topic_status("nowhere")
        (address,) = (await admin.masters()).values()
        host, port = address.split(":")
        nothing_there = encode_offset_id(pack_host(Host(host, int(port))), 1 << 40)
        with pytest.raises(ResponseError, match="refused request 33"):
            await admin.view_message(nothing_there)
        with pytest.raises(RouteNotFoundError, match="no broker nobody is known"):
            await admin.max_offset(MessageQueue("nowhere", "nobody", 0))
