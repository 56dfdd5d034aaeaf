"""`cometmq message send`: send messages from arguments, a file or standard input.

Rules kept here:
- With `--lines` up to `MOST_IN_FLIGHT` sends are under way, and one if a sharding key wants them in order.
- Receipts are shown in the order of the lines. After a failure no further line is read; what is under way is
  shown, or reported with its line number, so that it is clear which ones were sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cometmq.cli.common.connect import NO_LINK, AsJson, Link, run
from cometmq.cli.common.output import UsageError, exit_code, note, print_json, say
from cometmq.cli.common.times import milliseconds
from cometmq.cli.servers.settings import pairs_of
from cometmq.model.errors import CometError

if TYPE_CHECKING:
    from cometmq.client.producer.sender import SendReceipt

MOST_IN_FLIGHT: Final = 256
CHUNK: Final = 64 * 1024

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
        int | None,
        typer.Option(
            "--delay", help="Delay of the delivery: 10s, 2h30m.", metavar="DURATION", parser=milliseconds
        ),
    ] = None,
    producer_group: Annotated[
        str, typer.Option("--group", help="The producer group.", metavar="PRODUCER_GROUP")
    ] = "cometmq-cli",
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Send a message, or one for each line of standard input.

    Examples:
      cometmq message send orders '{"id": 42}' --tag paid --key 42
      cometmq message send orders --file order.json --delay 10s
      seq 1000 | cometmq message send numbers --lines
    """
    from cometmq.model.message import Message

    named = pairs_of(properties or [], "--property region=EU")
    if (body is not None) + (file is not None) + lines != 1:
        raise UsageError("say what is sent: a body, --file FILE, or --lines")

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

    def message_of(content: bytes) -> Message:
        return Message(
            topic,
            content,
            tags=tag,
            keys=tuple(keys or ()),
            properties=named,
            sharding_key=sharding_key,
            delay_ms=delay,
        )

    async def work() -> None:
        from cometmq.client.producer.producer import Producer

        content = None if lines else _body(body, file)
        options = link.options()
        timeout_ms = int(link.timeout_s * 1000)
        async with Producer(producer_group, send_timeout_ms=timeout_ms, **options) as producer:
            if content is not None:
                show(await producer.send(message_of(content)))
                return
            in_flight = 1 if sharding_key else MOST_IN_FLIGHT
            found = _input_lines(producer.settings.max_message_size)
            await send_lines(found, lambda line: producer.send(message_of(line)), show, in_flight)

    run(work())


async def send_lines(
    lines: AsyncIterator[tuple[int, bytes]],
    send: Callable[[bytes], Coroutine[Any, Any, SendReceipt]],
    show: Callable[[SendReceipt], None],
    in_flight: int,
) -> None:
    """Send numbered lines, several at a time, and show the receipts in the order of the lines."""
    slots = asyncio.Semaphore(in_flight)
    sends: asyncio.Queue[tuple[int, asyncio.Task[SendReceipt]] | None] = asyncio.Queue()

    async def begin() -> None:
        try:
            async for number, line in lines:
                await slots.acquire()
                sends.put_nowait((number, asyncio.create_task(send(line))))
        finally:
            sends.put_nowait(None)

    beginning = asyncio.create_task(begin())
    failure: CometError | None = None
    while (entry := await sends.get()) is not None:
        number, sending = entry
        try:
            show(await sending)
        except CometError as error:
            note(f"error: line {number}: {error}")
            failure = failure or error
            beginning.cancel()
        slots.release()
    if failure is not None:
        raise typer.Exit(exit_code(failure))
    await beginning


async def _input_lines(longest: int) -> AsyncIterator[tuple[int, bytes]]:
    """The lines of standard input that are not empty, with their numbers.

    A thread reads them that nothing waits for: the command can end while its input is silent.
    """
    loop, chunks = asyncio.get_running_loop(), asyncio.Queue[bytes](1)
    source: Any = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)  # without the lock of a buffered reader

    def read() -> None:
        with contextlib.suppress(RuntimeError, CancelledError):  # the loop has ended
            chunk = None
            while chunk != b"":
                chunk = source.read(CHUNK)
                asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()

    threading.Thread(target=read, name="cometmq-input", daemon=True).start()
    number, rest = 0, b""
    while chunk := await chunks.get():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            number += 1
            if body := line.removesuffix(b"\r"):
                yield number, body
        if len(rest) > longest:
            raise UsageError(f"line {number + 1} is longer than a message may be ({longest} bytes)")
    if rest:
        yield number + 1, rest.removesuffix(b"\r")


def _body(body: str | None, file: Path | None) -> bytes:
    if body is not None:
        return body.encode()
    if str(file) == "-":
        return sys.stdin.buffer.read()
    assert file is not None
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
