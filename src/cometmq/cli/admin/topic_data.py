"""Topics as `cometmq topic` shows and changes them.

Rules kept here:
- Queues and permissions are those that name servers tell clients; the rest is the broker's own setting.
- Messages in a queue that a topic no longer has are lost to every group that has not read them. They stay in
  the store until they expire, and are readable again when the topic gets its queues back.
- An order topic has its queues in the name servers' order configuration, too; both change together, and other
  changes leave the mark as it is.
- A group has read what it has committed, and nothing where it has committed nothing. If no group reads the
  topic, everything is unread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from cometmq.cli.common.output import Column, UsageError, joined, pairs_text, time_text, yes_or_no
from cometmq.model.errors import CometError, NotFoundError
from cometmq.model.topic import PERM_READ, PERM_WRITE, TopicConfig

if TYPE_CHECKING:
    from cometmq.client.admin.admin import Admin
    from cometmq.model.queue import MessageQueue
    from cometmq.model.route import TopicRoute

_PERMISSIONS: Final = {"rw": PERM_READ | PERM_WRITE, "r": PERM_READ, "w": PERM_WRITE, "none": 0}
_MESSAGE_TYPE: Final = "message.type"


def permission_text(perm: int) -> str:
    return ("r" if perm & PERM_READ else "-") + ("w" if perm & PERM_WRITE else "-")


class TopicLine(msgspec.Struct, rename="camel"):
    """A topic, all brokers together."""

    topic: Annotated[str, Column("topic")]
    queues: Annotated[int, Column("queues")]
    perm: Annotated[int, Column("perm", permission_text)]
    message_type: Annotated[str, Column("type")]
    brokers: Annotated[list[str], Column("brokers", joined)]
    system: bool
    """It serves the system, retries or dead letters."""


class BrokerTopic(msgspec.Struct, rename="camel"):
    """A topic on one broker."""

    broker_name: Annotated[str, Column("broker")]
    cluster: Annotated[str, Column("cluster")]
    read_queues: Annotated[int, Column("read")]
    write_queues: Annotated[int, Column("write")]
    perm: Annotated[int, Column("perm", permission_text)]
    order: Annotated[bool, Column("order", yes_or_no)]
    attributes: Annotated[dict[str, str], Column("attributes", lambda found: pairs_text(found, ","))]
    addresses: Annotated[dict[int, str], Column("addresses", pairs_text)]


class TopicView(msgspec.Struct):
    """A topic and the groups that read it."""

    topic: str
    brokers: list[BrokerTopic]
    groups: list[str] = []


class HiddenQueue(msgspec.Struct, rename="camel"):
    """A queue with unread messages that a topic with fewer queues no longer has."""

    broker_name: str
    queue_id: int
    messages: int
    unread: dict[str, int]
    """Unread messages by group; empty if no group reads the topic."""


class TopicChange(TopicView):
    """A topic after a change, and the queues that the change hides."""

    hidden: list[HiddenQueue] = []


class QueueLine(msgspec.Struct, rename="camel"):
    """A queue of a topic."""

    broker_name: Annotated[str, Column("broker")]
    queue_id: Annotated[int, Column("queue")]
    min_offset: Annotated[int, Column("min")]
    max_offset: Annotated[int, Column("max")]
    messages: Annotated[int, Column("messages")]
    last_store_timestamp: Annotated[int, Column("last message (UTC)", time_text)]


def parse_permission(text: str) -> int:
    found = _PERMISSIONS.get(text.lower())
    if found is None:
        raise UsageError(f"--perm {text!r} is not one of rw, r, w, none")
    return found


def is_user_topic(topic: str, broker_topics: Collection[str]) -> bool:
    """Whether a user made a topic; every broker has topics of its own name and its cluster's name."""
    from cometmq.model.names import DLQ_PREFIX, REPLY_SUFFIX, RETRY_PREFIX, is_system_topic

    return not (
        is_system_topic(topic)
        or topic in broker_topics
        or topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
        or topic.endswith(REPLY_SUFFIX)
    )


async def topic_lines(admin: Admin, cluster: str | None) -> list[TopicLine]:
    """All topics that brokers have, by name."""
    from cometmq.client.admin.admin import for_each

    masters = await admin.masters(cluster)
    info = await admin.cluster_info()
    broker_topics = {*info.cluster_addr_table, *info.broker_addr_table}
    tables = await for_each(masters, lambda name: admin.topic_configs(masters[name]))
    found: dict[str, TopicLine] = {}
    for broker_name, table in tables.items():
        for topic, config in table.items():
            message_type = (config.attributes or {}).get(_MESSAGE_TYPE, "")
            line = found.setdefault(
                topic, TopicLine(topic, 0, 0, message_type, [], not is_user_topic(topic, broker_topics))
            )
            line.queues += config.write_queue_nums
            line.perm |= config.perm
            line.brokers.append(broker_name)
    return sorted(found.values(), key=lambda line: line.topic)


async def require_route(admin: Admin, topic: str) -> TopicRoute:
    """The route of a topic that has to exist."""
    route = await admin.topic_route(topic)
    if route is None:
        raise NotFoundError(f"there is no topic {topic}; see: cometmq topic list")
    return route


async def broker_topics_of(admin: Admin, topic: str) -> list[BrokerTopic]:
    """A topic on each of its brokers."""
    route = await require_route(admin, topic)
    brokers = {each.broker_name: each for each in route.broker_datas}
    found: list[BrokerTopic] = []
    for queues in route.queue_datas:
        broker = brokers[queues.broker_name]
        address = broker.broker_addrs[min(broker.broker_addrs)]
        config = await admin.topic_config(address, topic)
        found.append(
            BrokerTopic(
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
    return found


async def queue_lines(admin: Admin, topic: str) -> list[QueueLine]:
    """The queues of a topic with their offsets."""
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
) -> list[BrokerTopic]:
    """Change a topic on all its brokers, or on one, which gets the topic if it has none."""
    if not changes and attributes is None:
        raise UsageError("nothing is to be changed; say --queues, --perm, --order or --attributes")
    stored = await admin.order_config(topic)
    order, wanted = dict(stored), dict[str, TopicConfig]()
    known = {each.broker_name: each for each in await broker_topics_of(admin, topic)}
    masters = await admin.masters()
    names = list(known) if broker is None else [broker]
    for name in names:
        if name not in masters:
            raise NotFoundError(f"there is no master of broker {name!r}; known: {', '.join(masters)}")
        before = await admin.topic_config(masters[name], topic) or TopicConfig(
            topic, 8, 8, order=bool(stored)
        )
        changed = msgspec.structs.replace(before, **changes)
        if {"read_queue_nums", "write_queue_nums"} & changes.keys():
            check_queues(f"{topic} on {name}", changed.read_queue_nums, changed.write_queue_nums)
        if not changed.order:
            order.pop(name, None)
        elif "order" in changes or name in order or name not in known:
            order[name] = changed.write_queue_nums
        wanted[name] = changed
    if order and changes.get("order") is False:
        raise UsageError(
            f"{topic} stays an order topic on {', '.join(order)}, and all its brokers take that over; "
            "leave out --broker"
        )
    if "order" in changes or order != stored:
        await admin.put_order_config(topic, order)  # first: brokers take the mark from there
    for name, changed in wanted.items():
        await admin.put_topic(masters[name], changed, attributes=attributes)
        await admin.await_topic(changed, name)
    return await broker_topics_of(admin, topic)


def check_queues(topic: str, read: int, sent_to: int) -> None:
    """Refuse more queues for producers than for consumers: nobody would read the others."""
    if sent_to > read:
        raise UsageError(
            f"{topic} would be sent to in {sent_to} queues and be read in {read}; "
            f"say --queues {sent_to}, or fewer --write-queues"
        )


async def hidden_queues(admin: Admin, topic: str, queues: int, broker: str | None) -> list[HiddenQueue]:
    """The queues with unread messages that a topic loses if it has only this many, on all brokers or one."""
    status = await admin.topic_status(topic)
    gone = {
        queue: each
        for queue, each in status.items()
        if queue.queue_id >= queues and each.max_offset > each.min_offset
        if broker is None or queue.broker_name == broker
    }
    if not gone:
        return []
    groups = await admin.groups_of_topic(topic)
    read: dict[str, dict[MessageQueue, int]] = {}
    for group in groups:
        try:
            progress = await admin.consumer_progress(group, topic)
        except CometError:  # nothing is known of it, so nothing is read
            progress = {}
        read[group] = {queue: at.consumer_offset for queue, at in progress.items()}
    hidden = []
    for queue, each in gone.items():
        unread = {
            group: each.max_offset - max(offsets.get(queue, 0), each.min_offset)
            for group, offsets in read.items()
        }
        unread = {group: count for group, count in unread.items() if count > 0}
        if unread or not groups:
            messages = each.max_offset - each.min_offset
            hidden.append(HiddenQueue(queue.broker_name, queue.queue_id, messages, unread))
    return hidden
