"""Routes, cluster information and member groups: byte for byte what Apache's name server answers (N7, N9)."""

from __future__ import annotations

import pytest

from cometmq.model.route import BrokerData, QueueData, TopicRoute
from cometmq.model.topic import TopicQueueMappingInfo
from cometmq.wire.bodies.route import encode_cluster_info, encode_member_group, encode_route

BROKER = BrokerData("DefaultCluster", "broker-a", {1: "127.0.0.1:20911", 0: "127.0.0.1:10911"})
QUEUES = QueueData("broker-a", 4, 4, 6, 0)


def test_the_older_shape_has_bare_keys() -> None:
    """N7: recorded from Apache's name server for a client of version 400."""
    assert encode_route(TopicRoute([QUEUES], [BROKER]), standard=False) == (
        b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:10911",1:"127.0.0.1:20911"},"brokerName":"broker-a",'
        b'"cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},"queueDatas":['
        b'{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )


def test_the_standard_shape_quotes_them() -> None:
    """N7: recorded from Apache's name server, with filter servers, zone and order."""
    broker = BrokerData("DefaultCluster", "broker-a", dict(BROKER.broker_addrs), "z1", True)
    route = TopicRoute([QUEUES], [broker], {"127.0.0.1:10911": ["127.0.0.1:9", "127.0.0.1:10"]})
    route.order_topic_conf = "broker-a:4;broker-b:8"
    assert encode_route(route, standard=True) == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911","1":"127.0.0.1:20911"},'
        b'"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":true,"zoneName":"z1"}],'
        b'"filterServerTable":{"127.0.0.1:10911":["127.0.0.1:9","127.0.0.1:10"]},'
        b'"orderTopicConf":"broker-a:4;broker-b:8","queueDatas":[{"brokerName":"broker-a","perm":6,'
        b'"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )


@pytest.mark.parametrize(
    ("standard", "name", "keys"),
    [(True, rb"\u00E9\/\u20AC", b'{"0":1,"2":0}'), (False, "é/€".encode(), b"{0:1,2:0}")],
    ids=["standard", "legacy"],
)
def test_names_beyond_ascii_and_queue_mappings(standard: bool, name: bytes, keys: bytes) -> None:
    """N7: the standard shape escapes what is not ASCII, and slashes; mappings follow the shape."""
    mapping = TopicQueueMappingInfo("é/€", "broker-a", 8, 5, scope="__global__", curr_id_map={2: 0, 0: 1})
    route = TopicRoute([], [], topic_queue_mapping_by_broker={"broker-a": mapping})
    body = encode_route(route, standard=standard)
    assert b'"topic":"' + name + b'"' in body
    assert b'"currIdMap":' + keys in body


def test_an_empty_route() -> None:
    """N7: what a zone without brokers gets."""
    body = b'{"brokerDatas":[],"filterServerTable":{},"queueDatas":[]}'
    assert encode_route(TopicRoute([], []), standard=True) == body
    assert encode_route(TopicRoute([], []), standard=False) == body


def test_cluster_information_has_the_older_shape() -> None:
    """N9: recorded from Apache's name server."""
    assert encode_cluster_info({}, {}) == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
    brokers = {"broker-a": BrokerData("DefaultCluster", "broker-a", {0: "127.0.0.1:10911"})}
    assert encode_cluster_info(brokers, {"DefaultCluster": {"broker-a"}}) == (
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"127.0.0.1:10911"},"brokerName":"broker-a",'
        b'"cluster":"DefaultCluster","enableActingMaster":false}},"clusterAddrTable":{"DefaultCluster":['
        b'"broker-a"]}}'
    )


def test_member_groups_have_the_older_shape() -> None:
    """N9: recorded from Apache's name server."""
    assert encode_member_group("DefaultCluster", "zz", {}) == (
        b'{"brokerMemberGroup":{"brokerAddrs":{},"brokerName":"zz","cluster":"DefaultCluster"}}'
    )
    members = encode_member_group("DefaultCluster", "broker-a", BROKER.broker_addrs)
    assert members == (
        b'{"brokerMemberGroup":{"brokerAddrs":{0:"127.0.0.1:10911",1:"127.0.0.1:20911"},'
        b'"brokerName":"broker-a","cluster":"DefaultCluster"}}'
    )
