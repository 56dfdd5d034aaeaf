"""A client instance: routes, addresses, heartbeats to replicas, and what brokers ask of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import pytest

from cometmq.client.admin.admin import Admin
from cometmq.client.instance.instance import ClientInstance, join_instance
from cometmq.client.instance.members import MemberKind
from cometmq.client.producer.producer import Producer
from cometmq.client.settings import ClientSettings
from cometmq.model.errors import CometError, StateError
from cometmq.model.message import Host, Message, StoredMessage
from cometmq.model.queue import MessageQueue
from cometmq.model.route import BrokerData, QueueData, TopicRoute
from cometmq.wire.bodies.consumer_info import ConsumeDirectlyResult, ConsumerRunningInfo, DirectResult
from cometmq.wire.bodies.heartbeat import ConsumerData, SubscriptionData
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import Command
from cometmq.wire.header.schema import Header, encode_fields
from cometmq.wire.headers.offset import ResetOffsetRequest
from cometmq.wire.headers.session import (
    ConsumeMessageDirectlyResultRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusRequest,
    NotifyConsumerIdsChangedRequest,
)
from cometmq.wire.json import fastjson
from cometmq.wire.record.codec import Record, encode_record
from cometmq.wire.record.ids import pack_host
from tests.integration.client.client_kit import TOPIC, FakeCluster, queue, running_cluster
from tests.waiting import eventually

GROUP = "billing"


class FakeConsumer:
    """A consumer that only remembers what it was told."""

    kind: MemberKind = "consumer"
    group = GROUP

    def __init__(self) -> None:
        self.notices = 0
        self.resets: list[tuple[str, dict[MessageQueue, int]]] = []
        self.changed: list[str] = []
        self.consumed: list[tuple[StoredMessage, str]] = []

    def topics(self) -> Collection[str]:
        return [TOPIC]

    def heartbeat_entry(self) -> ConsumerData:
        return ConsumerData(GROUP, subscription_data_set=(SubscriptionData(TOPIC),))

    def route_changed(self, topic: str) -> None:
        self.changed.append(topic)

    def consumer_ids_changed(self) -> None:
        self.notices += 1

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        self.resets.append((topic, offsets))

    def status(self, topic: str) -> dict[MessageQueue, int]:
        return {queue(1, topic=topic): 42}

    async def running_info(self, with_stacks: bool) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(properties={"with stacks": str(with_stacks)})

    async def consume_directly(self, message: StoredMessage, broker_name: str) -> ConsumeDirectlyResult:
        self.consumed.append((message, broker_name))
        return ConsumeDirectlyResult(consume_result=DirectResult.CR_SUCCESS)


@asynccontextmanager
async def consuming(
    cluster: FakeCluster, **options: object
) -> AsyncIterator[tuple[ClientInstance, FakeConsumer]]:
    """An instance with one consumer, known to the brokers."""
    consumer = FakeConsumer()
    settings = ClientSettings(namesrv=cluster.namesrv, **options)  # type: ignore[arg-type]
    instance = await join_instance(settings, consumer)
    try:
        await instance.routes.of(TOPIC)
        await instance.heartbeats.send_to_all()
        yield instance, consumer
    finally:
        await instance.remove_member(consumer)


async def ask(cluster: FakeCluster, code: RequestCode, header: Header, body: bytes = b"") -> Command:
    """Let the broker ask its client."""
    connection = cluster.brokers[0].connections[-1]
    return await connection.call(code, encode_fields(header), body, timeout_s=5)


async def test_a_consumer_hears_that_its_group_has_changed() -> None:
    """C6."""
    async with running_cluster() as cluster, consuming(cluster) as (_, consumer):
        before = consumer.notices
        header = NotifyConsumerIdsChangedRequest(consumer_group=GROUP)
        cluster.brokers[0].connections[-1].oneway(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, encode_fields(header)
        )
        await eventually(lambda: consumer.notices == before + 1, "the notice arrives")


@pytest.mark.parametrize(
    "body",
    [
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":1,"topic":"orders"}:7}}',
        b'{"offsetTable":{"{\\"brokerName\\":\\"broker-a\\",\\"queueId\\":1,\\"topic\\":\\"orders\\"}":7}}',
    ],
)
async def test_offsets_are_reset_as_the_broker_says(body: bytes) -> None:
    """C6."""
    async with running_cluster() as cluster, consuming(cluster) as (_, consumer):
        header = ResetOffsetRequest(topic=TOPIC, group=GROUP, timestamp=0, is_force=True)
        answer = await ask(cluster, RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body)
        assert answer.code == 0
        assert consumer.resets == [(TOPIC, {queue(1): 7})]
        broken = await ask(
            cluster, RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, b'{"offsetTable":{1:2}}'
        )
        assert broken.code == 1
        assert "no queue" in (broken.remark or "")
        assert len(consumer.resets) == 1


async def test_the_offsets_of_a_consumer_are_reported() -> None:
    """C6."""
    async with running_cluster() as cluster, consuming(cluster):
        header = GetConsumerStatusRequest(topic=TOPIC, group=GROUP)
        answer = await ask(cluster, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header)
        assert bytes(answer.body) == (
            b'{"messageQueueTable":{{"brokerName":"broker-a","queueId":1,"topic":"orders"}:42}}'
        )


async def test_a_consumer_reports_what_it_is_doing() -> None:
    """C6."""
    async with running_cluster() as cluster, consuming(cluster) as (instance, _):
        header = GetConsumerRunningInfoRequest(
            consumer_group=GROUP, client_id=instance.client_id, jstack_enable=True
        )
        answer = await ask(cluster, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        assert fastjson.loads(answer.body)["properties"] == {"with stacks": "True"}


async def test_a_message_is_consumed_directly() -> None:
    """C6."""
    host = pack_host(Host("127.0.0.1", 10911))
    record = Record(
        TOPIC, b"pay", b"TAGS\x01t\x02", queue_id=3, queue_offset=5, born_host=host, store_host=host
    )
    async with running_cluster() as cluster, consuming(cluster) as (_, consumer):
        header = ConsumeMessageDirectlyResultRequest(consumer_group=GROUP, broker_name="broker-a")
        body = bytes(encode_record(record))
        answer = await ask(cluster, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, body)
        assert fastjson.loads(answer.body)["consumeResult"] == "CR_SUCCESS"
        ((message, broker_name),) = consumer.consumed
        assert (message.body, message.tags, message.queue) == (b"pay", "t", queue(3))
        assert broker_name == "broker-a"
        broken = await ask(cluster, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, b"no record")
        assert broken.code == 1
        assert len(consumer.consumed) == 1


async def test_questions_about_a_group_that_is_not_here_are_answered_with_a_sentence() -> None:
    """C6."""
    async with running_cluster() as cluster, consuming(cluster):
        header = GetConsumerStatusRequest(topic=TOPIC, group="other")
        answer = await ask(cluster, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header)
        assert answer.code == 1
        assert answer.remark == "this client has no consumer of group other"
        unknown = await ask(cluster, RequestCode.SEND_MESSAGE, header)
        assert unknown.code == 3


async def test_a_consumer_shares_its_queues_anew_when_a_broker_comes_back() -> None:
    async with running_cluster() as cluster, consuming(cluster) as (instance, consumer):
        broker = cluster.brokers[0]
        before = consumer.notices
        await broker.stop()
        await broker.restart()
        await instance.heartbeats.send_to_all()
        await eventually(lambda: consumer.notices > before, "the consumer is told")


def replicated(cluster: FakeCluster) -> TopicRoute:
    """The topic at `broker-a`, whose replica is the second fake broker."""
    master, replica = cluster.brokers
    addresses = {0: master.address, 1: replica.address}
    return TopicRoute([QueueData(master.name, 2, 2, 6)], [BrokerData("c", master.name, addresses)])


async def test_replicas_hear_of_consumers_too() -> None:
    """P3: of producers they do not, which the producers' tests show."""
    async with running_cluster(brokers=2) as cluster:
        cluster.name_servers[0].routes[TOPIC] = replicated(cluster)
        async with consuming(cluster) as (instance, _):
            replica = cluster.brokers[1]
            (heartbeat,) = replica.heartbeats[:1]
            assert [each.group_name for each in heartbeat.consumer_data_set] == [GROUP]
            assert instance.heartbeats.versions[replica.address] > 400
        assert {each.consumer_group for each in replica.left} == {GROUP}


async def test_the_address_to_read_from_is_the_wished_one_the_next_or_any() -> None:
    async with running_cluster(brokers=2) as cluster:
        cluster.name_servers[0].routes[TOPIC] = replicated(cluster)
        master, replica = cluster.brokers
        async with consuming(cluster) as (instance, _):
            routes = instance.routes
            assert routes.master_of("broker-a") == master.address
            assert routes.address_of("broker-a") == (master.address, False)
            assert routes.address_of("broker-a", 1) == (replica.address, True)
            assert routes.address_of("broker-a", 7) == (master.address, False)
            assert routes.address_of("nobody") is None
            assert routes.has_broker_at(replica.address)


async def test_an_order_configuration_names_the_queues_to_send_to() -> None:
    async with running_cluster(brokers=2) as cluster:
        cluster.set_route(order_conf="broker-b:2;broker-a:1")
        async with consuming(cluster) as (instance, _):
            assert list(instance.routes.publish_queues(TOPIC)) == [
                queue(0, "broker-b"),
                queue(1, "broker-b"),
                queue(0, "broker-a"),
            ]
            cluster.set_route(order_conf="broker-b")
            with pytest.raises(CometError, match="fix 'broker-b' there"):
                await instance.routes.refresh(TOPIC)


async def test_queues_to_read_need_no_master_and_queues_to_send_to_do() -> None:
    async with running_cluster() as cluster:
        broker = cluster.brokers[0]
        cluster.name_servers[0].routes[TOPIC] = TopicRoute(
            [QueueData("broker-a", 3, 2, 6), QueueData("broker-b", 1, 1, 2)],
            [BrokerData("c", "broker-a", {1: broker.address}), BrokerData("c", "broker-b", {0: "nowhere:1"})],
        )
        async with consuming(cluster) as (instance, _):
            routes = instance.routes
            assert list(routes.subscribe_queues(TOPIC)) == [queue(0), queue(1), queue(2)]
            assert list(routes.publish_queues(TOPIC)) == [queue(0, "broker-b")]


async def test_many_who_ask_for_a_topic_share_one_question() -> None:
    """P2."""
    async with running_cluster() as cluster, consuming(cluster) as (instance, _):
        cluster.set_route("other")
        routes = await asyncio.gather(*(instance.routes.of("other") for _ in range(20)))
        assert all(route == routes[0] and route is not None for route in routes)
        assert cluster.name_servers[0].asked.count("other") == 1


async def test_members_hear_of_routes_that_changed_and_only_of_these() -> None:
    """P2."""
    async with running_cluster(brokers=2) as cluster, consuming(cluster) as (instance, consumer):
        assert consumer.changed == [TOPIC]
        assert await instance.routes.refresh(TOPIC) is False
        cluster.set_route(queues=9)
        assert await instance.routes.refresh(TOPIC) is True
        assert consumer.changed == [TOPIC, TOPIC]


async def test_a_topic_that_is_gone_keeps_its_last_route_and_an_unknown_one_has_none() -> None:
    async with running_cluster() as cluster, consuming(cluster) as (instance, _):
        known = await instance.routes.of(TOPIC)
        cluster.name_servers[0].routes.clear()
        assert await instance.routes.refresh(TOPIC) is False
        assert await instance.routes.of(TOPIC) == known
        assert await instance.routes.of("unknown") is None


async def test_routes_that_nobody_uses_are_forgotten_with_their_brokers() -> None:
    async with running_cluster(brokers=2) as cluster:
        cluster.set_route(brokers=cluster.brokers[:1])
        cluster.set_route("other", brokers=cluster.brokers[1:])
        async with consuming(cluster) as (instance, _):
            await instance.routes.of("other")
            assert set(instance.routes.broker_addresses()) == {"broker-a", "broker-b"}
            await instance.refresh_routes()
            assert set(instance.routes.broker_addresses()) == {"broker-a"}
            assert instance.routes.known("other") is None


async def test_the_table_of_routes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cometmq.client.instance.routes.MAX_TOPICS", 3)
    async with running_cluster(brokers=2) as cluster:
        cluster.set_route(brokers=cluster.brokers[:1])
        async with consuming(cluster) as (instance, _):
            for number in range(3):
                cluster.set_route(f"topic-{number}", brokers=cluster.brokers[1:])
                await instance.routes.of(f"topic-{number}")
            assert instance.routes.known(TOPIC) is None
            assert instance.routes.known("topic-2") is not None
            assert set(instance.routes.broker_addresses()) == {"broker-b"}


async def test_who_waits_for_a_route_when_the_client_stops_gets_an_error() -> None:
    async with running_cluster() as cluster:
        async with consuming(cluster) as (instance, _):
            cluster.name_servers[0].silent = True
            waiting = asyncio.create_task(instance.routes.of("other"))
            await eventually(lambda: "other" in cluster.name_servers[0].asked, "the name server is asked")
        with pytest.raises(StateError, match="stopped before the route of other was known"):
            await waiting


async def test_a_process_that_was_forked_off_cannot_use_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_cluster() as cluster:
        producer = Producer("g", namesrv=cluster.namesrv)
        async with producer, Admin(namesrv=cluster.namesrv) as admin:
            with monkeypatch.context() as child:
                child.setattr("cometmq.client.instance.instance.ForkGuard.forks", 1)
                for use in (producer.send(Message(TOPIC, b"x")), producer.stop(), admin.topics()):
                    with pytest.raises(StateError, match="make a new one in the child"):
                        await use
            await producer.send(Message(TOPIC, b"x"))
