"""Offsets of consumer groups: `cometmq group reset`, `skip` and `clone`.

Rules kept here: a change of offsets asks first, and shows each queue before and after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cometmq.cli.admin.group_data import (
    OffsetChange,
    QueueProgressLine,
    check_group_exists,
    group_lines,
    queue_progress,
    reset_plan,
)
from cometmq.cli.common.connect import NO_LINK, AsJson, Link, Yes, ask
from cometmq.cli.common.output import confirm, listed
from cometmq.cli.common.times import parse_time
from cometmq.model.errors import ClientError, NotFoundError

if TYPE_CHECKING:
    from cometmq.client.admin.admin import Admin
    from cometmq.model.queue import MessageQueue

Group = Annotated[str, typer.Argument(help="The consumer group.", metavar="GROUP")]
Topic = Annotated[str, typer.Option("--topic", help="The topic.", metavar="TOPIC")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show the changes.")]


def reset(
    group: Group,
    topic: Topic,
    to: Annotated[
        str, typer.Option("--to", help="earliest, latest, or a time (10m, 2025-01-31T12:00).", metavar="WHEN")
    ],
    dry_run: DryRun = False,
    yes: Yes = False,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Reset the offsets of a group in a topic.

    Examples:
      cometmq group reset billing --topic orders --to 2h  # two hours back
      cometmq group reset billing --topic orders --to earliest --dry-run
      cometmq group reset billing --topic orders --to 2025-01-31T12:00:00 --yes
    """
    timestamp_ms = {"earliest": 0, "latest": -1}.get(to)
    when = parse_time(to) if timestamp_ms is None else timestamp_ms
    _reset(link, group, topic, when, dry_run=dry_run, yes=yes, as_json=as_json)


def skip(
    group: Group,
    topic: Topic,
    dry_run: DryRun = False,
    yes: Yes = False,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Skip all waiting messages: set the offsets of a group to the end of a topic.

    Examples:
      cometmq group skip billing --topic orders -n 127.0.0.1:9876
      cometmq group skip billing --topic orders --dry-run
    """
    _reset(link, group, topic, -1, dry_run=dry_run, yes=yes, as_json=as_json)


def _reset(
    link: Link, group: str, topic: str, timestamp_ms: int, *, dry_run: bool, yes: bool, as_json: bool
) -> None:
    async def plan(admin: Admin) -> dict[MessageQueue, OffsetChange]:
        await check_group_exists(admin, group)
        return await reset_plan(admin, group, topic, timestamp_ms)

    planned = ask(link, plan)
    changes = list(planned.values())
    if not dry_run:
        moved = sum(each.after - (each.before or 0) for each in changes)
        change = f"{moved} messages forward" if moved >= 0 else f"{-moved} messages back"
        confirm(f"Set {group} in {len(planned)} queues of {topic}, {change} altogether?", yes=yes)
        for queue, offset in ask(link, lambda admin: admin.reset_offsets(group, topic, timestamp_ms)).items():
            planned[queue].after = offset
    document = {"group": group, "topic": topic, "done": not dry_run, "queues": changes}
    closing = "nothing was changed" if dry_run else f"{group} goes on there; members within a few seconds"
    listed(document, OffsetChange, changes, as_json=as_json, closing=closing)


def clone(
    source: Annotated[str, typer.Argument(help="The group whose offsets are copied.", metavar="FROM")],
    target: Annotated[str, typer.Argument(help="The group that gets them.", metavar="TO")],
    topic: Topic,
    yes: Yes = False,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Copy the offsets of one group in a topic to another group.

    Examples:
      cometmq group clone billing billing-v2 --topic orders -n 127.0.0.1:9876
      cometmq group clone billing billing-v2 --topic orders --yes --json
    """

    async def check(admin: Admin) -> None:
        from cometmq.client.admin.admin import for_each

        offsets = await for_each(
            await admin.queues(topic), lambda queue: admin.consumer_offset(source, queue)
        )
        if all(offset is None for offset in offsets.values()):
            raise NotFoundError(f"group {source} has no offsets in topic {topic}; nothing can be copied")

    ask(link, check)
    confirm(f"Set {target} in {topic} to where {source} is?", yes=yes)

    async def copy(admin: Admin) -> list[QueueProgressLine]:
        if all(each.group != target for each in await group_lines(admin, None)):
            await admin.create_group(target)
        await admin.clone_offsets(source, target, topic)
        return await queue_progress(admin, target, topic)

    found = ask(link, copy)
    if not found:
        raise ClientError(f"the broker says that it copied the offsets, but {target} has none; try again")
    document = {"from": source, "to": target, "topic": topic, "queues": found}
    closing = f"{target} goes on in {topic} where {source} is"
    listed(document, QueueProgressLine, found, as_json=as_json, closing=closing)
