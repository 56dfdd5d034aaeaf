"""Topics as commands show and change them.

Rules kept here: queues and permissions are those that name servers tell clients; the rest is what the broker
itself has noted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cometmq.cli.common.output import UsageError
from cometmq.model.errors import NotFoundError

if TYPE_CHECKING:
    from cometmq.client.admin.admin import Admin

READ: Final = 4
WRITE: Final = 2
_PERMISSIONS: Final = {"rw": READ | WRITE, "r": READ, "w": WRITE, "none": 0}
_MESSAGE_TYPE: Final = "message.type"


class TopicLine(msgspec.Struct, rename="camel"):
    """A topic on all its brokers together."""

    topic: str
    queues: int
    perm: int
    message_type: str
    brokers: list[str]
    system: bool
    """Nobody made it on purpose: it serves the system, retries or dead letters."""


class TopicPlace(msgspec.Struct, rename="camel"):
    """A topic on one broker."""

    broker_name: str
    cluster: str
    read_queues: int
    write_queues: int
    perm: int
    order: bool
    attributes: dict[str, str]
    addresses: dict[int, str]


class TopicView(msgspec.Struct):
    """All about a topic."""

    topic: str
    brokers: list[TopicPlace]
    groups: list[str] = []


class HiddenQueue(msgspec.Struct, rename="camel"):
    """A queue that consumers would not have any more, with messages that somebody has not read."""

    broker_name: str
    queue_id: int
    messages: int
    """What it holds."""
    unread: dict[str, int]
    """By group, how many it has not read; empty if no group reads the topic."""


class TopicChange(TopicView):
    """A topic as it is now, and what that hides."""

    hidden: list[HiddenQueue] = []


class QueueLine(msgspec.Struct, rename="camel"):
    """One queue."""

    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int
    messages: int
    last_store_timestamp: int


def parse_permission(text: str) -> int:
    found = _PERMISSIONS.get(text.lower())
    if found is None:
        raise UsageError(f"--perm {text!r} is not one of rw, r, w, none")
    return found


def permission_text(perm: int) -> str:
    return ("r" if perm & READ else "-") + ("w" if perm & WRITE else "-")


def is_of_users(topic: str, of_brokers: Collection[str]) -> bool:
    """Whether somebody made a topic on purpose; every broker has topics by its own and its cluster's name."""
    from cometmq.client.names import DLQ_PREFIX, REPLY_SUFFIX, RETRY_PREFIX, is_system_topic

    return not (
        is_system_topic(topic)
        or topic in of_brokers
        or topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
        or topic.endswith(REPLY_SUFFIX)
    )


async def topic_lines(admin: Admin, cluster: str | None) -> list[TopicLine]:
    """All topics that brokers have, by name."""
    from cometmq.client.admin.admin import for_each

    masters = await admin.masters(cluster)
    info = await admin.cluster_info()
    of_brokers = {*info.cluster_addr_table, *info.broker_addr_table}
    tables = await for_each(masters, lambda name: admin.topic_configs(masters[name]))
    found: dict[str, TopicLine] = {}
    for broker_name, table in tables.items():
        for topic, config in table.items():
            kind = (config.attributes or {}).get(_MESSAGE_TYPE, "")
            line = found.setdefault(
                topic, TopicLine(topic, 0, 0, kind, [], not is_of_users(topic, of_brokers))
            )
            line.queues += config.write_queue_nums
            line.perm |= config.perm
            line.brokers.append(broker_name)
    return sorted(found.values(), key=lambda line: line.topic)


async def places_of(admin: Admin, topic: str) -> list[TopicPlace]:
    """A topic on each of its brokers."""
    route = await admin.topic_route(topic)
    if route is None:
        raise NotFoundError(f"there is no topic {topic}; see: cometmq topic list")
    brokers = {each.broker_name: each for each in route.broker_datas}
    places: list[TopicPlace] = []
    for queues in route.queue_datas:
        broker = brokers[queues.broker_name]
        address = broker.broker_addrs[min(broker.broker_addrs)]
        config = await admin.topic_config(address, topic)
        places.append(
            TopicPlace(
                queues.broker_name,
                broker.cluster,
                queues.read_queue_nums,
                queues.write_queue_nums,
                queues.perm,
                config is not None and config.order,
                (config.attributes if config is not None else None) or {},
                dict(sorted(broker.broker_addrs.items())),
            )
        )
    return places


async def queue_lines(admin: Admin, topic: str) -> list[QueueLine]:
    """What each queue of a topic holds."""
    return [
        QueueLine(
            queue.broker_name,
            queue.queue_id,
            each.min_offset,
            each.max_offset,
            each.max_offset - each.min_offset,
            each.last_update_timestamp,
        )
        for queue, each in (await admin.topic_status(topic)).items()
    ]


async def change_topic(
    admin: Admin, topic: str, changes: Mapping[str, Any], attributes: str | None, broker: str | None
) -> list[TopicPlace]:
    """Change a topic on its brokers, or on the one that is named, where it is made if it is not there."""
    from cometmq.model.topic import TopicConfig

    if not changes and attributes is None:
        raise UsageError("nothing is to be changed; say --queues, --perm, --order or --attributes")
    known = {each.broker_name: each for each in await places_of(admin, topic)}
    masters = await admin.masters()
    names = list(known) if broker is None else [broker]
    for name in names:
        if name not in masters:
            raise NotFoundError(f"there is no master of broker {name!r}; known: {', '.join(masters)}")
        before = await admin.topic_config(masters[name], topic) or TopicConfig(topic, 8, 8)
        changed = msgspec.structs.replace(before, **changes)
        if "write_queue_nums" in changes and changed.write_queue_nums > changed.read_queue_nums:
            sent_to, read = changed.write_queue_nums, changed.read_queue_nums
            raise UsageError(
                f"{topic} on {name} would be sent to in {sent_to} queues and be read in {read}; "
                f"say --queues {sent_to}, too, or fewer --write-queues"
            )
        await admin.put_topic(masters[name], changed, attributes=attributes)
        await admin.await_topic(changed, name)
    return await places_of(admin, topic)
