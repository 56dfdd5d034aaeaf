"""`cometmq message send`: send messages from arguments, a file or standard input.

Rules kept here: each message is sent and shown before the next one, so that after an error it is clear which
ones were sent.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cometmq.cli.common.connect import NO_LINK, AsJson, Link, run
from cometmq.cli.common.output import UsageError, print_json, say
from cometmq.cli.servers.settings import pairs_of

if TYPE_CHECKING:
    from cometmq.client.producer.sender import SendReceipt

Topic = Annotated[str, typer.Argument(help="The topic.", metavar="TOPIC")]


def send(
    topic: Topic,
    body: Annotated[str | None, typer.Argument(help="The body.", metavar="[BODY]")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="File with the body; - is standard input.", metavar="FILE")
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Send each line of standard input as a message.")
    ] = False,
    tag: Annotated[str | None, typer.Option("--tag", help="Tag.", metavar="TAG")] = None,
    keys: Annotated[list[str] | None, typer.Option("--key", help="Key; may be repeated.")] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", help="Property; may be repeated.", metavar="NAME=VALUE")
    ] = None,
    sharding_key: Annotated[
        str | None,
        typer.Option(
            "--sharding-key", help="Messages with the same sharding key stay in order.", metavar="KEY"
        ),
    ] = None,
    delay: Annotated[
        int | None, typer.Option("--delay", help="Delay of the delivery.", metavar="MS", min=0)
    ] = None,
    group: Annotated[str, typer.Option("--group", help="The producer group.")] = "cometmq-cli",
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Send a message, or one for each line of standard input.

    Examples:
      cometmq message send orders '{"id": 42}' --tag paid --key 42 -n 127.0.0.1:9876
      cometmq message send orders --file order.json --property region=EU --delay 10000
      seq 1000 | cometmq message send numbers --lines
    """
    named = pairs_of(properties or [], "--property region=EU")

    def show(receipt: SendReceipt) -> None:
        queue, status = receipt.queue, receipt.status.value
        if not as_json:
            position = f"{queue.broker_name}:{queue.queue_id}@{receipt.queue_offset}"
            say(f"{receipt.msg_id}  {position}  {status}")
            return
        document = {
            "status": status,
            "msgId": receipt.msg_id,
            "offsetMsgId": receipt.offset_msg_id,
            "topic": queue.topic,
            "brokerName": queue.broker_name,
            "queueId": queue.queue_id,
            "queueOffset": receipt.queue_offset,
        }
        print_json(document, compact=True)

    async def work() -> None:
        from cometmq.client.producer.producer import Producer
        from cometmq.model.message import Message

        bodies = _bodies(body, file, lines=lines)
        options = link.options()
        async with Producer(group, send_timeout_ms=int(link.timeout_s * 1000), **options) as producer:
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
