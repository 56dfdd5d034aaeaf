"""`cometmq message`: send messages, look at those of a topic, find and trace them.

Rules kept here:
- Data goes to standard output, everything else to standard error; a cut result says so there.
- As JSON a message has the names of `cometmq store dump`, and the name of its broker. For people it is one
  line; `message get` shows everything.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cometmq.cli.admin import message_groups, message_send
from cometmq.cli.admin.message_format import Format, MessageFormat, format_of
from cometmq.cli.admin.message_groups import MessageId, OfTopic
from cometmq.cli.admin.message_read import follow, last_messages, message_of_id, messages_between
from cometmq.cli.admin.message_send import Topic
from cometmq.cli.commands import CommandGroup
from cometmq.cli.common.connect import NO_LINK, AsJson, Link, ask
from cometmq.cli.common.output import UsageError, note, print_json, print_pairs, say, time_text
from cometmq.cli.common.times import now_ms, parse_time
from cometmq.model.errors import NotFoundError

if TYPE_CHECKING:
    from cometmq.client.admin.admin import Admin
    from cometmq.client.subscription import Expression
    from cometmq.client.trace.query import ConsumeTrace, MessageTrace
    from cometmq.model.message import StoredMessage
    from cometmq.store.tools.dump import MessageDict

app = CommandGroup("message")
app.command()(message_send.send)
app.command()(message_groups.track)
app.command()(message_groups.consume)
app.command("resume-check")(message_groups.resume_check)

SHOWN_OF_BODY: Final = 200

Tags = Annotated[str, typer.Option("--tags", help="Only these tags: 'a || b'.", metavar="TAGS")]
Sql = Annotated[
    str | None, typer.Option("--sql", help="Only messages that match this SQL92 condition.", metavar="SQL")
]


def _expression(tags: str, sql: str | None) -> Expression:
    from cometmq.client.subscription import Sql as SqlExpression

    if sql is not None and tags != "*":
        raise UsageError("say --tags or --sql, not both")
    return tags if sql is None else SqlExpression(sql)


@app.command()
def tail(
    topic: Topic,
    limit: Annotated[int, typer.Option("--limit", "-l", help="Number of messages.", min=0)] = 10,
    is_followed: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new messages as they arrive.")
    ] = False,
    count: Annotated[
        int | None,
        typer.Option("--count", help="With --follow: end after this many messages.", metavar="N", min=1),
    ] = None,
    tags: Tags = "*",
    sql: Sql = None,
    template: Format = None,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Print the last messages of a topic, and with --follow new ones as they arrive.

    Examples:
      cometmq message tail orders -n 127.0.0.1:9876  # the last ten
      cometmq message tail orders --follow --tags 'paid || refunded'
      cometmq message tail orders --limit 100 --json | jq -r .text
      cometmq message tail orders --format '%T %p %o %k %s\\n'

    docs/CLI.md lists the placeholders of a format; most are those of kcat.
    """
    expression, style = _expression(tags, sql), format_of(template, as_json=as_json)
    shown = 0

    def show(messages: Sequence[StoredMessage]) -> bool:
        nonlocal shown
        wanted = messages if count is None else messages[: count - shown]
        print_messages(wanted, style, as_json=as_json)
        sys.stdout.flush()
        shown += len(wanted)
        return count is None or shown < count

    async def work(admin: Admin) -> None:
        messages, ends = await last_messages(admin, topic, limit, expression)
        print_messages(messages, style, as_json=as_json)
        if is_followed:
            sys.stdout.flush()
            await follow(admin, ends, expression, show)

    ask(link, work)


@app.command()
def get(
    msg_id: MessageId,
    topic: OfTopic = None,
    template: Format = None,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Show one message.

    Examples:
      cometmq message get 7F00000100002A9F0000000000000000  # by its offset id
      cometmq message get 0A0B0C0D00016D06F69C1A2B3C4D0000 --topic orders
      cometmq message get 7F00000100002A9F0000000000000000 --format %s > body

    The exit code is 4 if there is no such message.
    """

    style = format_of(template, as_json=as_json)
    found = ask(link, lambda admin: message_of_id(admin, msg_id, topic))
    if style is not None:
        style.write([found])
    elif as_json:
        print_json(as_dict(found))
    else:
        print_whole(found)


@app.command()
def find(
    topic: Topic,
    key: Annotated[str | None, typer.Option("--key", help="Message key.", metavar="KEY")] = None,
    begin: Annotated[
        str | None, typer.Option("--from", help="Stored since: 10m (ago), or a time in UTC.", metavar="WHEN")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="Stored until.", metavar="WHEN")] = None,
    limit: Annotated[int, typer.Option("--limit", "-l", help="Maximum number of messages.", min=1)] = 32,
    tags: Tags = "*",
    sql: Sql = None,
    template: Format = None,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Find messages by key or by store time, the oldest first.

    Examples:
      cometmq message find orders --key 42 -n 127.0.0.1:9876
      cometmq message find orders --from 10m  # of the last ten minutes
      cometmq message find orders --from 2025-01-31T12:00 --to 2025-01-31T12:05

    The exit code is 4 if nothing was found.
    """
    if key is None and begin is None:
        raise UsageError("say what is to be found: --key KEY, or --from WHEN")
    if key is not None and (tags != "*" or sql is not None):
        raise UsageError("--tags and --sql go with --from; leave them out, or leave out --key")
    begin_ms = 0 if begin is None else parse_time(begin)
    end_ms = now_ms() if end is None else parse_time(end)
    expression, style = _expression(tags, sql), format_of(template, as_json=as_json)

    async def work(admin: Admin) -> tuple[list[StoredMessage], bool]:
        if key is None:
            return await messages_between(admin, topic, begin_ms, end_ms, limit, expression)
        found = await admin.query_messages(
            topic, key, max_messages=limit + 1, begin_ms=begin_ms, end_ms=end_ms
        )
        return found[:limit], len(found) > limit

    found, is_cut = ask(link, work)
    print_messages(found, style, as_json=as_json)
    if is_cut:
        note(f"these are {limit}, and there are more; --limit shows them")
    if not found:
        raise NotFoundError(f"no such message was found in topic {topic}")


@app.command()
def trace(
    msg_id: Annotated[str, typer.Argument(help="Message id, as the producer set it.", metavar="ID")],
    topic: Annotated[
        str | None, typer.Option("--topic", help="Trace topic, if it is not the default one.")
    ] = None,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Show the trace of a message: sends, consumptions, times and outcomes.

    Examples:
      cometmq message trace 0A0B0C0D00016D06F69C1A2B3C4D0000
      cometmq message trace 0A0B0C0D00016D06F69C1A2B3C4D0000 --json

    Producers and consumers write traces if their enable_trace is set. The exit code is 4 if nothing was
    found.
    """

    async def work(admin: Admin) -> MessageTrace:
        from cometmq.model.names import TRACE_TOPIC

        return await admin.message_trace(msg_id, trace_topic=topic or TRACE_TOPIC)

    found = ask(link, work)
    if as_json:
        print_json(found)
    else:
        for line in trace_lines(found):
            say(line)
    if found.is_empty:
        raise NotFoundError(f"no trace of message {msg_id} was found; see whether its clients write traces")


def as_dict(message: StoredMessage) -> MessageDict:
    """A message for JSON."""
    from cometmq.store.tools.dump import message_dict

    return {**message_dict(message), "brokerName": message.broker_name}


def body_text(body: bytes, limit: int | None = SHOWN_OF_BODY) -> str:
    """The body on one line: as text if it is text, else in hexadecimal; a long one is cut, and says so."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        text = f"0x{body.hex()}"
    if not text.isprintable():
        text = repr(text)[1:-1]
    if limit is not None and len(text) > limit:
        return f"{text[:limit]}… ({len(body)} bytes)"
    return text


def line_of(message: StoredMessage) -> str:
    """One line: when, where, its id, tag and keys, and the beginning of its body."""
    place = f"{message.broker_name}:{message.queue_id}@{message.queue_offset}"
    marks = [message.tags or "-", " ".join(message.keys) or "-"]
    return "  ".join(
        [time_text(message.store_timestamp_ms), place, message.msg_id, *marks, body_text(message.body)]
    )


def print_messages(
    messages: Iterable[StoredMessage], style: MessageFormat | None = None, *, as_json: bool
) -> None:
    """Messages of a stream: a line each, a document on a line each, or in a format."""
    if style is not None:
        style.write(messages)
        return
    for message in messages:
        if as_json:
            print_json(as_dict(message), compact=True)
        else:
            say(line_of(message))


def print_whole(message: StoredMessage) -> None:
    """Everything about one message."""
    print_pairs(
        [
            ("topic", message.topic),
            (
                "queue",
                f"{message.broker_name}:{message.queue_id}" if message.broker_name else message.queue_id,
            ),
            ("queue offset", message.queue_offset),
            ("message id", message.msg_id),
            ("offset id", message.offset_msg_id),
            ("tag", message.tags),
            ("keys", " ".join(message.keys)),
            ("born (UTC)", f"{time_text(message.born_timestamp_ms)} at {message.born_host}"),
            ("stored (UTC)", f"{time_text(message.store_timestamp_ms)} at {message.store_host}"),
            ("consumed before", message.reconsume_times),
            *((f"property {name}", value) for name, value in sorted(message.properties.items())),
            (f"body ({len(message.body)} bytes)", body_text(message.body, None)),
        ]
    )


def trace_lines(trace: MessageTrace) -> list[str]:
    """One line for each event, in the order of time."""
    from cometmq.client.trace.records import TraceMessageType

    lines: list[tuple[int, str]] = []
    for sent in trace.sent:
        message_type = _name(TraceMessageType, sent.message_type)
        outcome = "ok" if sent.success else "unsafe"
        lines.append(
            (
                sent.timestamp_ms,
                f"sent to {sent.topic} at {sent.store_host} by {sent.group} from {sent.client_host}: "
                f"{message_type}, {sent.body_length} bytes, {sent.cost_ms} ms, {outcome}",
            )
        )
    for ended in trace.transactions:
        asked = " when the broker asked" if ended.from_check else ""
        lines.append((ended.timestamp_ms, f"transaction ended by {ended.group}{asked}: {ended.state}"))
    for recall in trace.recalls:
        outcome = "ok" if recall.success else "failed"
        lines.append((recall.timestamp_ms, f"taken back by {recall.group}: {outcome}"))
    lines += [(each.began_ms or 0, _consumption_text(each)) for each in trace.consumptions]
    return [f"{time_text(timestamp_ms)}  {text}" for timestamp_ms, text in sorted(lines)]


def _consumption_text(consumption: ConsumeTrace) -> str:
    from cometmq.client.trace.records import ConsumeOutcome

    outcome = "not ended"
    if consumption.outcome is not None:
        outcome = f"{_name(ConsumeOutcome, consumption.outcome)}, {consumption.cost_ms} ms"
    return (
        f"consumed by {consumption.group} from {consumption.client_host}, "
        f"attempt {consumption.retry_times + 1}: {outcome}"
    )


def _name(enum: type[IntEnum], value: int) -> str:
    """The name of a value; a newer client may send an unknown one."""
    return enum(value).name.lower().replace("_", " ") if value in set(enum) else str(value)
