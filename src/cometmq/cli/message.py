"""`cometmq message`: look at messages of a running cluster.

Rules kept here: data goes to standard output, everything else to standard error; what the commands need is
imported when they run.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated

import typer

from cometmq.model.errors import ClientError

if TYPE_CHECKING:
    from cometmq.client.trace_query import Consumption, MessageTrace

HELP = "Look at messages of a running cluster."

app = typer.Typer(help=HELP, no_args_is_help=True, add_completion=False)


@app.callback()
def messages() -> None:
    """Look at messages of a running cluster."""


@app.command(
    epilog="""
Examples:

  cometmq message trace 7F00000100002A9F0000000000000000 --namesrv 127.0.0.1:9876

  cometmq message trace 7F00000100002A9F0000000000000000 --json | jq .consumptions

Producers and consumers write traces if their enable_trace is set. The exit code is 1 if nothing was found.
"""
)
def trace(
    msg_id: Annotated[str, typer.Argument(help="The id that the producer gave it.", metavar="ID")],
    namesrv: Annotated[
        str, typer.Option("--namesrv", "-n", help="Name servers; else NAMESRV_ADDR.", metavar="ADDRS")
    ] = "",
    topic: Annotated[
        str | None, typer.Option("--topic", help="The topic of the traces, if it is not the usual one.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show what became of a message: who sent it, who consumed it, when, and how that ended."""
    import msgspec

    found = asyncio.run(_find(msg_id, namesrv, topic))
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        for line in _lines(found):
            typer.echo(line)
    if found.is_empty:
        raise ClientError(f"no trace of message {msg_id} was found; see whether its clients write traces")


async def _find(msg_id: str, namesrv: str, topic: str | None) -> MessageTrace:
    from cometmq.client.admin import Admin
    from cometmq.client.names import TRACE_TOPIC

    async with Admin(namesrv=namesrv) as admin:
        return await admin.message_trace(msg_id, trace_topic=topic or TRACE_TOPIC)


def _lines(trace: MessageTrace) -> list[str]:
    """One line for everything that happened, in the order of time."""
    from cometmq.client.trace_records import TraceMessageType

    lines: list[tuple[int, str]] = []
    for sent in trace.sent:
        kind = _name(TraceMessageType, sent.message_type)
        lines.append(
            (
                sent.timestamp_ms,
                f"sent to {sent.topic} at {sent.store_host} by {sent.group} from {sent.client_host}: "
                f"{kind}, {sent.body_length} bytes, {sent.cost_ms} ms, {'ok' if sent.success else 'unsafe'}",
            )
        )
    for ended in trace.transactions:
        asked = " when the broker asked" if ended.from_check else ""
        lines.append((ended.timestamp_ms, f"transaction ended by {ended.group}{asked}: {ended.state}"))
    for recall in trace.recalls:
        outcome = "ok" if recall.success else "failed"
        lines.append((recall.timestamp_ms, f"taken back by {recall.group}: {outcome}"))
    lines += [(each.began_ms or 0, _consumption_text(each)) for each in trace.consumptions]
    return [f"{_time(timestamp_ms)}  {text}" for timestamp_ms, text in sorted(lines)]


def _consumption_text(consumption: Consumption) -> str:
    from cometmq.client.trace_records import ConsumeOutcome

    outcome = "not ended"
    if consumption.outcome is not None:
        outcome = f"{_name(ConsumeOutcome, consumption.outcome)}, {consumption.cost_ms} ms"
    return (
        f"consumed by {consumption.group} from {consumption.client_host}, "
        f"attempt {consumption.retry_times + 1}: {outcome}"
    )


def _name(kind: type[IntEnum], value: int) -> str:
    """What a number of a newer client stands for is not known here."""
    return kind(value).name.lower().replace("_", " ") if value in set(kind) else str(value)


def _time(timestamp_ms: int) -> str:
    moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03}"
