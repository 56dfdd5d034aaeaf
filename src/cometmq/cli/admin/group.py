"""`cometmq group`: consumer groups: how they are set up, how far they are, and who is in them.

What changes where a group goes on is in `group_offsets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cometmq.cli.admin import group_offsets
from cometmq.cli.admin.group_data import (
    GroupLine,
    GroupMembers,
    GroupProgress,
    QueueProgressLine,
    all_progress,
    check_group_exists,
    group_lines,
    members_of,
    queue_progress,
)
from cometmq.cli.admin.group_offsets import Group, show_queues
from cometmq.cli.commands import group_app
from cometmq.cli.common.connect import (
    TIMEOUT_S,
    AsJson,
    Cluster,
    Link,
    Namesrv,
    Timeout,
    Times,
    Watch,
    Yes,
    ask,
    watch,
)
from cometmq.cli.common.output import confirm, counted, note, print_json, print_table, say, time_text
from cometmq.model.errors import NotFoundError

if TYPE_CHECKING:
    from cometmq.client.admin.admin import Admin

app = group_app("group")
app.command(epilog=group_offsets.RESET)(group_offsets.reset)
app.command(epilog=group_offsets.SKIP)(group_offsets.skip)
app.command(epilog=group_offsets.CLONE)(group_offsets.clone)


@app.command(
    "list",
    epilog="""
Examples:

  cometmq group list -n 127.0.0.1:9876

  cometmq group list --all --json | jq -r '.groups[].group'
""",
)
def list_groups(
    cluster: Cluster = None,
    every_group: Annotated[bool, typer.Option("--all", help="Those of the system, too.")] = False,
    namesrv: Namesrv = "",
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """List consumer groups and how they are set up."""
    found: list[GroupLine] = ask(Link(namesrv, timeout), lambda admin: group_lines(admin, cluster))
    shown = [each for each in found if every_group or not each.system]
    hidden = len(found) - len(shown)
    if as_json:
        print_json({"groups": shown, "hidden": hidden})
        return
    rows = [
        (
            each.group,
            "yes" if each.enabled else "no",
            "yes" if each.broadcast else "no",
            "yes" if each.orderly else "no",
            each.max_retries,
            ", ".join(each.brokers),
        )
        for each in shown
    ]
    titles = ("group", "enabled", "broadcast", "orderly", "retries", "brokers")
    print_table(titles, rows, right=("retries",), marked=("group",))
    if hidden:
        note(f"{hidden} groups of the system are not shown; --all shows them")


@app.command(
    epilog="""
Examples:

  cometmq group progress -n 127.0.0.1:9876                 all groups, the largest lag first

  cometmq group progress billing --watch 2

  cometmq group progress billing --topic orders --json | jq .lag
"""
)
def progress(
    group: Annotated[str | None, typer.Argument(help="One group, by queue.", metavar="[GROUP]")] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Only this topic.", metavar="TOPIC")] = None,
    cluster: Cluster = None,
    every: Watch = None,
    times: Times = None,
    namesrv: Namesrv = "",
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show how far groups are, and how many messages wait for them."""
    link, compact = Link(namesrv, timeout), every is not None
    if group is None:

        def show_all(found: list[GroupProgress]) -> None:
            if as_json:
                print_json({"groups": found}, compact=compact)
            else:
                _show_all(found)

        watch(link, lambda admin: all_progress(admin, cluster), show_all, every, times)
        return

    async def one(admin: Admin) -> list[QueueProgressLine]:
        found = await queue_progress(admin, group, topic)
        if all(each.consumer_offset <= 0 for each in found):
            await check_group_exists(admin, group)
        return found

    def show(found: list[QueueProgressLine]) -> None:
        lag = sum(each.lag for each in found)
        if as_json:
            print_json({"group": group, "lag": lag, "queues": found}, compact=compact)
        else:
            show_queues(found)
            say(f"{counted(lag, 'message')} waiting for {group} in {counted(len(found), 'queue')}")

    watch(link, one, show, every, times)


def _show_all(found: list[GroupProgress]) -> None:
    rows = [
        (each.group, each.members, each.lag, time_text(each.last_consumed_timestamp), ", ".join(each.topics))
        for each in found
    ]
    titles = ("group", "members", "lag", "last consumed (UTC)", "topics")
    print_table(titles, rows, right=("members", "lag"), marked=("group",))


@app.command(
    epilog="""
Examples:

  cometmq group members billing -n 127.0.0.1:9876

  cometmq group members billing --json | jq '.members[].queues'

The exit code is 4 if no member is connected.
"""
)
def members(
    group: Group, namesrv: Namesrv = "", timeout: Timeout = TIMEOUT_S, as_json: AsJson = False
) -> None:
    """Show who is in a group, and what each member reads."""
    found: GroupMembers = ask(Link(namesrv, timeout), lambda admin: members_of(admin, group))
    if not found.members:
        raise NotFoundError(f"no member of group {group} is connected; see: cometmq group progress {group}")
    if as_json:
        print_json(found)
        return
    say(f"{group}: {found.consume_type}, {found.message_model}")
    rows = [
        (
            each.client_id,
            each.address,
            each.language,
            each.version,
            "-" if each.queues is None else len(each.queues),
            ", ".join(f"{topic} ({what})" for topic, what in sorted((each.subscriptions or {}).items())),
        )
        for each in found.members
    ]
    titles = ("member", "address", "language", "version", "queues", "reads")
    print_table(titles, rows, right=("queues",), marked=("member",))
    if found.difference:
        note(f"the subscriptions of this group differ: {found.difference}")


@app.command(
    epilog="""
Examples:

  cometmq group create billing --retries 5 -n 127.0.0.1:9876

  cometmq group create audit --no-broadcast --json

A group that exists gets these settings, which is asked about if it has others. Most brokers make groups by
themselves when the first member comes.
"""
)
def create(
    group: Group,
    retries: Annotated[
        int, typer.Option("--retries", help="Before a message becomes a dead letter.", min=0)
    ] = 16,
    broadcast: Annotated[bool, typer.Option(help="Whether members may get every message.")] = True,
    orderly: Annotated[bool, typer.Option("--orderly", help="Consume pop messages in order.")] = False,
    enabled: Annotated[bool, typer.Option(help="Whether members get anything.")] = True,
    yes: Yes = False,
    cluster: Cluster = None,
    namesrv: Namesrv = "",
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Create a group on every broker, or change its settings."""
    link = Link(namesrv, timeout)

    async def differs(admin: Admin) -> bool:
        tables = [await admin.groups(address) for address in (await admin.masters(cluster)).values()]
        return any(
            found.consume_enable != enabled
            or found.consume_broadcast_enable != broadcast
            or found.consume_message_orderly != orderly
            or found.retry_max_times != retries
            for table in tables
            if (found := table.get(group)) is not None
        )

    if ask(link, differs):
        confirm(f"Group {group} exists with other settings. Change them?", yes=yes)

    async def work(admin: Admin) -> GroupLine:
        from cometmq.model.subscription import SubscriptionGroupConfig

        config = SubscriptionGroupConfig(
            group,
            consume_enable=enabled,
            consume_broadcast_enable=broadcast,
            consume_message_orderly=orderly,
            retry_max_times=retries,
        )
        await admin.create_group(config, cluster=cluster)
        return next(each for each in await group_lines(admin, cluster) if each.group == group)

    made = ask(link, work)
    if as_json:
        print_json(made)
    else:
        say(f"group {group} is set up on {', '.join(made.brokers)}, with {retries} retries")


@app.command(
    epilog="""
Examples:

  cometmq group delete billing -n 127.0.0.1:9876

  cometmq group delete billing --offsets --yes
"""
)
def delete(
    group: Group,
    offsets: Annotated[bool, typer.Option("--offsets", help="Forget how far it is, too.")] = False,
    yes: Yes = False,
    cluster: Cluster = None,
    namesrv: Namesrv = "",
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Delete a group from every broker."""
    link = Link(namesrv, timeout)
    ask(link, lambda admin: check_group_exists(admin, group))
    also = " and how far it is" if offsets else ""
    confirm(f"Delete group {group}{also}?", yes=yes)
    ask(link, lambda admin: admin.delete_group(group, clean_offsets=offsets, cluster=cluster))
    if as_json:
        print_json({"group": group, "offsets": offsets})
    else:
        say(f"group {group} was deleted{also}")
