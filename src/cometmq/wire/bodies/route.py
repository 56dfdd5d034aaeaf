"""Routes and cluster information as JSON, in the older shape and in the standard one.

The older shape has bare numbers as keys (`{0:"host:port"}`); clients before 4.9.4 and the administration
tools read it. The standard shape quotes them, sorts them, and escapes slashes and everything beyond ASCII.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cometmq.model.route import BrokerData, QueueData, Takeover, TopicRoute
from cometmq.model.topic import TopicQueueMappingInfo
from cometmq.wire.bodies.json_body import without_nones
from cometmq.wire.json import fastjson


def encode_route(route: TopicRoute, *, standard: bool) -> bytes:
    """A topic's route."""
    mapping = route.topic_queue_mapping_by_broker
    members = {
        "brokerDatas": [_broker(broker) for broker in route.broker_datas],
        "filterServerTable": dict(sorted(route.filter_server_table.items())),
        "orderTopicConf": route.order_topic_conf,
        "queueDatas": [_queues(queues) for queues in route.queue_datas],
        "topicQueueMappingByBroker": None
        if mapping is None
        else {name: _mapping(info) for name, info in sorted(mapping.items())},
    }
    return fastjson.dumps(without_nones(members), browser_compatible=standard)


def encode_topic_queues(queues: QueueData) -> bytes:
    """What a broker tells of one topic: a route that has only its queues."""
    return encode_route(TopicRoute([queues], []), standard=False)


def encode_cluster_info(
    brokers: Mapping[str, BrokerData], clusters: Mapping[str, set[str]], takeovers: Sequence[Takeover] = ()
) -> bytes:
    """All brokers and clusters; always in the older shape. Without takeovers it is as Apache writes it."""
    members: dict[str, Any] = {
        "brokerAddrTable": {name: _broker(brokers[name]) for name in sorted(brokers)},
        "clusterAddrTable": {name: sorted(clusters[name]) for name in sorted(clusters)},
    }
    if takeovers:
        members["takeovers"] = [msgspec.to_builtins(each) for each in takeovers]
    return fastjson.dumps(members)


def encode_member_group(cluster: str, broker_name: str, addresses: Mapping[int, str]) -> bytes:
    """The members of one broker name; always in the older shape."""
    group = {
        "brokerAddrs": dict(sorted(addresses.items())),
        "brokerName": broker_name,
        "cluster": cluster,
    }
    return fastjson.dumps({"brokerMemberGroup": group})


def _broker(broker: BrokerData) -> dict[str, Any]:
    members = msgspec.structs.asdict(broker)
    members["broker_addrs"] = dict(sorted(broker.broker_addrs.items()))
    return _renamed(broker, members)


def _queues(queues: QueueData) -> dict[str, Any]:
    return _renamed(queues, msgspec.structs.asdict(queues))


def _mapping(info: TopicQueueMappingInfo) -> dict[str, Any]:
    members = msgspec.structs.asdict(info)
    members["curr_id_map"] = None if info.curr_id_map is None else dict(sorted(info.curr_id_map.items()))
    return _renamed(info, members)


def _renamed(value: msgspec.Struct, members: dict[str, Any]) -> dict[str, Any]:
    names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
    return without_nones({wire_name: members[name] for name, wire_name in names})
