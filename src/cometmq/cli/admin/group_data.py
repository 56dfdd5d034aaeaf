"""Consumer groups as commands show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from cometmq.model.errors import NotFoundError

if TYPE_CHECKING:
    from cometmq.client.admin.admin import Admin
    from cometmq.client.admin.results import GroupConnection
    from cometmq.model.queue import MessageQueue
    from cometmq.model.subscription import SubscriptionGroupConfig


class GroupLine(msgspec.Struct, rename="camel"):
    """A group, as the brokers that know it have it set up."""

    group: str
    enabled: bool
    broadcast: bool
    orderly: bool
    max_retries: int
    brokers: list[str]
    system: bool


class GroupProgress(msgspec.Struct, rename="camel"):
    """How far a group is, all its queues together."""

    group: str
    members: int
    topics: list[str]
    lag: int
    last_consumed_timestamp: int


class QueueProgressLine(msgspec.Struct, rename="camel"):
    """How far a group is in one queue."""

    topic: str
    broker_name: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    lag: int
    last_consumed_timestamp: int
    client_id: str | None = None
    """The member that reads the queue, as far as known."""


class MemberLine(msgspec.Struct, rename="camel"):
    """A member of a group."""

    client_id: str
    address: str
    language: str
    version: str
    brokers: list[str]
    queues: list[str] | None = None
    subscriptions: dict[str, str] | None = None
    """By topic; None if the member does not say."""


class GroupMembers(msgspec.Struct, rename="camel"):
    """Who is in a group, and what it reads."""

    group: str
    consume_type: str
    message_model: str
    members: list[MemberLine]
    subscriptions: dict[str, str]
    difference: str | None = None


async def group_lines(admin: Admin, cluster: str | None) -> list[GroupLine]:
    """All groups that brokers have, by name."""
    from cometmq.client.admin.admin import for_each
    from cometmq.client.names import is_system_group

    masters = await admin.masters(cluster)
    tables = await for_each(masters, lambda name: admin.groups(masters[name]))
    found: dict[str, GroupLine] = {}
    for broker_name, table in tables.items():
        for group, config in table.items():
            line = found.get(group)
            if line is None:
                line = found[group] = _line(config, system=is_system_group(group))
            line.brokers.append(broker_name)
    return sorted(found.values(), key=lambda line: line.group)


def _line(config: SubscriptionGroupConfig, *, system: bool) -> GroupLine:
    return GroupLine(
        config.group_name,
        config.consume_enable,
        config.consume_broadcast_enable,
        config.consume_message_orderly,
        config.retry_max_times,
        [],
        system,
    )


async def check_group_exists(admin: Admin, group: str) -> None:
    """Refuse a group that no broker knows."""
    if all(line.group != group for line in await group_lines(admin, None)):
        raise NotFoundError(f"there is no group {group}; see: cometmq group list")


async def connections(admin: Admin, group: str) -> dict[str, GroupConnection]:
    """The members of a group at each master, by broker name; brokers without any are left out."""
    from cometmq.client.admin.admin import for_each

    masters = await admin.masters()
    found = await for_each(masters, lambda name: admin.group_connection(masters[name], group))
    return {name: each for name, each in found.items() if each is not None}


async def members_of(admin: Admin, group: str) -> GroupMembers:
    """Who is in a group, each with what it says itself that it reads."""
    from cometmq.model.errors import CometError
    from cometmq.wire.codes import version_name

    at = await connections(admin, group)
    masters = await admin.masters()
    members: dict[str, MemberLine] = {}
    whole = GroupMembers(group, "", "", [], {})
    for name, connection in at.items():
        whole.consume_type, whole.message_model = connection.consume_type, connection.message_model
        whole.difference = whole.difference or connection.difference
        for topic, each in sorted(connection.subscription_table.items()):
            whole.subscriptions[topic] = each.sub_string
        for member in connection.connection_set:
            version = version_name(max(member.version, 0))
            line = MemberLine(member.client_id, member.client_addr, member.language, version, [])
            members.setdefault(member.client_id, line).brokers.append(name)
    for client_id, line in members.items():
        try:
            info = await admin.member_info(masters[line.brokers[0]], group, client_id)
        except CometError:  # an old client, or one that is just leaving
            continue
        line.queues = [str(queue) for queue in info.queues]
        line.subscriptions = {each.topic: each.sub_string for each in info.subscription_set}
    whole.members = sorted(members.values(), key=lambda line: line.client_id)
    return whole


async def queue_progress(admin: Admin, group: str, topic: str | None) -> list[QueueProgressLine]:
    """How far a group is in each queue."""
    progress = await admin.consumer_progress(group, topic)
    owners: dict[str, str] = {}
    if progress:
        for member in (await members_of(admin, group)).members:
            owners |= dict.fromkeys(member.queues or (), member.client_id)
    return [
        QueueProgressLine(
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            each.broker_offset,
            each.consumer_offset,
            each.lag,
            each.last_timestamp,
            owners.get(str(queue)),
        )
        for queue, each in progress.items()
    ]


async def all_progress(admin: Admin, cluster: str | None) -> list[GroupProgress]:
    """How far all groups are that have read something."""
    from cometmq.client.admin.admin import for_each

    masters = await admin.masters(cluster)
    tables = await for_each(masters, lambda name: admin.broker_progress(masters[name]))
    merged: dict[str, GroupProgress] = {}
    for table in tables.values():
        for group, queues in table.items():
            if not queues:
                continue
            line = merged.setdefault(group, GroupProgress(group, 0, [], 0, 0))
            line.lag += sum(each.lag for each in queues.values())
            line.topics = sorted({*line.topics, *(queue.topic for queue in queues)})
            last = max(each.last_timestamp for each in queues.values())
            line.last_consumed_timestamp = max(line.last_consumed_timestamp, last)
    counts = await for_each(merged, lambda group: member_count(admin, group))
    for group, count in counts.items():
        merged[group].members = count
    return sorted(merged.values(), key=lambda line: (-line.lag, line.group))


async def member_count(admin: Admin, group: str) -> int:
    """How many different clients of a group are connected."""
    at = await connections(admin, group)
    return len({member.client_id for each in at.values() for member in each.connection_set})


async def reset_plan(
    admin: Admin, group: str, topic: str, timestamp_ms: int
) -> dict[MessageQueue, tuple[int | None, int]]:
    """For each queue, where the group is and where it would go on; -1 stands for the end, 0 for the start."""
    from cometmq.client.admin.admin import for_each

    async def places(queue: MessageQueue) -> tuple[int | None, int]:
        before = await admin.consumer_offset(group, queue)
        if timestamp_ms < 0:
            return before, await admin.max_offset(queue)
        return before, await admin.search_offset(queue, timestamp_ms)

    return await for_each(await admin.queues(topic), places)
