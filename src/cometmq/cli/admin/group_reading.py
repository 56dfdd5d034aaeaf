"""How a group reads a topic: `cometmq group permission`, `mode` and `time-span`."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer

from cometmq.cli.admin.group_data import check_group_exists
from cometmq.cli.admin.group_offsets import Group, Topic
from cometmq.cli.common.connect import NO_LINK, AsJson, Link, Yes, ask
from cometmq.cli.common.output import Column, UsageError, confirm, duration_text, listed, time_text, yes_or_no

if TYPE_CHECKING:
    from cometmq.client.admin.admin import Admin


class Mode(StrEnum):
    """How a group gets messages."""

    PULL = "pull"
    POP = "pop"


class PermissionLine(msgspec.Struct, rename="camel"):
    """Whether a group may read a topic on one broker."""

    broker_name: Annotated[str, Column("broker")]
    readable: Annotated[bool, Column("readable", yes_or_no)]


class ModeLine(msgspec.Struct, rename="camel"):
    """How a group gets the messages of a topic from one broker."""

    broker_name: Annotated[str, Column("broker")]
    mode: Annotated[str, Column("mode")]
    pop_share_queue_num: Annotated[int, Column("shared by")]


class TimeSpanLine(msgspec.Struct, rename="camel"):
    """The store times of the messages in a queue, as a group sees them."""

    broker_name: Annotated[str, Column("broker")]
    queue_id: Annotated[int, Column("queue")]
    min_timestamp: Annotated[int, Column("oldest (UTC)", time_text)]
    max_timestamp: Annotated[int, Column("newest (UTC)", time_text)]
    consume_timestamp: Annotated[int, Column("consumed (UTC)", time_text)]
    delay_ms: Annotated[int, Column("behind", duration_text, right=True)]


def permission(
    group: Group,
    topic: Topic,
    is_allowed: Annotated[bool, typer.Option("--allow", help="Allow the group to read the topic.")] = False,
    is_forbidden: Annotated[
        bool, typer.Option("--forbid", help="Forbid the group to read the topic.")
    ] = False,
    yes: Yes = False,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Show or change whether a group may read a topic.

    Examples:
      cometmq group permission billing --topic orders -n 127.0.0.1:9876
      cometmq group permission billing --topic orders --forbid
      cometmq group permission billing --topic orders --allow
    """
    if is_allowed and is_forbidden:
        raise UsageError("say --allow or --forbid, not both")
    readable = is_allowed if is_allowed or is_forbidden else None

    async def work(admin: Admin) -> list[PermissionLine]:
        found = await admin.group_permission(group, topic, readable=readable)
        return [PermissionLine(*entry) for entry in found.items()]

    ask(link, lambda admin: check_group_exists(admin, group))
    if is_forbidden:
        confirm(f"Have members of {group} get no more messages of {topic}?", yes=yes)
    found = ask(link, work)
    listed({"group": group, "topic": topic, "brokers": found}, PermissionLine, found, as_json=as_json)


def mode(
    group: Group,
    topic: Topic,
    wanted: Annotated[Mode | None, typer.Option("--set", help="pull or pop.", metavar="MODE")] = None,
    share: Annotated[
        int,
        typer.Option(
            "--share", help="Members that pop a queue at the same time; 0 are all.", metavar="N", min=0
        ),
    ] = 0,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Show or change whether a group pulls or pops a topic.

    Examples:
      cometmq group mode billing --topic orders -n 127.0.0.1:9876
      cometmq group mode billing --topic orders --set pop --share 2
      cometmq group mode billing --topic orders --set pull

    It holds for members whose queues brokers assign, such as Java's push consumers with
    clientRebalance=false.
    """
    if share and wanted is not Mode.POP:
        raise UsageError("--share goes with --set pop")

    async def work(admin: Admin) -> list[ModeLine]:
        if wanted is not None:
            await check_group_exists(admin, group)
            code: Literal["PULL", "POP"] = "POP" if wanted is Mode.POP else "PULL"
            await admin.set_request_mode(group, topic, code, pop_share_queues=share)
        masters = await admin.masters()
        names = sorted({queue.broker_name for queue in await admin.queues(topic)} & masters.keys())
        lines = []
        for name in names:
            modes = {
                (each.consumer_group, each.topic): each for each in await admin.request_modes(masters[name])
            }
            found = modes.get((group, topic))
            lines.append(
                ModeLine(name, found.mode if found else "PULL", found.pop_share_queue_num if found else 0)
            )
        return lines

    found = ask(link, work)
    listed({"group": group, "topic": topic, "brokers": found}, ModeLine, found, as_json=as_json)


def time_span(group: Group, topic: Topic, link: Link = NO_LINK, as_json: AsJson = False) -> None:
    """Show how far behind a group is in time, queue by queue.

    Examples:
      cometmq group time-span billing --topic orders -n 127.0.0.1:9876
      cometmq group time-span billing --topic orders --json | jq .queues
    """

    async def work(admin: Admin) -> list[TimeSpanLine]:
        await check_group_exists(admin, group)
        return [
            TimeSpanLine(
                queue.broker_name,
                queue.queue_id,
                each.min_time_stamp,
                each.max_time_stamp,
                each.consume_time_stamp,
                each.delay_time,
            )
            for queue, each in (await admin.consume_time_spans(group, topic)).items()
        ]

    found = ask(link, work)
    listed({"group": group, "topic": topic, "queues": found}, TimeSpanLine, found, as_json=as_json)
