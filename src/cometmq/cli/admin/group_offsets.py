"""Where consumer groups go on: `cometmq group reset`, `skip` and `clone`.

Rules kept here: what changes where a group goes on shows each queue before and after, and asks first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from cometmq.cli.admin.group_data import (
    QueueProgressLine,
    check_group_exists,
    group_lines,
    queue_progress,
    reset_plan,
)
from cometmq.cli.common.connect import TIMEOUT_S, AsJson, Link, Namesrv, Timeout, Yes, ask
from cometmq.cli.common.output import confirm, print_json, print_table, say, time_text
from cometmq.cli.common.times import parse_time
from cometmq.model.errors import ClientError, NotFoundError

if TYPE_CHECKING:
    from cometmq.client.admin.admin import Admin
    from cometmq.model.queue import MessageQueue

Group = Annotated[str, typer.Argument(help="The consumer group.", metavar="GROUP")]
Topic = Annotated[str, typer.Option("--topic", help="The topic.", metavar="TOPIC")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]

RESET: Final = """
Examples:

  cometmq group reset billing --topic orders --to 2h -n 127.0.0.1:9876       two hours back

  cometmq group reset billing --topic orders --to earliest --dry-run

  cometmq group reset billing --topic orders --to 2025-01-31T12:00:00 --yes
"""
SKIP: Final = """
Examples:

  cometmq group skip billing --topic orders -n 127.0.0.1:9876

  cometmq group skip billing --topic orders --dry-run
"""
CLONE: Final = """
Examples:

  cometmq group clone billing billing-v2 --topic orders -n 127.0.0.1:9876

  cometmq group clone billing billing-v2 --topic orders --yes --json
"""


def reset(
    group: Group,
    topic: Topic,
    to: Annotated[
        str, typer.Option("--to", help="earliest, latest, or a time (10m, 2025-01-31T12:00).", metavar="WHEN")
    ],
    dry_run: DryRun = False,
    yes: Yes = False,
    namesrv: Namesrv = "",
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Have a group go on at another place of a topic."""
    timestamp_ms = {"earliest": 0, "latest": -1}.get(to)
    when = parse_time(to) if timestamp_ms is None else timestamp_ms
    _reset(Link(namesrv, timeout), group, topic, when, dry_run=dry_run, yes=yes, as_json=as_json)


def skip(
    group: Group,
    topic: Topic,
    dry_run: DryRun = False,
    yes: Yes = False,
    namesrv: Namesrv = "",
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Have a group leave out what waits for it, and go on with what comes next."""
    _reset(Link(namesrv, timeout), group, topic, -1, dry_run=dry_run, yes=yes, as_json=as_json)


def _reset(
    link: Link, group: str, topic: str, timestamp_ms: int, *, dry_run: bool, yes: bool, as_json: bool
) -> None:
    async def plan(admin: Admin) -> dict[MessageQueue, tuple[int | None, int]]:
        await check_group_exists(admin, group)
        return await reset_plan(admin, group, topic, timestamp_ms)

    planned = ask(link, plan)
    after = {queue: target for queue, (_, target) in planned.items()}
    if not dry_run:
        moved = sum(target - (before or 0) for before, target in planned.values())
        change = f"{moved} messages forward" if moved >= 0 else f"{-moved} messages back"
        confirm(f"Set {group} in {len(planned)} queues of {topic}, {change} altogether?", yes=yes)
        after |= ask(link, lambda admin: admin.reset_offsets(group, topic, timestamp_ms))
    lines = [
        {
            "topic": queue.topic,
            "brokerName": queue.broker_name,
            "queueId": queue.queue_id,
            "before": before,
            "after": after[queue],
        }
        for queue, (before, _) in planned.items()
    ]
    if as_json:
        print_json({"group": group, "topic": topic, "done": not dry_run, "queues": lines})
        return
    titles = ("broker", "queue", "before", "after")
    rows = [(queue.broker_name, queue.queue_id, planned[queue][0], after[queue]) for queue in planned]
    print_table(titles, rows, right=titles[1:], marked=("broker",))
    say("nothing was changed" if dry_run else f"{group} goes on there; members within a few seconds")


def clone(
    source: Annotated[str, typer.Argument(help="The group whose offsets are copied.", metavar="FROM")],
    target: Annotated[str, typer.Argument(help="The group that gets them.", metavar="TO")],
    topic: Topic,
    yes: Yes = False,
    namesrv: Namesrv = "",
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Let a group go on in a topic where another one is."""
    link = Link(namesrv, timeout)

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
    if as_json:
        print_json({"from": source, "to": target, "topic": topic, "queues": found})
        return
    show_queues(found)
    say(f"{target} goes on in {topic} where {source} is")


def show_queues(found: list[QueueProgressLine]) -> None:
    """How far a group is, queue by queue."""
    rows = [
        (
            each.topic,
            each.broker_name,
            each.queue_id,
            each.broker_offset,
            each.consumer_offset,
            each.lag,
            time_text(each.last_consumed_timestamp),
            each.client_id,
        )
        for each in found
    ]
    titles = ("topic", "broker", "queue", "end", "at", "lag", "last consumed (UTC)", "read by")
    print_table(titles, rows, right=("queue", "end", "at", "lag"), marked=("topic",))
