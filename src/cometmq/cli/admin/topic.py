"""`cometmq topic`: list, show, create, change and delete topics.

Rules kept here: `create` refuses a topic that exists, `update` one that does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cometmq.cli.admin.topic_data import (
    BrokerTopic,
    HiddenQueue,
    QueueLine,
    TopicChange,
    TopicLine,
    TopicView,
    broker_topics_of,
    change_topic,
    check_queues,
    hidden_queues,
    parse_permission,
    permission_text,
    queue_lines,
    require_route,
    topic_lines,
)
from cometmq.cli.commands import CommandGroup
from cometmq.cli.common.connect import NO_LINK, AsJson, Cluster, Link, Times, Watch, Yes, ask, watch
from cometmq.cli.common.output import UsageError, confirm, counted, listed, note, print_table, told
from cometmq.model.errors import ClientError, CometError, NotFoundError

if TYPE_CHECKING:
    from cometmq.client.admin.admin import Admin

app = CommandGroup("topic")

Topic = Annotated[str, typer.Argument(help="The topic.", metavar="TOPIC")]
Permission = Annotated[
    str | None, typer.Option("--perm", help="Permission: rw, r, w or none.", metavar="PERM")
]
ReadQueues = Annotated[
    int | None, typer.Option("--read-queues", help="Queues that consumers read, if not --queues.", min=1)
]
WriteQueues = Annotated[
    int | None, typer.Option("--write-queues", help="Queues that producers use, if not --queues.", min=0)
]
Attributes = Annotated[
    str | None,
    typer.Option(
        "--attributes",
        help="Attribute changes, such as +message.type=FIFO or +reserve.time=24 (hours).",
        metavar="CHANGES",
    ),
]


@app.command("list")
def list_topics(
    cluster: Cluster = None,
    every_topic: Annotated[
        bool, typer.Option("--all", help="Include system, retry and dead-letter topics.")
    ] = False,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """List topics, with the sum of their queues on all brokers.

    Examples:
      cometmq topic list -n 127.0.0.1:9876
      cometmq topic list --all --json | jq -r '.topics[].topic'
    """
    found: list[TopicLine] = ask(link, lambda admin: topic_lines(admin, cluster))
    shown = [each for each in found if every_topic or not each.system]
    hidden = len(found) - len(shown)
    listed({"topics": shown, "hidden": hidden}, TopicLine, shown, as_json=as_json)
    if hidden and not as_json:
        note(f"{hidden} topics of the system, of retries and of dead letters are not shown; --all shows them")


@app.command()
def show(topic: Topic, link: Link = NO_LINK, as_json: AsJson = False) -> None:
    """Show the brokers of a topic, its queues and permissions, and the groups that read it.

    Examples:
      cometmq topic show orders -n 127.0.0.1:9876
      cometmq topic show orders --json | jq .brokers
    """

    async def view(admin: Admin) -> TopicView:
        brokers = await broker_topics_of(admin, topic)
        return TopicView(topic, brokers, await admin.groups_of_topic(topic))

    found = ask(link, view)
    closing = f"groups: {', '.join(found.groups) or 'none'}"
    listed(found, BrokerTopic, found.brokers, as_json=as_json, closing=closing)


@app.command()
def status(
    topic: Topic, every: Watch = None, times: Times = None, link: Link = NO_LINK, as_json: AsJson = False
) -> None:
    """Show the offsets of each queue of a topic.

    Examples:
      cometmq topic status orders -n 127.0.0.1:9876
      cometmq topic status orders --watch 1
    """

    def show(queues: list[QueueLine]) -> None:
        total = sum(each.messages for each in queues)
        document = {"topic": topic, "messages": total, "queues": queues}
        closing = f"{counted(total, 'message')} in {counted(len(queues), 'queue')}"
        listed(document, QueueLine, queues, as_json=as_json, compact=every is not None, closing=closing)

    watch(link, lambda admin: queue_lines(admin, topic), show, every, times)


@app.command()
def create(
    topic: Topic,
    queues: Annotated[int, typer.Option("--queues", help="Queues on each broker.", min=1)] = 8,
    read_queues: ReadQueues = None,
    write_queues: WriteQueues = None,
    perm: Permission = None,
    order: Annotated[bool, typer.Option("--order", help="Keep order even if a broker fails.")] = False,
    attributes: Attributes = None,
    cluster: Cluster = None,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Create a topic on every broker of the cluster.

    Examples:
      cometmq topic create orders --queues 8 -n 127.0.0.1:9876
      cometmq topic create payments --order --attributes +message.type=FIFO

    With --order the name servers store the queues of the topic (ORDER_TOPIC_CONFIG), as "mqadmin updateTopic
    -o true" does. The exit code is 1 if the topic exists already; change it with "topic update".
    """
    allowed = parse_permission(perm or "rw")
    read, sent_to = read_queues or queues, queues if write_queues is None else write_queues
    check_queues(topic, read, sent_to)

    async def work(admin: Admin) -> list[BrokerTopic]:
        if await admin.topic_route(topic) is not None:
            raise ClientError(f"topic {topic} exists already; change it with: cometmq topic update {topic}")
        await admin.create_topic(
            topic,
            queues=read,
            write_queues=sent_to,
            cluster=cluster,
            perm=allowed,
            order=order,
            attributes=attributes,
        )
        return await broker_topics_of(admin, topic)

    _told_change(TopicView(topic, ask(link, work)), "was created", as_json=as_json)


@app.command()
def update(
    topic: Topic,
    queues: Annotated[int | None, typer.Option("--queues", help="Queues on each broker.", min=1)] = None,
    read_queues: ReadQueues = None,
    write_queues: WriteQueues = None,
    perm: Permission = None,
    order: Annotated[
        bool | None, typer.Option("--order/--no-order", help="Keep order even if a broker fails.")
    ] = None,
    attributes: Attributes = None,
    broker: Annotated[
        str | None, typer.Option("--broker", help="Only on this broker.", metavar="BROKER")
    ] = None,
    yes: Yes = False,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Change queues, permission, order or attributes of a topic.

    Examples:
      cometmq topic update orders --queues 16 -n 127.0.0.1:9876
      cometmq topic update orders --perm r          # read-only
      cometmq topic update orders --broker broker-a --queues 4
      cometmq topic update orders --write-queues 4  # the others are still read

    Settings that are not named stay as they are. Before queues with unread messages are removed, the command
    lists them and asks. The exit code is 4 if there is no such topic.
    """
    allowed = None if perm is None else parse_permission(perm)
    read, sent_to = read_queues or queues, queues if write_queues is None else write_queues
    changes = {"read_queue_nums": read, "write_queue_nums": sent_to, "perm": allowed, "order": order}
    wanted = {name: value for name, value in changes.items() if value is not None}

    async def work(admin: Admin) -> list[BrokerTopic]:
        return await change_topic(admin, topic, wanted, attributes, broker)

    hidden = [] if read is None else _ask_about_hidden(link, topic, read, broker, yes=yes)
    view = TopicChange(topic, ask(link, work), hidden=hidden)
    _told_change(view, "was changed", as_json=as_json)


def _ask_about_hidden(
    link: Link, topic: str, queues: int, broker: str | None, *, yes: bool
) -> list[HiddenQueue]:
    """Show the unread messages that fewer queues hide, and ask before it is done."""

    async def look(admin: Admin) -> list[HiddenQueue]:
        await require_route(admin, topic)
        return await hidden_queues(admin, topic, queues, broker)

    hidden = ask(link, look)
    if not hidden:
        return []
    rows = [
        (each.broker_name, each.queue_id, each.messages, group or "no group reads the topic", unread)
        for each in hidden
        for group, unread in (each.unread or {"": each.messages}).items()
    ]
    titles = ("broker", "queue", "messages", "group", "unread")
    print_table(titles, rows, right=("queue", "messages", "unread"), marked=("broker",), to_errors=True)
    most = sum(max(each.unread.values(), default=each.messages) for each in hidden)
    confirm(
        f"With {counted(queues, 'queue')} consumers of {topic} are not given "
        f"{counted(most, 'message')} that are unread in {counted(len(hidden), 'queue')}. To have them read "
        f"first: cometmq topic update {topic} --write-queues {queues}, and --queues {queues} when they are. "
        "Hide them?",
        yes=yes,
    )
    return hidden


def _told_change(view: TopicView, what: str, *, as_json: bool) -> None:
    where = ", ".join(
        f"{each.broker_name} ({counted(each.write_queues, 'queue')}, {permission_text(each.perm)})"
        for each in view.brokers
    )
    told(view, f"topic {view.topic} {what}: {where}", as_json=as_json)


@app.command()
def order(
    topic: Topic,
    queues: Annotated[
        str | None,
        typer.Option("--set", help="Store these queues: broker:number;broker:number.", metavar="QUEUES"),
    ] = None,
    is_deleted: Annotated[bool, typer.Option("--delete", help="Delete the order configuration.")] = False,
    yes: Yes = False,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Show or change the order configuration of a topic at the name servers.

    Examples:
      cometmq topic order payments -n 127.0.0.1:9876
      cometmq topic order payments --set 'broker-a:4;broker-b:4'
      cometmq topic order payments --delete --yes

    "topic create --order" and "topic update" keep it in step with the queues of the topic. The exit code is 4
    if the topic has none.
    """
    from cometmq.client.instance.routes import order_queues

    if queues is not None and is_deleted:
        raise UsageError("say --set or --delete, not both")
    wanted = None if queues is None else order_queues(topic, queues)
    if wanted == {}:
        raise UsageError("--set names no queues; say --delete to delete the order configuration")

    async def work(admin: Admin) -> dict[str, int]:
        if wanted is not None:
            await require_route(admin, topic)
            await admin.put_order_config(topic, wanted)
        found = await admin.order_config(topic)
        if not found:
            raise NotFoundError(f"topic {topic} has no order configuration; see: cometmq topic update --help")
        return found

    found = ask(link, work)
    if is_deleted:
        confirm(f"Delete the order configuration of {topic} ({_order_text(found)})?", yes=yes)
        ask(link, lambda admin: admin.put_order_config(topic, {}))
    document = {"topic": topic, "queues": found, "deleted": is_deleted}
    what = "had the order configuration" if is_deleted else "has the order configuration"
    told(document, f"topic {topic} {what} {_order_text(found)}", as_json=as_json)


def _order_text(queues: dict[str, int]) -> str:
    return ";".join(f"{name}:{count}" for name, count in queues.items())


@app.command()
def delete(
    topic: Topic, yes: Yes = False, cluster: Cluster = None, link: Link = NO_LINK, as_json: AsJson = False
) -> None:
    """Delete a topic and its messages.

    Examples:
      cometmq topic delete orders -n 127.0.0.1:9876
      cometmq topic delete orders --yes --json

    Its messages, and the offsets of all groups in it, are deleted as well.
    """

    async def count(admin: Admin) -> int:
        await require_route(admin, topic)
        try:
            return sum(each.messages for each in await queue_lines(admin, topic))
        except CometError:  # what cannot be counted can be deleted all the same
            return 0

    messages = ask(link, count)
    confirm(f"Delete topic {topic} and its {messages} messages?", yes=yes)
    ask(link, lambda admin: admin.delete_topic(topic, cluster=cluster))
    document = {"topic": topic, "messages": messages}
    told(document, f"topic {topic} was deleted, with {messages} messages", as_json=as_json)
