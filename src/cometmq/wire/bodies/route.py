"""Routes and cluster info as JSON, in the older form and in the standard one.

The older form has bare numbers as keys (`{0:"host:port"}`); clients before 4.9.4 and the admin tools read it.
The standard form quotes them, sorts them, and escapes slashes and everything beyond ASCII.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cometmq.model.route import BrokerData, QueueData, Takeover, TopicRoute
from cometmq.model.topic import TopicQueueMappingInfo
from cometmq.wire.bodies.json_body import struct_members, without_nones
from cometmq.wire.json import fastjson


def encode_route(route: TopicRoute, *, standard: bool) -> bytes:
    mapping = route.topic_queue_mapping_by_broker
    members = {
        "brokerDatas": [_broker(broker) for broker in route.broker_datas],
        "filterServerTable": dict(sorted(route.filter_server_table.items())),
        "orderTopicConf": route.order_topic_conf,
        "queueDatas": [struct_members(queues) for queues in route.queue_datas],
        "topicQueueMappingByBroker": None
        if mapping is None
        else {name: _mapping(info) for name, info in sorted(mapping.items())},
    }
    return fastjson.dumps(without_nones(members), browser_compatible=standard)


def encode_topic_queues(queues: QueueData) -> bytes:
    """Returns the route of one topic as its broker announces it: with queues only."""
    return encode_route(TopicRoute([queues], []), standard=False)


def encode_cluster_info(
    brokers: Mapping[str, BrokerData], clusters: Mapping[str, set[str]], takeovers: Sequence[Takeover] = ()
) -> bytes:
    """Returns all brokers and clusters, always in the older form. Without takeovers it equals Apache's."""
    members: dict[str, Any] = {
        "brokerAddrTable": {name: _broker(brokers[name]) for name in sorted(brokers)},
        "clusterAddrTable": {name: sorted(clusters[name]) for name in sorted(clusters)},
    }
    if takeovers:
        members["takeovers"] = [msgspec.to_builtins(each) for each in takeovers]
    return fastjson.dumps(members)


def encode_member_group(cluster: str, broker_name: str, addresses: Mapping[int, str]) -> bytes:
    """Returns the members of one broker name, always in the older form."""
    group = {
        "brokerAddrs": dict(sorted(addresses.items())),
        "brokerName": broker_name,
        "cluster": cluster,
    }
    return fastjson.dumps({"brokerMemberGroup": group})


def _broker(broker: BrokerData) -> dict[str, Any]:
    return struct_members(broker) | {"brokerAddrs": dict(sorted(broker.broker_addrs.items()))}


def _mapping(info: TopicQueueMappingInfo) -> dict[str, Any]:
    members = struct_members(info)
    if info.curr_id_map is not None:
        members["currIdMap"] = dict(sorted(info.curr_id_map.items()))
    return members
