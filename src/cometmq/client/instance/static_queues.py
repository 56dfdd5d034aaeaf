"""The queues of static topics: logical ones, and the brokers that have them now.

Rules kept here: a logical queue belongs to a made-up broker name of its scope, so that it stays the same
queue when its data moves; of several brokers that claim one, the one with the highest epoch has it.
"""

from __future__ import annotations

from typing import Final

from cometmq.model.queue import MessageQueue
from cometmq.model.route import TopicRoute
from cometmq.model.topic import TopicQueueMappingInfo

LOGICAL_BROKER_PREFIX: Final = "__syslo__"
NO_BROKER: Final = "__syslo__none__"
"""Stands for the broker of a logical queue that nobody claims."""
_GLOBAL_SCOPE: Final = "__global__"


def logical_broker_name(scope: str | None) -> str:
    return LOGICAL_BROKER_PREFIX + (scope or _GLOBAL_SCOPE)


def static_queues(topic: str, route: TopicRoute) -> dict[MessageQueue, str] | None:
    """The logical queues of a topic with the broker name of each; None for an ordinary topic."""
    mappings = route.topic_queue_mapping_by_broker
    if not mappings:
        return None
    scopes: dict[str, list[tuple[str, TopicQueueMappingInfo]]] = {}
    for broker_name, info in mappings.items():
        scopes.setdefault(logical_broker_name(info.scope), []).append((broker_name, info))
    brokers: dict[MessageQueue, str] = {}
    for logical_name, claims in scopes.items():
        total = max(info.total_queues for _, info in claims)
        owners = dict.fromkeys(range(total), NO_BROKER)
        for broker_name, info in sorted(claims, key=lambda claim: claim[1].epoch):
            owners.update(dict.fromkeys(filter(owners.__contains__, info.curr_id_map or {}), broker_name))
        brokers |= {MessageQueue(topic, logical_name, number): name for number, name in owners.items()}
    return brokers
