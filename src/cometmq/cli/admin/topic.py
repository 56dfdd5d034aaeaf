"""`cometmq topic`: the topics of a cluster.

Rules kept here: a topic is made by `create` and changed by `update`; neither does the work of the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cometmq.cli.admin.topic_data import (
    TopicChange,
    TopicLine,
    TopicPlace,
    TopicView,
    parse_permission,
    permission_text,
    places_of,
    queue_lines,
    topic_lines,
)
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
from cometmq.model.errors import ClientError, CometError, NotFoundError

if TYPE_CHECKING:
    from cometmq.cli.admin.topic_data import HiddenQueue, QueueLine
    from cometmq.client.admin.admin import Admin

app = group_app("topic")

Topic = Annotated[str, typer.Argument(help="The topic.", metavar="TOPIC")]
Permission = Annotated[
    str | None, typer.Option("--perm", help="What is allowed: rw, r, w or none.", metavar="PERM")
]
Attributes = Annotated[
    str | None,
    typer.Option("--attributes", help="Changes, such as +message.type=FIFO.", metavar="CHANGES"),
]


@app.command(
    "list",
    epilog="""
Examples:

  cometmq topic list -n 127.0.0.1:9876

  cometmq topic list --all --json | jq -r '.topics[].topic'
""",
)
def list_topics(
    cluster: Cluster = None,
    every_topic: Annotated[bool, typer.Option("--all", help="Those of the system, too.")] = False,
    namesrv: Namesrv = "",
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """List topics, with their queues on all brokers together."""
    found: list[TopicLine] = ask(Link(namesrv, timeout), lambda admin: topic_lines(admin, cluster))
    shown = [each for each in found if every_topic or not each.system]
    hidden = len(found) - len(shown)
    if as_json:
        print_json({"topics": shown, "hidden": hidden})
        return
    rows = [
        (each.topic, each.queues, permission_text(each.perm), each.message_type, ", ".join(each.brokers))
        for each in shown
    ]
    print_table(("topic", "queues", "perm", "type", "brokers"), rows, right=("queues",), marked=("topic",))
    if hidden:
        note(f"{hidden} topics of the system, of retries and of dead letters are not shown; --all shows them")


@app.command(
    epilog="""
Examples:

  cometmq topic show orders -n 127.0.0.1:9876

  cometmq topic show orders --json | jq .brokers
"""
)
def show(topic: Topic, namesrv: Namesrv = "", timeout: Timeout = TIMEOUT_S, as_json: AsJson = False) -> None:
    """Show where a topic is: its queues, permissions and addresses, and the groups that read it."""

    async def view(admin: Admin) -> TopicView:
        places = await places_of(admin, topic)
        return TopicView(topic, places, await admin.groups_of_topic(topic))

    found = ask(Link(namesrv, timeout), view)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            each.broker_name,
            each.cluster,
            each.read_queues,
            each.write_queues,
            permission_text(each.perm),
            "yes" if each.order else "no",
            ",".join(f"{name}={value}" for name, value in sorted(each.attributes.items())),
            ", ".join(f"{number}={address}" for number, address in sorted(each.addresses.items())),
        )
        for each in found.brokers
    ]
    titles = ("broker", "cluster", "read", "write", "perm", "order", "attributes", "addresses")
    print_table(titles, rows, right=("read", "write"), marked=("broker",))
    say(f"groups: {', '.join(found.groups) or 'none'}")


@app.command(
    epilog="""
Examples:

  cometmq topic status orders -n 127.0.0.1:9876

  cometmq topic status orders --watch 1
"""
)
def status(
    topic: Topic,
    every: Watch = None,
    times: Times = None,
    namesrv: Namesrv = "",
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show what each queue of a topic holds."""

    def show(queues: list[QueueLine]) -> None:
        total = sum(each.messages for each in queues)
        if as_json:
            print_json({"topic": topic, "messages": total, "queues": queues}, compact=every is not None)
            return
        rows = [
            (
                each.broker_name,
                each.queue_id,
                each.min_offset,
                each.max_offset,
                each.messages,
                time_text(each.last_store_timestamp),
            )
            for each in queues
        ]
        titles = ("broker", "queue", "min", "max", "messages", "last message (UTC)")
        print_table(titles, rows, right=titles[1:5], marked=("broker",))
        say(f"{counted(total, 'message')} in {counted(len(queues), 'queue')}")

    watch(Link(namesrv, timeout), lambda admin: queue_lines(admin, topic), show, every, times)


@app.command(
    epilog="""
Examples:

  cometmq topic create orders --queues 8 -n 127.0.0.1:9876

  cometmq topic create payments --queues 4 --order --attributes +message.type=FIFO

The exit code is 1 if the topic exists already; change it with "topic update".
"""
)
def create(
    topic: Topic,
    queues: Annotated[int, typer.Option("--queues", help="Queues on each broker.", min=1)] = 8,
    perm: Permission = None,
    order: Annotated[bool, typer.Option("--order", help="Keep order even if a broker fails.")] = False,
    attributes: Attributes = None,
    cluster: Cluster = None,
    namesrv: Namesrv = "",
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Create a topic on every broker of the cluster."""
    allowed = parse_permission(perm or "rw")

    async def work(admin: Admin) -> list[TopicPlace]:
        if await admin.topic_route(topic) is not None:
            raise ClientError(f"topic {topic} exists already; change it with: cometmq topic update {topic}")
        await admin.create_topic(
            topic, queues=queues, cluster=cluster, perm=allowed, order=order, attributes=attributes
        )
        return await places_of(admin, topic)

    _say_changed(topic, ask(Link(namesrv, timeout), work), "was created", as_json=as_json)


@app.command(
    epilog="""
Examples:

  cometmq topic update orders --queues 16 -n 127.0.0.1:9876

  cometmq topic update orders --perm r               no more messages; consumers finish what is there

  cometmq topic update orders --broker broker-a --queues 4       also makes it there

  cometmq topic update orders --write-queues 4       consumers still read the others

What is not named stays as it is. If a queue would go that groups have not read to its end, it is shown and
asked about. The exit code is 4 if there is no such topic.
"""
)
def update(
    topic: Topic,
    queues: Annotated[int | None, typer.Option("--queues", help="Queues on each broker.", min=1)] = None,
    write_queues: Annotated[
        int | None, typer.Option("--write-queues", help="Queues that are sent to, if fewer.", min=0)
    ] = None,
    perm: Permission = None,
    order: Annotated[bool | None, typer.Option("--order/--no-order", help="Keep order.")] = None,
    attributes: Attributes = None,
    broker: Annotated[
        str | None, typer.Option("--broker", help="Only on this broker.", metavar="BROKER")
    ] = None,
    yes: Yes = False,
    namesrv: Namesrv = "",
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Change a topic: its queues, what is allowed, its attributes."""
    allowed = None if perm is None else parse_permission(perm)
    sent_to = queues if write_queues is None else write_queues
    changes = {"read_queue_nums": queues, "write_queue_nums": sent_to, "perm": allowed, "order": order}
    wanted = {name: value for name, value in changes.items() if value is not None}
    link = Link(namesrv, timeout)

    async def work(admin: Admin) -> list[TopicPlace]:
        from cometmq.cli.admin.topic_data import change_topic

        return await change_topic(admin, topic, wanted, attributes, broker)

    hidden = [] if queues is None else _ask_about_hidden(link, topic, queues, broker, yes=yes)
    _say_changed(topic, ask(link, work), "was changed", as_json=as_json, hidden=hidden)


def _ask_about_hidden(
    link: Link, topic: str, queues: int, broker: str | None, *, yes: bool
) -> list[HiddenQueue]:
    """What fewer queues would hide; whoever does not want that ends the command here."""
    from cometmq.cli.admin.topic_shrink import hidden_queues, question, show_hidden

    async def look(admin: Admin) -> list[HiddenQueue]:
        if await admin.topic_route(topic) is None:
            raise NotFoundError(f"there is no topic {topic}; see: cometmq topic list")
        return await hidden_queues(admin, topic, queues, broker)

    hidden = ask(link, look)
    if hidden:
        show_hidden(hidden)
        confirm(question(topic, queues, hidden), yes=yes)
    return hidden


def _say_changed(
    topic: str,
    places: list[TopicPlace],
    what: str,
    *,
    as_json: bool,
    hidden: list[HiddenQueue] | None = None,
) -> None:
    if as_json:
        print_json(TopicView(topic, places) if hidden is None else TopicChange(topic, places, hidden=hidden))
        return
    where = ", ".join(
        f"{each.broker_name} ({counted(each.write_queues, 'queue')}, {permission_text(each.perm)})"
        for each in places
    )
    say(f"topic {topic} {what}: {where}")


@app.command(
    epilog="""
Examples:

  cometmq topic delete orders -n 127.0.0.1:9876

  cometmq topic delete orders --yes --json

The messages are gone, too, and so is how far groups were in them.
"""
)
def delete(
    topic: Topic,
    yes: Yes = False,
    cluster: Cluster = None,
    namesrv: Namesrv = "",
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Delete a topic and its messages."""
    link = Link(namesrv, timeout)

    async def count(admin: Admin) -> int:
        if await admin.topic_route(topic) is None:
            raise NotFoundError(f"there is no topic {topic}; see: cometmq topic list")
        try:
            return sum(each.messages for each in await queue_lines(admin, topic))
        except CometError:  # what cannot be counted can be deleted all the same
            return 0

    messages = ask(link, count)
    confirm(f"Delete topic {topic} and its {messages} messages?", yes=yes)
    ask(link, lambda admin: admin.delete_topic(topic, cluster=cluster))
    if as_json:
        print_json({"topic": topic, "messages": messages})
    else:
        say(f"topic {topic} was deleted, with {messages} messages")
