"""Consumer groups as `cometmq group` shows them: settings, members, progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from cometmq.cli.common.output import Column, joined, time_text, yes_or_no
from cometmq.model.errors import CometError, NotFoundError
from cometmq.model.queue import total_lag

if TYPE_CHECKING:
    from cometmq.client.admin.admin import Admin
    from cometmq.client.admin.results import GroupConnection
    from cometmq.model.queue import MessageQueue


class GroupLine(msgspec.Struct, rename="camel"):
    """The settings of a group, and the brokers that know it."""

    group: Annotated[str, Column("group")]
    enabled: Annotated[bool, Column("enabled", yes_or_no)]
    broadcast: Annotated[bool, Column("broadcast", yes_or_no)]
    orderly: Annotated[bool, Column("orderly", yes_or_no)]
    max_retries: Annotated[int, Column("retries")]
    brokers: Annotated[list[str], Column("brokers", joined)]
    system: bool


class GroupProgress(msgspec.Struct, rename="camel"):
    """The lag of a group, all its queues together."""

    group: Annotated[str, Column("group")]
    members: Annotated[int, Column("members")]
    lag: Annotated[int | None, Column("lag")]
    """None as long as it has no offset."""
    last_consumed_timestamp: Annotated[int, Column("last consumed (UTC)", time_text)]
    topics: Annotated[list[str], Column("topics", joined)]


class QueueProgressLine(msgspec.Struct, rename="camel"):
    """The offset and the lag of a group in one queue."""

    topic: Annotated[str, Column("topic")]
    broker_name: Annotated[str, Column("broker")]
    queue_id: Annotated[int, Column("queue")]
    broker_offset: Annotated[int, Column("end")]
    consumer_offset: Annotated[int | None, Column("at")]
    lag: Annotated[int | None, Column("lag")]
    """None as long as the group has no offset in the queue."""
    last_consumed_timestamp: Annotated[int, Column("last consumed (UTC)", time_text)]
    client_id: Annotated[str | None, Column("read by")] = None


def _count(values: list[str] | None) -> int | None:
    return None if values is None else len(values)


def _subscriptions_text(found: dict[str, str] | None) -> str:
    return ", ".join(f"{topic} ({expression})" for topic, expression in sorted((found or {}).items()))


class MemberLine(msgspec.Struct, rename="camel"):
    """A member of a group."""

    client_id: Annotated[str, Column("member")]
    address: Annotated[str, Column("address")]
    language: Annotated[str, Column("language")]
    version: Annotated[str, Column("version")]
    brokers: list[str]
    queues: Annotated[list[str] | None, Column("queues", _count, right=True)] = None
    subscriptions: Annotated[dict[str, str] | None, Column("reads", _subscriptions_text)] = None
    """By topic; None if the member does not say."""


class GroupMembers(msgspec.Struct, rename="camel"):
    """The members and the subscriptions of a group."""

    group: str
    consume_type: str
    message_model: str
    members: list[MemberLine]
    subscriptions: dict[str, str]
    difference: str | None = None


class OffsetChange(msgspec.Struct, rename="camel"):
    """The offset of a group in one queue, before and after a reset."""

    topic: str
    broker_name: Annotated[str, Column("broker")]
    queue_id: Annotated[int, Column("queue")]
    before: Annotated[int | None, Column("before")]
    after: Annotated[int, Column("after")]


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
                line = found[group] = GroupLine(
                    config.group_name,
                    config.consume_enable,
                    config.consume_broadcast_enable,
                    config.consume_message_orderly,
                    config.retry_max_times,
                    [],
                    is_system_group(group),
                )
            line.brokers.append(broker_name)
    return sorted(found.values(), key=lambda line: line.group)


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
    """The members of a group, each with the subscriptions that it reports itself."""
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
    """The progress of a group, queue by queue."""
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
            each.consumer_offset if each.has_offset else None,
            each.lag,
            each.last_timestamp,
            owners.get(str(queue)),
        )
        for queue, each in progress.items()
    ]


async def all_progress(admin: Admin, cluster: str | None) -> list[GroupProgress]:
    """The progress of all groups that have committed offsets, the largest lag first."""
    from cometmq.client.admin.admin import for_each

    masters = await admin.masters(cluster)
    tables = await for_each(masters, lambda name: admin.broker_progress(masters[name]))
    merged: dict[str, GroupProgress] = {}
    for table in tables.values():
        for group, queues in table.items():
            if not queues:
                continue
            line = merged.setdefault(group, GroupProgress(group, 0, None, 0, []))
            line.lag = total_lag([line.lag, *(each.lag for each in queues.values())])
            line.topics = sorted({*line.topics, *(queue.topic for queue in queues)})
            last = max(each.last_timestamp for each in queues.values())
            line.last_consumed_timestamp = max(line.last_consumed_timestamp, last)
    counts = await for_each(merged, lambda group: member_count(admin, group))
    for group, count in counts.items():
        merged[group].members = count
    return sorted(merged.values(), key=lambda line: (-(line.lag or 0), line.group))


async def member_count(admin: Admin, group: str) -> int:
    """The number of different clients of a group."""
    at = await connections(admin, group)
    return len({member.client_id for each in at.values() for member in each.connection_set})


async def reset_plan(
    admin: Admin, group: str, topic: str, timestamp_ms: int
) -> dict[MessageQueue, OffsetChange]:
    """The offset change of a reset in each queue; a timestamp of -1 stands for the end, 0 for the start."""
    from cometmq.client.admin.admin import for_each

    async def change(queue: MessageQueue) -> OffsetChange:
        before = await admin.consumer_offset(group, queue)
        find = admin.max_offset(queue) if timestamp_ms < 0 else admin.search_offset(queue, timestamp_ms)
        return OffsetChange(topic, queue.broker_name, queue.queue_id, before, await find)

    return await for_each(await admin.queues(topic), change)
