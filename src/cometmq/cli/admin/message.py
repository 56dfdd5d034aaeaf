"""`cometmq message`: send messages (`message_sending`), look at those of a cluster, and find them.

Rules kept here: data goes to standard output, everything else to standard error; what is cut says so there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cometmq.cli.admin import message_send as message_sending
from cometmq.cli.admin.message_send import Topic
from cometmq.cli.admin.message_view import as_dict, print_messages, print_whole
from cometmq.cli.commands import group_app
from cometmq.cli.common.connect import TIMEOUT_S, AsJson, Link, Namesrv, Timeout, ask
from cometmq.cli.common.output import UsageError, note, print_json, say
from cometmq.cli.common.times import now_ms, parse_time
from cometmq.model.errors import NotFoundError, ResponseError

if TYPE_CHECKING:
    from cometmq.client.admin.admin import Admin
    from cometmq.client.subscription import Expression
    from cometmq.client.trace.query import MessageTrace
    from cometmq.model.message import StoredMessage

app = group_app("message")
app.command(epilog=message_sending.SEND)(message_sending.send)

Tags = Annotated[str, typer.Option("--tags", help="Only these tags: 'a || b'.", metavar="TAGS")]
Sql = Annotated[str | None, typer.Option("--sql", help="Only what this SQL92 condition says.", metavar="SQL")]


def _expression(tags: str, sql: str | None) -> Expression:
    from cometmq.client.subscription import Sql as SqlExpression

    if sql is not None and tags != "*":
        raise UsageError("say --tags or --sql, not both")
    return tags if sql is None else SqlExpression(sql)


@app.command(
    epilog="""
Examples:

  cometmq message tail orders -n 127.0.0.1:9876                   the last ten

  cometmq message tail orders --follow --tags 'paid || refunded'

  cometmq message tail orders --limit 100 --json | jq -r .text
"""
)
def tail(
    topic: Topic,
    limit: Annotated[int, typer.Option("--limit", "-l", help="So many of the last.", min=0)] = 10,
    is_followed: Annotated[bool, typer.Option("--follow", "-f", help="And what comes, for ever.")] = False,
    count: Annotated[
        int | None, typer.Option("--count", help="With --follow: end after so many.", metavar="N", min=1)
    ] = None,
    tags: Tags = "*",
    sql: Sql = None,
    namesrv: Namesrv = "",
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Print the last messages of a topic, and with --follow those that still come."""
    expression = _expression(tags, sql)
    shown = 0

    def show(messages: Sequence[StoredMessage]) -> bool:
        nonlocal shown
        wanted = messages if count is None else messages[: count - shown]
        print_messages(wanted, as_json=as_json)
        sys.stdout.flush()
        shown += len(wanted)
        return count is None or shown < count

    async def work(admin: Admin) -> None:
        from cometmq.cli.admin.message_read import follow, last_messages

        messages, ends = await last_messages(admin, topic, limit, expression)
        print_messages(messages, as_json=as_json)
        if is_followed:
            sys.stdout.flush()
            await follow(admin, ends, expression, show)

    ask(Link(namesrv, timeout), work)


@app.command(
    epilog="""
Examples:

  cometmq message get 7F00000100002A9F0000000000000000 -n 127.0.0.1:9876       by its offset id

  cometmq message get 0A0B0C0D00016D06F69C1A2B3C4D0000 --topic orders          by the producer's id

  cometmq message get 0A0B0C0D00016D06F69C1A2B3C4D0000 --topic orders --json | jq -r .text

The exit code is 4 if there is no such message.
"""
)
def get(
    msg_id: Annotated[str, typer.Argument(help="One of its two ids.", metavar="ID")],
    topic: Annotated[
        str | None, typer.Option("--topic", help="For the producer's id: its topic.", metavar="TOPIC")
    ] = None,
    namesrv: Namesrv = "",
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show one message."""

    async def find(admin: Admin) -> StoredMessage | None:
        found = None if topic is None else await admin.message_by_id(topic, msg_id)
        return found or await _by_place(admin, msg_id)

    found = ask(Link(namesrv, timeout), find)
    if found is None:
        hint = "" if topic else "; if it is the producer's id, say --topic, too"
        raise NotFoundError(f"there is no message {msg_id}{hint}")
    if as_json:
        print_json(as_dict(found))
    else:
        print_whole(found)


async def _by_place(admin: Admin, msg_id: str) -> StoredMessage | None:
    """The message at the place that an offset id names; only brokers of this cluster are asked."""
    from msgspec.structs import replace

    from cometmq.wire.record.ids import IdError, decode_offset_id

    try:
        address = str(decode_offset_id(msg_id).store_host)
    except IdError:
        return None
    info = await admin.cluster_info()
    names = {
        where: name
        for name, broker in info.broker_addr_table.items()
        for where in broker.broker_addrs.values()
    }
    if address not in names:
        return None
    try:
        found = await admin.view_message(msg_id)
    except ResponseError:
        return None
    return replace(found, broker_name=names[address])


@app.command(
    epilog="""
Examples:

  cometmq message find orders --key 42 -n 127.0.0.1:9876

  cometmq message find orders --from 10m                          of the last ten minutes

  cometmq message find orders --from 2025-01-31T12:00 --to 2025-01-31T12:05 --limit 1000 --json

The exit code is 4 if nothing was found.
"""
)
def find(
    topic: Topic,
    key: Annotated[str | None, typer.Option("--key", help="With this key.", metavar="KEY")] = None,
    begin: Annotated[
        str | None, typer.Option("--from", help="Stored since: 10m, or a time in UTC.", metavar="WHEN")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="Stored until.", metavar="WHEN")] = None,
    limit: Annotated[int, typer.Option("--limit", "-l", help="At most so many.", min=1)] = 32,
    tags: Tags = "*",
    sql: Sql = None,
    namesrv: Namesrv = "",
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Find messages by a key, or by the time at which they were stored; the oldest come first."""
    if key is None and begin is None:
        raise UsageError("say what is to be found: --key KEY, or --from WHEN")
    if key is not None and (tags != "*" or sql is not None):
        raise UsageError("--tags and --sql go with --from; leave them out, or leave out --key")
    begin_ms = 0 if begin is None else parse_time(begin)
    end_ms = now_ms() if end is None else parse_time(end)
    expression = _expression(tags, sql)

    async def work(admin: Admin) -> tuple[list[StoredMessage], bool]:
        from cometmq.cli.admin.message_read import messages_between

        if key is None:
            return await messages_between(admin, topic, begin_ms, end_ms, limit, expression)
        found = await admin.query_messages(
            topic, key, max_messages=limit + 1, begin_ms=begin_ms, end_ms=end_ms
        )
        return found[:limit], len(found) > limit

    found, is_cut = ask(Link(namesrv, timeout), work)
    print_messages(found, as_json=as_json)
    if is_cut:
        note(f"these are {limit}, and there are more; --limit shows them")
    if not found:
        raise NotFoundError(f"no such message was found in topic {topic}")


@app.command(
    epilog="""
Examples:

  cometmq message trace 7F00000100002A9F0000000000000000 --namesrv 127.0.0.1:9876

  cometmq message trace 7F00000100002A9F0000000000000000 --json | jq .consumptions

Producers and consumers write traces if their enable_trace is set. The exit code is 4 if nothing was found.
"""
)
def trace(
    msg_id: Annotated[str, typer.Argument(help="The id that the producer gave it.", metavar="ID")],
    topic: Annotated[
        str | None, typer.Option("--topic", help="The topic of the traces, if it is not the usual one.")
    ] = None,
    namesrv: Namesrv = "",
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show what became of a message: who sent it, who consumed it, when, and how that ended."""
    from cometmq.cli.admin.message_trace import trace_lines

    async def work(admin: Admin) -> MessageTrace:
        from cometmq.model.names import TRACE_TOPIC

        return await admin.message_trace(msg_id, trace_topic=topic or TRACE_TOPIC)

    found = ask(Link(namesrv, timeout), work)
    if as_json:
        print_json(found)
    else:
        for line in trace_lines(found):
            say(line)
    if found.is_empty:
        raise NotFoundError(f"no trace of message {msg_id} was found; see whether its clients write traces")
