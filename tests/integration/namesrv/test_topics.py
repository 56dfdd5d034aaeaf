"""Topics and permissions at a running name server; the answers are those recorded from Apache's (N9)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cometmq.model.topic import TopicConfig
from cometmq.wire.codes import RequestCode
from cometmq.wire.header.schema import Header
from cometmq.wire.headers.namesrv import (
    AddWritePermOfBrokerRequest,
    DeleteTopicFromNamesrvRequest,
    GetTopicsByClusterRequest,
    RegisterTopicRequest,
    WipeWritePermOfBrokerRequest,
)
from tests.answers import Told
from tests.integration.namesrv.namesrv_kit import (
    A1,
    A2,
    CLUSTER,
    NAME,
    OK,
    Visit,
    both_encodings,
    running_namesrv,
)

DISABLED = Told(1, "disable", {}, b"")
TOPICS = [
    TopicConfig("T1", 4, 4),
    TopicConfig("T2", 4, 4, 4),
    TopicConfig("U1", topic_sys_flag=1),
    TopicConfig("U2", topic_sys_flag=2),
    TopicConfig("U3", topic_sys_flag=3),
]


@pytest.fixture
async def namesrv(tmp_path: Path) -> AsyncIterator[Visit]:
    async with running_namesrv(tmp_path) as visit:
        yield visit


@pytest.fixture
async def busy(namesrv: Visit) -> Visit:
    await namesrv.broker(topics=TOPICS).register()
    return namesrv


def of_cluster(cluster: str) -> GetTopicsByClusterRequest:
    return GetTopicsByClusterRequest(cluster=cluster)


async def topics(namesrv: Visit, code: RequestCode, header: Header | None, encoding: int) -> list[str]:
    answer = await namesrv.ask(code, header, encoding=encoding)
    assert (answer.code, answer.remark) == (0, None)
    found: list[str] = json.loads(answer.body)["topicList"]
    return sorted(found)


@both_encodings
async def test_the_lists_of_topics(busy: Visit, encoding: int) -> None:
    """N9: all, of a cluster, unit, unit subscription, unit subscription without unit."""
    everything = ["T1", "T2", "U1", "U2", "U3"]
    assert await topics(busy, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None, encoding) == everything
    assert await topics(busy, RequestCode.GET_TOPICS_BY_CLUSTER, of_cluster(CLUSTER), encoding) == everything
    assert await topics(busy, RequestCode.GET_UNIT_TOPIC_LIST, None, encoding) == ["U1", "U3"]
    assert await topics(busy, RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, None, encoding) == ["U2", "U3"]
    assert await topics(busy, RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, None, encoding) == ["U2"]


async def test_empty_lists(namesrv: Visit) -> None:
    """N9: an unknown cluster, and a name server without brokers."""
    empty = Told(0, None, {}, b'{"topicList":[]}')
    assert await namesrv.ask(RequestCode.GET_TOPICS_BY_CLUSTER, of_cluster("x")) == empty
    for code in (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS):
        assert await namesrv.ask(code) == empty


async def test_the_system_topics_are_the_names_of_clusters_and_brokers(busy: Visit) -> None:
    """N9: with the address of a broker before them."""
    answer = await busy.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert answer.body.startswith(b'{"brokerAddr":"127.0.0.1:10911","topicList":[')
    assert sorted(json.loads(answer.body)["topicList"]) == [CLUSTER, NAME]


async def test_the_lists_can_be_switched_off(busy: Visit) -> None:
    """N9: all topics by one setting, the others by another; system topics always answer."""
    await busy.configure("enableAllTopicList=false")
    assert await busy.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == DISABLED
    assert (await busy.ask(RequestCode.GET_UNIT_TOPIC_LIST)).code == 0
    await busy.configure("enableAllTopicList=true\nenableTopicList=false")
    assert (await busy.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).code == 0
    assert await busy.ask(RequestCode.GET_TOPICS_BY_CLUSTER, of_cluster(CLUSTER)) == DISABLED
    assert await busy.ask(RequestCode.GET_UNIT_TOPIC_LIST) == DISABLED
    assert await busy.ask(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST) == DISABLED
    assert await busy.ask(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == DISABLED
    assert (await busy.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)).code == 0


@both_encodings
async def test_the_write_permission_is_taken_and_given(busy: Visit, encoding: int) -> None:
    """N9: with the number of topics touched; giving it makes a read-only topic writable too."""

    async def wipe(name: str) -> Told:
        header = WipeWritePermOfBrokerRequest(broker_name=name)
        return await busy.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header, encoding=encoding)

    async def add(name: str) -> Told:
        header = AddWritePermOfBrokerRequest(broker_name=name)
        return await busy.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, header, encoding=encoding)

    assert await wipe("nobody") == Told(0, None, {"wipeTopicCount": "0"}, b"")
    assert await add("nobody") == Told(0, None, {"addTopicCount": "0"}, b"")
    assert await wipe(NAME) == Told(0, None, {"wipeTopicCount": "5"}, b"")
    assert b'"perm":4' in (await busy.route("T1")).body
    assert await add(NAME) == Told(0, None, {"addTopicCount": "5"}, b"")
    assert b'"perm":6' in (await busy.route("T1")).body
    assert b'"perm":6' in (await busy.route("T2")).body


@both_encodings
async def test_a_topic_is_deleted_in_a_cluster_or_everywhere(busy: Visit, encoding: int) -> None:
    """N9: always a success, whether there was anything to delete or not."""

    async def delete(topic: str, cluster: str | None) -> Told:
        header = DeleteTopicFromNamesrvRequest(topic=topic, cluster_name=cluster)
        return await busy.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, header, encoding=encoding)

    assert await delete("T1", "Nowhere") == OK
    assert (await busy.route("T1")).code == 0
    assert await delete("T1", CLUSTER) == OK
    assert (await busy.route("T1")).code == 17
    assert await delete("T2", None) == OK
    assert (await busy.route("T2")).code == 17
    assert await delete("U1", "") == OK, "an empty cluster is none"
    assert (await busy.route("U1")).code == 17
    assert await delete("NoSuchTopic", None) == OK


@both_encodings
async def test_a_topic_is_registered_alone(busy: Visit, encoding: int) -> None:
    """N9: for registered brokers; for an unknown one it is a success without effect."""

    async def register(topic: str, body: bytes) -> Told:
        header = RegisterTopicRequest(topic=topic)
        return await busy.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, header, body=body, encoding=encoding)

    queues = b'{"queueDatas":[{"brokerName":"%b","perm":6,"readQueueNums":3,"writeQueueNums":3}]}'
    assert await register("NEW", queues % b"broker-a") == OK
    assert b'"readQueueNums":3' in (await busy.route("NEW")).body
    assert await register("OTHER", queues % b"nobody") == OK
    assert (await busy.route("OTHER")).code == 17
    assert await register("EMPTY", b"") == OK
    assert await register("EMPTY", b"{}") == OK
    assert (await register("BAD", b"{garbage")).code == 1


async def test_cluster_information(busy: Visit) -> None:
    """N9: recorded from Apache's name server, in the older shape for everyone."""
    slave = busy.broker(A2, 1)
    slave.header.zone_name = "z1"
    await slave.register()
    assert await busy.ask(RequestCode.GET_BROKER_CLUSTER_INFO) == Told(
        0,
        None,
        {},
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"127.0.0.1:10911",1:"127.0.0.1:20911"},'
        b'"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false,"zoneName":"z1"}},'
        b'"clusterAddrTable":{"DefaultCluster":["broker-a"]}}',
    )
    assert A1 in (await busy.addresses("T1"))[NAME].values()
