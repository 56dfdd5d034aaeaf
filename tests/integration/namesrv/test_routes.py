"""Route look-ups at a running name server; the answers are those recorded from Apache's (N7)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cometmq.model.topic import TopicConfig
from cometmq.testing import VirtualClock
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.namesrv import (
    DeleteKVConfigRequest,
    GetRouteInfoRequest,
    PutKVConfigRequest,
)
from tests.answers import Told
from tests.integration.namesrv.namesrv_kit import (
    A1,
    A2,
    NAME,
    OK,
    Visit,
    both_encodings,
    plain_connection,
    running_namesrv,
)

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
STANDARD = (
    b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911","1":"127.0.0.1:20911"},"brokerName":"broker-a",'
    b'"cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},"queueDatas":['
    b'{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
)
LEGACY = STANDARD.replace(b'"0"', b"0").replace(b'"1"', b"1")


@pytest.fixture
async def namesrv(tmp_path: Path) -> AsyncIterator[Visit]:
    async with running_namesrv(tmp_path) as visit:
        yield visit


@pytest.fixture
async def pair(namesrv: Visit) -> Visit:
    """A master and a slave are registered."""
    await namesrv.broker().register()
    await namesrv.broker(A2, 1).register()
    return namesrv


@pytest.mark.parametrize(
    ("version", "wants_standard", "body"),
    [
        (0, None, LEGACY),
        (399, None, LEGACY),
        (400, None, LEGACY),
        (401, None, STANDARD),
        (475, None, STANDARD),
        (399, "true", STANDARD),
        (399, "false", LEGACY),
        (401, "false", STANDARD),
    ],
)
@both_encodings
async def test_case_7_the_shape_of_a_route_follows_the_client(
    pair: Visit, encoding: int, version: int, wants_standard: str | None, body: bytes
) -> None:
    """N7: standard JSON from 4.9.4 on or when asked for, the older shape before."""
    fields = {"topic": "T1"}
    if wants_standard is not None:
        fields["acceptStandardJsonOnly"] = wants_standard
    async with plain_connection(pair.address) as wire:
        answer = await wire.ask(ROUTE, fields, version=version, encoding=encoding)
    assert answer == Told(0, None, {}, body)


@both_encodings
async def test_an_unknown_topic_is_answered_with_a_hint(namesrv: Visit, encoding: int) -> None:
    """N7: TOPIC_NOT_EXIST, and where to read on."""
    answer = await namesrv.route("NoSuchTopic", encoding)
    remark = f"No topic route info in name server for the topic: NoSuchTopic{FAQ}"
    assert answer == Told(17, remark, {}, b"")


async def test_the_route_has_filter_servers_and_zone(namesrv: Visit) -> None:
    """N7: recorded from Apache's name server."""
    broker = namesrv.broker(acting=True)
    broker.filter_servers = ["127.0.0.1:9", "127.0.0.1:10"]
    broker.header.zone_name = "z1"
    await broker.register()
    assert (await namesrv.route("T1")).body == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911"},"brokerName":"broker-a",'
        b'"cluster":"DefaultCluster","enableActingMaster":true,"zoneName":"z1"}],'
        b'"filterServerTable":{"127.0.0.1:10911":["127.0.0.1:9","127.0.0.1:10"]},"queueDatas":['
        b'{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )


async def test_names_beyond_ascii(namesrv: Visit) -> None:
    """N7: topics are text, whatever the encoding of the header."""
    name = 'unité/☂ "q"'
    await namesrv.broker(topics=[name, "T2"]).register()
    for encoding in (0, 1):
        assert (await namesrv.route(name, encoding)).code == 0


async def test_the_order_of_a_topic_is_shown_where_that_is_switched_on(namesrv: Visit) -> None:
    """N7, N8: with every change of the value, in both shapes."""
    await namesrv.broker().register()
    put = PutKVConfigRequest(namespace="ORDER_TOPIC_CONFIG", key="T1", value="broker-a:4;broker-b:8")
    await namesrv.ask(RequestCode.PUT_KV_CONFIG, put)
    assert b"orderTopicConf" not in (await namesrv.route("T1")).body
    assert (await namesrv.configure("orderMessageEnable=true")).code == 0
    assert b'"orderTopicConf":"broker-a:4;broker-b:8"' in (await namesrv.route("T1")).body
    put.value = "broker-a:1"
    await namesrv.ask(RequestCode.PUT_KV_CONFIG, put)
    assert b'"orderTopicConf":"broker-a:1"' in (await namesrv.route("T1")).body
    async with plain_connection(namesrv.address) as wire:
        old = await wire.ask(ROUTE, {"topic": "T1"}, version=300)
        assert b'"orderTopicConf":"broker-a:1"' in old.body
    delete = DeleteKVConfigRequest(namespace="ORDER_TOPIC_CONFIG", key="T1")
    await namesrv.ask(RequestCode.DELETE_KV_CONFIG, delete)
    assert b"orderTopicConf" not in (await namesrv.route("T1")).body


@pytest.mark.parametrize(
    ("zone", "names"),
    [("EAST", [NAME, "broker-c"]), ("west", ["broker-b", "broker-c"]), ("north", ["broker-c"])],
)
@both_encodings
async def test_a_client_may_ask_for_its_zone(
    namesrv: Visit, encoding: int, zone: str, names: list[str]
) -> None:
    """N7: brokers of the zone, and those whose master is down."""
    for broker, its_zone in (
        (namesrv.broker(A1), "east"),
        (namesrv.broker(A2, name="broker-b"), "west"),
        (namesrv.broker("127.0.0.1:30911", 1, "broker-c"), "south"),
    ):
        broker.header.zone_name = its_zone
        await broker.register()
    header = GetRouteInfoRequest(topic="T1", zone_name=zone, zone_mode=True)
    answer = await namesrv.ask(ROUTE, header, encoding=encoding)
    brokers = json.loads(answer.body)["brokerDatas"]
    assert sorted(each["brokerName"] for each in brokers) == names


async def test_a_zone_without_brokers_gets_an_empty_route(namesrv: Visit) -> None:
    """N7: recorded from Apache's name server; an unknown topic is unknown in every zone."""
    await namesrv.broker().register()
    header = GetRouteInfoRequest(topic="T1", zone_name="elsewhere", zone_mode=True)
    empty = b'{"brokerDatas":[],"filterServerTable":{},"queueDatas":[]}'
    assert await namesrv.ask(ROUTE, header) == Told(0, None, {}, empty)
    header.topic = "T9"
    assert (await namesrv.ask(ROUTE, header)).code == 17


@pytest.mark.parametrize(
    "header",
    [
        GetRouteInfoRequest(topic="T1", zone_name="elsewhere"),
        GetRouteInfoRequest(topic="T1", zone_name="elsewhere", zone_mode=False),
        GetRouteInfoRequest(topic="T1", zone_mode=True),
        GetRouteInfoRequest(topic="T1", zone_name="  ", zone_mode=True),
    ],
    ids=["zone only", "mode off", "mode only", "blank zone"],
)
async def test_zone_and_zone_mode_are_both_needed(namesrv: Visit, header: GetRouteInfoRequest) -> None:
    """N7: otherwise everyone is shown."""
    await namesrv.broker().register()
    assert b'"brokerName":"broker-a"' in (await namesrv.ask(ROUTE, header)).body


async def test_a_slave_stands_in_for_its_master_where_that_is_switched_on(tmp_path: Path) -> None:
    """N7: read-only, as master of old clients; the name server can be told to stop that."""
    async with running_namesrv(tmp_path, support_acting_master=True) as namesrv:
        master, slave = namesrv.broker(A1, acting=True), namesrv.broker(A2, 1, acting=True)
        await master.register()
        await slave.register()
        await master.unregister()
        assert await namesrv.addresses("T1") == {NAME: {"0": A2}}
        assert b'"perm":4' in (await namesrv.route("T1")).body
        await namesrv.configure("supportActingMaster=false")
        assert await namesrv.addresses("T1") == {NAME: {"1": A2}}


async def test_a_name_server_may_wait_until_the_brokers_are_there(tmp_path: Path) -> None:
    """N7: only if configured to, and only for routes."""
    clock = VirtualClock()
    async with running_namesrv(tmp_path, clock=clock, need_wait_for_service=True) as namesrv:
        assert await namesrv.broker().register() == OK
        not_ready = Told(1, "name server not ready", {}, b"")
        assert await namesrv.route("T1") == not_ready
        clock.advance(44_999)
        assert await namesrv.route("T1") == not_ready
        clock.advance(1)
        assert (await namesrv.route("T1")).code == 0


async def test_waiting_can_be_switched_on_and_off_while_it_runs(namesrv: Visit) -> None:
    """N7, N9: recorded from Apache's name server."""
    await namesrv.configure("needWaitForService=true\nwaitSecondsForService=100000\n")
    assert (await namesrv.route("T1")).remark == "name server not ready"
    await namesrv.configure("needWaitForService=false")
    assert (await namesrv.route("T1")).code == 17


async def test_many_clients_at_once_get_whole_answers(namesrv: Visit) -> None:
    """N3: many readers while a broker registers again and again."""
    broker = namesrv.broker(topics=[TopicConfig(f"T{number}") for number in range(20)])
    await broker.register()

    async def read(number: int) -> None:
        for _ in range(10):
            answer = await namesrv.route(f"T{number % 20}", number % 2)
            assert answer.code == 0
            assert answer.body.endswith(b"}]}")

    async def write() -> None:
        for port in range(10):
            broker.header.broker_addr = f"127.0.0.1:{port}"
            assert await broker.register() == OK

    await asyncio.gather(write(), *(read(number) for number in range(40)))
    assert await namesrv.addresses("T0") == {NAME: {"0": "127.0.0.1:9"}}
