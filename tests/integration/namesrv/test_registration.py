"""Brokers register with a running name server; the answers are those recorded from Apache's (N4, N5)."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from struct import pack

import pytest
from msgspec.structs import replace

from cometmq.model.topic import DataVersion, TopicConfig
from cometmq.wire.bodies.registration import encode_registration
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.framing import JSON, ROCKETMQ
from cometmq.wire.headers.namesrv import GetBrokerMemberGroupRequest, PutKVConfigRequest, RegisterTopicRequest
from tests.answers import Told
from tests.integration.namesrv.namesrv_kit import (
    A1,
    A2,
    CLUSTER,
    NAME,
    OK,
    Visit,
    both_encodings,
    plain_connection,
    running_namesrv,
)

VERSION = DataVersion(0, 1_700_000_000_000, 1)
VERSION_BODY = b'{"counter":1,"stateVersion":0,"timestamp":1700000000000}'
NO_BROKERS = b'{"brokerAddrTable":{},"clusterAddrTable":{}}'


@pytest.fixture
async def namesrv(tmp_path: Path) -> AsyncIterator[Visit]:
    async with running_namesrv(tmp_path) as visit:
        yield visit


async def cluster_info(namesrv: Visit) -> bytes:
    return (await namesrv.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body


@both_encodings
async def test_a_master_registers_and_a_slave_learns_where_it_is(namesrv: Visit, encoding: int) -> None:
    """N4: in both header encodings."""
    assert await namesrv.broker().register(encoding=encoding) == OK
    answer = await namesrv.broker(A2, 1).register(encoding=encoding)
    assert answer == Told(0, None, {"haServerAddr": "127.0.0.1:10912", "masterAddr": A1}, b"")
    old_slave = namesrv.broker("127.0.0.1:30911", 2, acting=None)
    assert (await old_slave.register(encoding=encoding)).fields["masterAddr"] == A1
    assert await namesrv.addresses("T1") == {NAME: {"0": A1, "1": A2, "2": "127.0.0.1:30911"}}


@both_encodings
async def test_case_9_a_wrong_checksum_is_refused_and_changes_nothing(namesrv: Visit, encoding: int) -> None:
    """N4: the body did not arrive as it was sent."""
    broker = namesrv.broker()
    body = encode_registration(broker.topics, broker.version)
    broker.header.body_crc32 = (zlib.crc32(body) & 0x7FFFFFFF) ^ 1
    assert await broker.register(body, encoding) == Told(1, "crc32 not match", {}, b"")
    assert await cluster_info(namesrv) == NO_BROKERS
    broker.header.body_crc32 ^= 1
    assert await broker.register(body, encoding) == OK


@pytest.mark.parametrize("compressed", [True, False], ids=["compressed", "plain"])
async def test_a_body_that_cannot_be_read_is_refused_and_changes_nothing(
    namesrv: Visit, compressed: bool
) -> None:
    """N4: with a reason."""
    broker = namesrv.broker()
    broker.header.compressed = compressed
    code, remark, _, _ = await broker.register(b"{garbage")
    assert code == 1
    assert (remark or "").startswith("Failed to decode RegisterBrokerBody: ")
    assert await cluster_info(namesrv) == NO_BROKERS


def compressed_body() -> bytes:
    items = [VERSION_BODY, pack(">i", 2), b"T1 4 8 6 SINGLE_TAG", b"T2 4 4 6 SINGLE_TAG {}", b"[]"]
    parts = [each if each == items[1] else pack(">i", len(each)) + each for each in items]
    return zlib.compress(b"".join(parts) + pack(">i", 0), 9)


@pytest.mark.parametrize("says_so", [True, False], ids=["says so", "says it is plain"])
async def test_a_compressed_registration(namesrv: Visit, says_so: bool) -> None:
    """N4: with its checksum, over the bytes as they travel."""
    broker = namesrv.broker()
    broker.header.compressed = says_so
    broker.header.body_crc32 = zlib.crc32(compressed_body()) & 0x7FFFFFFF
    assert await broker.register(compressed_body()) == OK
    assert b'"writeQueueNums":8' in (await namesrv.route("T1")).body


async def test_a_broker_before_3_0_11_sends_its_bare_topic_table(namesrv: Visit) -> None:
    """N4: the version of the sender decides how its body is read."""
    fields = {
        "brokerName": NAME,
        "brokerAddr": A1,
        "clusterName": CLUSTER,
        "haServerAddr": "127.0.0.1:10912",
        "brokerId": "0",
    }
    topics = b'{"T1":{"topicName":"T1"},"T2":{"topicName":"T2"}}'
    body = b'{"dataVersion":{"counter":1},"topicConfigTable":%b}' % topics
    async with plain_connection(namesrv.address) as wire:
        assert await wire.ask(RequestCode.REGISTER_BROKER, fields, body=body, version=36) == OK
        assert sorted(await namesrv.addresses("T2")) == [NAME]


async def test_case_4_a_first_registration_of_one_topic_fails_and_leaves_the_name_listed(
    namesrv: Visit,
) -> None:
    """N4: recorded from Apache's name server."""
    answer = await namesrv.broker(topics=["T1"]).register()
    assert answer == Told(1, "register broker failed", {}, b"")
    assert await cluster_info(namesrv) == (
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{},"brokerName":"broker-a","cluster":"DefaultCluster",'
        b'"enableActingMaster":false}},"clusterAddrTable":{"DefaultCluster":["broker-a"]}}'
    )


async def test_a_registration_without_a_body_has_no_topics(namesrv: Visit) -> None:
    """N4: it is a broker all the same."""
    assert await namesrv.broker().register(b"") == OK
    assert b'{0:"127.0.0.1:10911"}' in await cluster_info(namesrv)


async def test_case_3_a_master_of_an_older_epoch_gets_an_empty_success(namesrv: Visit) -> None:
    """N4: and the master of the newer epoch stays."""
    newer, older = namesrv.broker(A1), namesrv.broker(A2)
    newer.version = DataVersion(5, 0, 1)
    older.version = DataVersion(4, 0, 1)
    assert await newer.register() == OK
    assert await older.register() == OK
    assert await namesrv.addresses("T1") == {NAME: {"0": A1}}


@both_encodings
async def test_the_order_of_topics_comes_with_the_answer(namesrv: Visit, encoding: int) -> None:
    """N4: when there is any and it is not switched off."""
    broker = namesrv.broker()
    assert (await broker.register(encoding=encoding)).body == b""
    header = PutKVConfigRequest(namespace="ORDER_TOPIC_CONFIG", key="T1", value="broker-a:4;broker-b:8")
    assert await namesrv.ask(RequestCode.PUT_KV_CONFIG, header) == OK
    assert (await broker.register(encoding=encoding)).body == b'{"table":{"T1":"broker-a:4;broker-b:8"}}'
    await namesrv.configure("returnOrderTopicConfigToBroker=false")
    assert (await broker.register(encoding=encoding)).body == b""


@both_encodings
async def test_the_data_version_tells_whether_to_register_again(namesrv: Visit, encoding: int) -> None:
    """N5: recorded from Apache's name server: same, other, unknown broker, no body."""
    broker, stranger = namesrv.broker(), namesrv.broker(A2, name="broker-z")
    await broker.register()
    unchanged = Told(0, None, {"changed": "false"}, VERSION_BODY)
    changed = Told(0, None, {"changed": "true"}, VERSION_BODY)
    assert await broker.query_version(VERSION, encoding) == unchanged
    assert await broker.query_version(replace(VERSION, counter=2), encoding) == changed
    assert await broker.query_version(None, encoding) == changed
    assert await stranger.query_version(VERSION, encoding) == Told(0, None, {"changed": "true"}, b"")


async def test_a_question_without_a_data_version_means_that_something_changed(namesrv: Visit) -> None:
    """N5: also to a broker whose version is all zeros."""
    broker = namesrv.broker()
    await broker.register(b"")
    assert (await broker.query_version(DataVersion())).fields == {"changed": "false"}
    assert (await broker.query_version(None)).fields == {"changed": "true"}


async def test_heartbeats_are_answered_whoever_sends_them(namesrv: Visit) -> None:
    """N9: a stranger stays one."""
    broker, stranger = namesrv.broker(), namesrv.broker(A2, name="broker-z")
    await broker.register()
    assert await broker.heartbeat() == OK
    assert await stranger.heartbeat() == OK
    assert b"broker-z" not in await cluster_info(namesrv)


@both_encodings
async def test_the_members_of_a_group(namesrv: Visit, encoding: int) -> None:
    """N9: recorded from Apache's name server, with the remark that it leaves in this answer."""
    await namesrv.broker().register()
    await namesrv.broker(A2, 1).register()

    async def members(cluster: str, name: str) -> Told:
        header = GetBrokerMemberGroupRequest(cluster_name=cluster, broker_name=name)
        return await namesrv.ask(RequestCode.GET_BROKER_MEMBER_GROUP, header, encoding=encoding)

    answer = await members(CLUSTER, NAME)
    assert answer == Told(
        0,
        "not set any response code",
        {},
        b'{"brokerMemberGroup":{"brokerAddrs":{0:"127.0.0.1:10911",1:"127.0.0.1:20911"},'
        b'"brokerName":"broker-a","cluster":"DefaultCluster"}}',
    )
    nobody = b'{"brokerMemberGroup":{"brokerAddrs":{},"brokerName":"zz","cluster":"DefaultCluster"}}'
    assert (await members(CLUSTER, "zz")).body == nobody
    assert b'"brokerAddrs":{}' in (await members("Other", NAME)).body


async def test_a_changed_topic_is_in_force_at_once(namesrv: Visit) -> None:
    """N4: for clients of both encodings."""
    broker = namesrv.broker()
    await broker.register()
    assert b'"readQueueNums":4' in (await namesrv.route("T1")).body
    broker.topics = [TopicConfig("T1", 9, 9)]
    broker.version = replace(broker.version, counter=2)
    assert await broker.register() == OK
    for encoding in (JSON, ROCKETMQ):
        assert b'"readQueueNums":9' in (await namesrv.route("T1", encoding)).body
    assert (await namesrv.route("T2")).code == 0, "a partial registration deletes nothing"


async def test_topics_go_with_a_registration_where_that_is_switched_on(tmp_path: Path) -> None:
    """N4: deleteTopicWithBrokerRegistration."""
    async with running_namesrv(tmp_path, delete_topic_with_broker_registration=True) as namesrv:
        broker = namesrv.broker(topics=[NAME, "T1", "T2", "T3"])
        await broker.register()
        broker.topics = broker.topics[:3]
        await broker.register()
        assert (await namesrv.route("T3")).code == 17
        assert (await namesrv.route("T2")).code == 0
        everything, broker.topics = broker.topics, broker.topics[2:]
        await broker.register()
        broker.topics = everything
        assert (await namesrv.route(NAME)).code == 0, "a registration of what has changed deletes nothing"


async def test_a_known_broker_cannot_register_topics_without_end(
    namesrv: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N4: what is there can be registered again at the limit, and nothing more, one by one either."""
    monkeypatch.setattr("cometmq.namesrv.handlers.registration.MAX_TOPICS", 4)
    monkeypatch.setattr("cometmq.namesrv.handlers.topics.MAX_TOPICS", 4)
    broker = namesrv.broker()
    broker.topics = [TopicConfig(name) for name in ("T1", "T2", "T3", "T4")]
    assert await broker.register() == OK
    assert await broker.register() == OK
    broker.topics = [*broker.topics, TopicConfig("T5")]
    told = await broker.register()
    assert (told.code, "4 topics; 20000 and 4 are possible" in (told.remark or "")) == (1, True)
    body = (
        b'{"queueDatas":[{"brokerName":"%b","perm":6,"readQueueNums":1,"writeQueueNums":1}]}' % NAME.encode()
    )
    code = RequestCode.REGISTER_TOPIC_IN_NAMESRV
    told = await namesrv.ask(code, RegisterTopicRequest(topic="T6"), body=body)
    assert (told.code, told.remark) == (1, "the name server has 4 topics; 4 are possible")
