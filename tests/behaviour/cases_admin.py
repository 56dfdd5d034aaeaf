"""What the admin client does, whoever the servers are."""

from __future__ import annotations

import pytest

from cometmq.client.admin.results import RequestMode, TrackType
from cometmq.client.producer.producer import Producer
from cometmq.client.producer.transactions import TransactionProducer, TransactionState
from cometmq.model.errors import ClientError, ResponseError, RouteNotFoundError
from cometmq.model.message import Host, Message
from cometmq.model.queue import MessageQueue
from cometmq.model.subscription import SubscriptionGroupConfig
from cometmq.wire.record.ids import decode_offset_id, encode_offset_id, pack_host
from tests.behaviour.consumer_kit import Seen, push, send
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


async def test_the_key_value_configuration_is_written_read_and_deleted(server: Server) -> None:
    """N8."""
    namespace = server.new_name("namespace")
    async with server.admin() as admin:
        assert await admin.kv_configs(namespace) == {}
        assert await admin.kv_config(namespace, "colour") is None
        await admin.put_kv_config(namespace, "colour", "blue")
        await admin.put_kv_config(namespace, "size", "7")
        assert await admin.kv_config(namespace, "colour") == "blue"
        assert await admin.kv_configs(namespace) == {"colour": "blue", "size": "7"}
        await admin.delete_kv_config(namespace, "colour")
        assert await admin.kv_configs(namespace) == {"size": "7"}


async def test_an_order_topic_is_marked_at_the_name_servers(server: Server) -> None:
    """N8: as `mqadmin updateTopic -o true` marks it, and no longer when the topic is gone."""
    topic = server.new_name("ordered")
    async with server.admin() as admin:
        await admin.create_topic(topic, queues=4, write_queues=3, order=True)
        (name,) = await admin.masters()
        assert await admin.kv_config("ORDER_TOPIC_CONFIG", topic) == f"{name}:3"
        assert await admin.order_config(topic) == {name: 3}
        await admin.put_order_config(topic, {name: 2, "elsewhere": 5})
        assert await admin.order_config(topic) == {name: 2, "elsewhere": 5}
        await admin.put_order_config(topic, {})
        assert await admin.kv_config("ORDER_TOPIC_CONFIG", topic) is None
        await admin.put_order_config(topic, {name: 3})
        await admin.delete_topic(topic)
        assert await admin.order_config(topic) == {}


async def test_the_producers_of_a_broker_are_shown(server: Server) -> None:
    """B9."""
    topic, group = await server.new_topic(), server.new_name("painters")
    async with server.admin() as admin, Producer(group, namesrv=server.namesrv) as producer:
        await producer.send(Message(topic, b"x"))
        (broker,) = (await admin.masters()).values()
        (member,) = await eventually(
            lambda: admin.producer_connections(broker, group), "the producer is known"
        )
        (same,) = (await admin.producers(broker))[group]
        assert await admin.producer_connections(broker, server.new_name("nobody")) == ()
    assert (member.client_id, member.language) == (same.client_id, same.language)
    assert same.remote_ip == f"/{member.client_addr}"
    assert same.last_update_timestamp > 0


async def test_a_group_is_forbidden_a_topic_and_allowed_it_again(server: Server) -> None:
    """B9."""
    topic, group = await server.new_topic(), server.new_name("group")
    async with server.admin() as admin:
        await admin.create_group(group)
        (name,) = await admin.masters()
        assert await admin.group_permission(group, topic) == {name: True}
        assert await admin.group_permission(group, topic, readable=False) == {name: False}
        assert await admin.group_permission(group, topic) == {name: False}
        assert await admin.group_permission(group, topic, readable=True) == {name: True}


async def test_the_request_mode_of_a_group_is_set(server: Server) -> None:
    """B5."""
    topic, group = await server.new_topic(), server.new_name("group")
    async with server.admin() as admin:
        (broker,) = (await admin.masters()).values()
        await admin.create_group(group)
        await admin.set_request_mode(group, topic, "POP", pop_share_queues=2)
        assert RequestMode(topic, group, "POP", 2) in await admin.request_modes(broker)
        await admin.set_request_mode(group, topic, "PULL")
        assert RequestMode(topic, group, "PULL", 0) in await admin.request_modes(broker)


async def test_what_became_of_a_message_in_each_group(server: Server) -> None:
    """B10: and a member consumes it once more because it is asked to."""
    topic, seen = await server.new_topic(queues=1), Seen()
    readers, others = server.new_name("readers"), server.new_name("others")
    (receipt,) = await send(server, topic, ["first"], tags="paid")
    await server.stored(receipt.queue, 1)
    reading, filtering = push(server, readers), push(server, others, instance_name="others")
    reading.subscribe(topic, listener=seen)
    filtering.subscribe(topic, "refunded", listener=seen)
    async with server.admin() as admin:
        found = await eventually(lambda: admin.message_by_id(topic, receipt.msg_id), "it is indexed")
        assert found is not None

        async def types() -> dict[str, TrackType]:
            return {each.group: each.track_type for each in await admin.message_tracks(found)}

        async with reading, filtering:
            await seen.reaches(1)
            await eventually(
                types,
                "both offsets are past it",
                lambda tracks: (
                    tracks.get(readers) is TrackType.CONSUMED
                    and tracks.get(others) is TrackType.CONSUMED_BUT_FILTERED
                ),
            )
            result = await admin.consume_directly(readers, reading.client_id, found)
            assert result.consume_result == "CR_SUCCESS"
            assert [each.offset_msg_id for each in seen.messages] == [receipt.offset_msg_id] * 2
            with pytest.raises(ResponseError, match="not online"):
                await admin.consume_directly(readers, "nobody", found)
            spans = await admin.consume_time_spans(readers, topic)
            assert spans[receipt.queue].min_time_stamp == found.store_timestamp_ms
            assert spans[receipt.queue].consume_time_stamp == found.store_timestamp_ms
        (second,) = await send(server, topic, ["second"])
        await server.stored(second.queue, 2)
        later = await eventually(lambda: admin.message_by_id(topic, second.msg_id), "it is indexed")
        assert later is not None
        tracks = {each.group: each for each in await admin.message_tracks(later)}
        assert tracks[readers].track_type is TrackType.NOT_ONLINE
        assert tracks[readers].consumer_offset == 1


async def test_the_check_of_a_half_message_is_resumed(server: Server) -> None:
    """B7."""
    topic = await server.new_topic()
    producer = TransactionProducer(
        server.new_name("producers"), check=lambda message: TransactionState.ROLLBACK, namesrv=server.namesrv
    )
    async with server.admin() as admin, producer:
        transaction = producer.transaction(Message(topic, b"half"))
        receipt = await transaction.begin()
        await admin.resume_half_check(receipt.offset_msg_id)
        host = decode_offset_id(receipt.offset_msg_id).store_host
        nothing_there = encode_offset_id(pack_host(host), 1 << 40)
        with pytest.raises(ResponseError):
            await admin.resume_half_check(nothing_there)
