"""`cometmq group`: settings, progress and members of consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cometmq.cli.admin import group_offsets, group_reading
from cometmq.cli.admin.group_data import (
    GroupLine,
    GroupMembers,
    GroupProgress,
    MemberLine,
    QueueProgressLine,
    all_progress,
    check_group_exists,
    group_lines,
    members_of,
    queue_progress,
)
from cometmq.cli.admin.group_offsets import Group
from cometmq.cli.commands import CommandGroup
from cometmq.cli.common.connect import NO_LINK, AsJson, Cluster, Link, Times, Watch, Yes, ask, watch
from cometmq.cli.common.output import confirm, counted, listed, note, say, told
from cometmq.model.errors import NotFoundError
from cometmq.model.queue import total_lag

if TYPE_CHECKING:
    from cometmq.client.admin.admin import Admin

app = CommandGroup("group")
app.command()(group_offsets.reset)
app.command()(group_offsets.skip)
app.command()(group_offsets.clone)
app.command()(group_reading.permission)
app.command()(group_reading.mode)
app.command("time-span")(group_reading.time_span)


@app.command("list")
def list_groups(
    cluster: Cluster = None,
    every_group: Annotated[bool, typer.Option("--all", help="Include system groups.")] = False,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """List consumer groups and their settings.

    Examples:
      cometmq group list -n 127.0.0.1:9876
      cometmq group list --all --json | jq -r '.groups[].group'
    """
    found: list[GroupLine] = ask(link, lambda admin: group_lines(admin, cluster))
    shown = [each for each in found if every_group or not each.system]
    hidden = len(found) - len(shown)
    listed({"groups": shown, "hidden": hidden}, GroupLine, shown, as_json=as_json)
    if hidden and not as_json:
        note(f"{hidden} groups of the system are not shown; --all shows them")


@app.command()
def progress(
    group: Annotated[
        str | None, typer.Argument(help="Show one group, queue by queue.", metavar="[GROUP]")
    ] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Only this topic.", metavar="TOPIC")] = None,
    cluster: Cluster = None,
    every: Watch = None,
    times: Times = None,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Show offsets and lag of groups.

    Examples:
      cometmq group progress -n 127.0.0.1:9876  # all groups
      cometmq group progress billing --watch 2
      cometmq group progress billing --topic orders --json | jq .lag
    """
    compact = every is not None
    if group is None:

        def show_all(found: list[GroupProgress]) -> None:
            listed({"groups": found}, GroupProgress, found, as_json=as_json, compact=compact)

        watch(link, lambda admin: all_progress(admin, cluster), show_all, every, times)
        return

    async def one(admin: Admin) -> list[QueueProgressLine]:
        found = await queue_progress(admin, group, topic)
        if not any(each.consumer_offset for each in found):
            await check_group_exists(admin, group)
        return found

    def show(found: list[QueueProgressLine]) -> None:
        lag = total_lag(each.lag for each in found)
        document = {"group": group, "lag": lag, "queues": found}
        without = sum(each.lag is None for each in found)
        waiting = "no offset yet" if lag is None else f"{counted(lag, 'message')} waiting"
        closing = f"{waiting} for {group} in {counted(len(found), 'queue')}"
        if lag is not None and without:
            closing += f", of which {without} have no offset yet and are not counted"
        listed(document, QueueProgressLine, found, as_json=as_json, compact=compact, closing=closing)

    watch(link, one, show, every, times)


@app.command()
def members(group: Group, link: Link = NO_LINK, as_json: AsJson = False) -> None:
    """Show the members of a group and their subscriptions.

    Examples:
      cometmq group members billing -n 127.0.0.1:9876
      cometmq group members billing --json | jq '.members[].queues'

    The exit code is 4 if no member is connected.
    """
    found: GroupMembers = ask(link, lambda admin: members_of(admin, group))
    if not found.members:
        raise NotFoundError(f"no member of group {group} is connected; see: cometmq group progress {group}")
    if not as_json:
        say(f"{group}: {found.consume_type}, {found.message_model}")
    listed(found, MemberLine, found.members, as_json=as_json)
    if found.difference and not as_json:
        note(f"the subscriptions of this group differ: {found.difference}")


@app.command()
def create(
    group: Group,
    retries: Annotated[
        int, typer.Option("--retries", help="Retries before a message becomes a dead letter.", min=0)
    ] = 16,
    broadcast: Annotated[bool, typer.Option(help="Allow broadcasting.")] = True,
    orderly: Annotated[bool, typer.Option("--orderly", help="Consume pop messages in order.")] = False,
    enabled: Annotated[bool, typer.Option(help="Allow consuming.")] = True,
    yes: Yes = False,
    cluster: Cluster = None,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Create a group on every broker, or change its settings.

    Examples:
      cometmq group create billing --retries 5 -n 127.0.0.1:9876
      cometmq group create audit --no-broadcast --json

    If the group exists with other settings, the command asks before it changes them. Most brokers create
    groups automatically when the first member connects.
    """

    from cometmq.model.subscription import SubscriptionGroupConfig

    settings: dict[str, Any] = {
        "consume_enable": enabled,
        "consume_broadcast_enable": broadcast,
        "consume_message_orderly": orderly,
        "retry_max_times": retries,
    }

    async def differs(admin: Admin) -> bool:
        tables = [await admin.groups(address) for address in (await admin.masters(cluster)).values()]
        return any(
            getattr(table[group], name) != value
            for table in tables
            if group in table
            for name, value in settings.items()
        )

    if ask(link, differs):
        confirm(f"Group {group} exists with other settings. Change them?", yes=yes)

    async def work(admin: Admin) -> GroupLine:
        await admin.create_group(SubscriptionGroupConfig(group, **settings), cluster=cluster)
        return next(each for each in await group_lines(admin, cluster) if each.group == group)

    made = ask(link, work)
    sentence = f"group {group} is set up on {', '.join(made.brokers)}, with {retries} retries"
    told(made, sentence, as_json=as_json)


@app.command()
def delete(
    group: Group,
    offsets: Annotated[bool, typer.Option("--offsets", help="Also delete its offsets.")] = False,
    yes: Yes = False,
    cluster: Cluster = None,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Delete a group from every broker.

    Examples:
      cometmq group delete billing -n 127.0.0.1:9876
      cometmq group delete billing --offsets --yes
    """
    ask(link, lambda admin: check_group_exists(admin, group))
    also = " and its offsets" if offsets else ""
    confirm(f"Delete group {group}{also}?", yes=yes)
    ask(link, lambda admin: admin.delete_group(group, clean_offsets=offsets, cluster=cluster))
    told({"group": group, "offsets": offsets}, f"group {group} was deleted{also}", as_json=as_json)
