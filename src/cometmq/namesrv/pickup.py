"""Picks a topic's route up from the tables, as one client is to see it.

Rules kept here: the tables are only read, and what is handed out may be changed by the caller. A replica
stands in for its master only where its topic is read-only already, so that no client writes to it.
"""

from __future__ import annotations

import msgspec

from cometmq.model.names import SYNC_BROKER_MEMBER_PREFIX
from cometmq.model.route import MASTER_ID, BrokerData, QueueData, TopicRoute
from cometmq.model.topic import PERM_WRITE
from cometmq.namesrv.tables import RouteTables


def pick_up_route(tables: RouteTables, topic: str, *, acting_master: bool) -> TopicRoute | None:
    """Queues and brokers of a topic, or None if there is no way to it."""
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
    """The part of a route that lies in a zone, or whose master is down."""
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
