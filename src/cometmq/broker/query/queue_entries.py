"""The entries of a consume queue as an administrator reads them.

Rules kept here: at most `MOST_ENTRIES` are shown at once; who wants more asks again from the next index.
"""

from __future__ import annotations

from typing import Final

from cometmq.broker.groups.bodies import subscription_members
from cometmq.broker.groups.online import Clients
from cometmq.broker.pull.sql_filters import ConsumerFilters
from cometmq.store.queue.consume_queue import ConsumeQueue
from cometmq.store.queue.extension import is_ext_address
from cometmq.store.queue.files import Unit
from cometmq.wire.json import fastjson
from cometmq.wire.json.pretty import dumps_table

MOST_ENTRIES: Final = 10_000


def read_entries(queue: ConsumeQueue, index: int, count: int) -> list[dict[str, object]]:
    """The entries from an index on; fewer than asked for at the end of the queue."""
    entries: list[dict[str, object]] = []
    most = min(count, MOST_ENTRIES)
    while len(entries) < most:
        units = list(queue.units(index + len(entries), most - len(entries)))
        if not units:
            break
        entries += [_entry(queue, unit) for unit in units]
    return entries


def _entry(queue: ConsumeQueue, unit: Unit) -> dict[str, object]:
    physical_offset, size, tags_code = unit
    members: dict[str, object] = {
        "eval": False,
        "physicOffset": physical_offset,
        "physicSize": size,
        "tagsCode": tags_code,
    }
    if is_ext_address(tags_code):
        ext = None if queue.ext is None else queue.ext.get(tags_code)
        if ext is None:
            members["msg"] = f"Cq extend not exist!addr: {tags_code}"
        else:
            members["extendDataJson"] = fastjson.dumps(
                {
                    "bitMapSize": len(ext.filter_bits),
                    "msgStoreTime": ext.store_time_ms,
                    "tagsCode": ext.tags_code,
                }
            ).decode()
    return members


def describe_group(clients: Clients, filters: ConsumerFilters, group: str, topic: str) -> dict[str, object]:
    """The subscription and the filter of a group for the topic of the queue."""
    members = clients.consumers.get(group)
    subscription = None if members is None else members.subscriptions.get(topic)
    if subscription is None:
        return {"filterData": f"{group}@{topic} is not online!"}
    registered = filters.get(topic, group)
    return {
        "filterData": "null" if registered is None else dumps_table(registered.data).decode(),
        "subscriptionData": subscription_members(subscription),
    }
