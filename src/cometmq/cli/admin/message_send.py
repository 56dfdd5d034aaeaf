"""Sending from the command line: `cometmq message send`.

Rules kept here: each message is sent and shown before the next one, so that an error leaves no doubt about
what was sent before it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cometmq.cli.common.connect import TIMEOUT_S, AsJson, Link, Namesrv, Timeout, run
from cometmq.cli.common.output import UsageError, print_json, say
from cometmq.cli.servers.settings import pairs_of

if TYPE_CHECKING:
    from cometmq.client.producer.sender import SendReceipt

Topic = Annotated[str, typer.Argument(help="The topic.", metavar="TOPIC")]

SEND: Final = """
Examples:

  cometmq message send orders '{"id": 42}' --tag paid --key 42 -n 127.0.0.1:9876

  cometmq message send orders --file order.json --property region=EU --delay 10000

  seq 1000 | cometmq message send numbers --lines
"""


def send(
    topic: Topic,
    body: Annotated[str | None, typer.Argument(help="The body.", metavar="[BODY]")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="Take the body from a file; - is the input.", metavar="FILE")
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Each line of the input is a message.")] = False,
    tag: Annotated[str | None, typer.Option("--tag", help="Its tag.", metavar="TAG")] = None,
    keys: Annotated[list[str] | None, typer.Option("--key", help="A key; may be repeated.")] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", help="May be repeated.", metavar="NAME=VALUE")
    ] = None,
    sharding_key: Annotated[
        str | None, typer.Option("--sharding-key", help="What stays in order.", metavar="KEY")
    ] = None,
    delay: Annotated[
        int | None, typer.Option("--delay", help="Deliver so much later.", metavar="MS", min=0)
    ] = None,
    group: Annotated[str, typer.Option("--group", help="The producer group.")] = "cometmq-cli",
    namesrv: Namesrv = "",
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Send a message, or one for each line of the input."""
    named = pairs_of(properties or [], "--property region=EU")

    def show(receipt: SendReceipt) -> None:
        place = f"{receipt.queue.broker_name}:{receipt.queue.queue_id}@{receipt.queue_offset}"
        if as_json:
            document = {
                "status": receipt.status.value,
                "msgId": receipt.msg_id,
                "offsetMsgId": receipt.offset_msg_id,
                "topic": receipt.queue.topic,
                "brokerName": receipt.queue.broker_name,
                "queueId": receipt.queue.queue_id,
                "queueOffset": receipt.queue_offset,
            }
            print_json(document, compact=True)
        else:
            say(f"{receipt.msg_id}  {place}  {receipt.status.value}")

    async def work() -> None:
        from cometmq.client.producer.producer import Producer
        from cometmq.model.message import Message

        bodies = _bodies(body, file, lines=lines)
        options = Link(namesrv, timeout).options()
        async with Producer(group, send_timeout_ms=int(timeout * 1000), **options) as producer:
            while (each := await asyncio.to_thread(next, bodies, None)) is not None:
                message = Message(
                    topic,
                    each,
                    tags=tag,
                    keys=tuple(keys or ()),
                    properties=named,
                    sharding_key=sharding_key,
                    delay_ms=delay,
                )
                show(await producer.send(message))

    run(work())


def _bodies(body: str | None, file: Path | None, *, lines: bool) -> Iterator[bytes]:
    if (body is not None) + (file is not None) + lines != 1:
        raise UsageError("say what is sent: a body, --file FILE, or --lines")
    if lines:
        return filter(None, (line.rstrip(b"\r\n") for line in sys.stdin.buffer))
    if body is not None:
        return iter([body.encode()])
    if str(file) == "-":
        return iter([sys.stdin.buffer.read()])
    assert file is not None
    try:
        return iter([file.read_bytes()])
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
