"""Routes of topics: built from the tables, and cached as encoded answers.

Rules kept here:
- The tables are only read; callers may change a route that they get.
- A replica acts as master only where its topic is read-only already, so that no client writes to it.
- An answer is encoded at first use, once for each of its two forms, and kept until a part of it changes. Only
  existing topics are cached.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from cometmq.model.names import SYNC_BROKER_MEMBER_PREFIX
from cometmq.model.route import MASTER_ID, BrokerData, QueueData, TopicRoute
from cometmq.model.topic import PERM_WRITE
from cometmq.namesrv.tables import RouteTables
from cometmq.remoting.handler import Answer
from cometmq.wire.bodies.route import encode_route


def pick_up_route(tables: RouteTables, topic: str, *, acting_master: bool) -> TopicRoute | None:
    """Returns queues and brokers of a topic, or None without a route."""
    queues = tables.topics.get(topic)
    if not queues:
        return None
    brokers = [tables.brokers[name] for name in queues if name in tables.brokers]
    if not brokers:
        return None
    route = TopicRoute(
        list(queues.values()),
        [msgspec.structs.replace(broker, broker_addrs=dict(broker.broker_addrs)) for broker in brokers],
        _filter_servers(tables, brokers),
        topic_queue_mapping_by_broker=tables.mappings.get(topic),
    )
    if acting_master and not topic.startswith(SYNC_BROKER_MEMBER_PREFIX):
        _let_replicas_act(route, queues)
    return route


def _filter_servers(tables: RouteTables, brokers: list[BrokerData]) -> dict[str, list[str]]:
    if not tables.filter_servers:
        return {}
    return {
        address: servers
        for broker in brokers
        for address in broker.broker_addrs.values()
        if (servers := tables.filter_servers.get((broker.cluster, address))) is not None
    }


def _let_replicas_act(route: TopicRoute, queues: dict[str, QueueData]) -> None:
    """Show the first replica of a group without master as its master."""
    for broker in route.broker_datas:
        addresses = broker.broker_addrs
        if MASTER_ID in addresses or not addresses or not broker.enable_acting_master:
            continue
        if not queues[broker.broker_name].perm & PERM_WRITE:
            addresses[MASTER_ID] = addresses.pop(min(addresses))


def only_zone(route: TopicRoute, zone: str) -> TopicRoute:
    """Returns the part of a route in a zone, or whose master is down."""
    brokers = [
        broker
        for broker in route.broker_datas
        if MASTER_ID not in broker.broker_addrs or (broker.zone_name or "").lower() == zone.lower()
    ]
    names = {broker.broker_name for broker in brokers}
    addresses = {address for broker in brokers for address in broker.broker_addrs.values()}
    return msgspec.structs.replace(
        route,
        broker_datas=brokers,
        queue_datas=[queues for queues in route.queue_datas if queues.broker_name in names],
        filter_server_table={a: s for a, s in route.filter_server_table.items() if a in addresses},
    )


FindRoute = Callable[[str], TopicRoute | None]


class RouteAnswers:
    """The cache of encoded routes; the tables report changes to it."""

    def __init__(self) -> None:
        self._standard: dict[str, Answer] = {}
        self._legacy: dict[str, Answer] = {}

    def __len__(self) -> int:
        return len(self._standard.keys() | self._legacy.keys())

    def topic_changed(self, topic: str) -> None:
        self._standard.pop(topic, None)
        self._legacy.pop(topic, None)

    def brokers_changed(self) -> None:
        self._standard.clear()
        self._legacy.clear()

    def get(self, topic: str, standard: bool, find: FindRoute) -> Answer | None:
        """Returns the answer for a topic, or None without a route."""
        answers = self._standard if standard else self._legacy
        answer = answers.get(topic)
        if answer is None:
            route = find(topic)
            if route is not None:
                answer = answers[topic] = Answer(body=encode_route(route, standard=standard))
        return answer
