"""`cometmq bench producer`: how many messages a system takes, and how long it takes to answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from cometmq.cli.bench.run import (
    SECONDS,
    Create,
    Messages,
    Processes,
    Queues,
    Result,
    Seconds,
    Size,
    Topic,
    figures_of,
    finish,
    need_topic,
    run_bench,
    run_name,
    shown_progress,
)
from cometmq.cli.common.connect import NO_LINK, AsJson, Link
from cometmq.cli.common.output import UsageError, counted

if TYPE_CHECKING:
    from cometmq.cli.bench.figures import Tally
    from cometmq.cli.bench.load_send import ProducerPlan


def producer(
    topic: Topic,
    messages: Messages = None,
    seconds: Seconds = None,
    size: Size = 128,
    in_flight: Annotated[
        int,
        typer.Option(
            "--in-flight", help="Requests in flight of each client.", metavar="N", min=1, max=10_000
        ),
    ] = 64,
    batch: Annotated[
        int, typer.Option("--batch", help="Messages in one request.", metavar="N", min=1, max=1024)
    ] = 1,
    rate: Annotated[
        float | None,
        typer.Option("--rate", help="Messages a second, all clients together.", metavar="N", min=0.1),
    ] = None,
    processes: Processes = 1,
    tag: Annotated[str | None, typer.Option("--tag", help="Tag of the messages.", metavar="TAG")] = None,
    keys: Annotated[bool, typer.Option("--keys", help="Give each message a key of its own.")] = False,
    compress: Annotated[bool, typer.Option("--compress", help="Compress bodies of 4 KiB and more.")] = False,
    create: Create = False,
    queues: Queues = 8,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Measure throughput and latency of sends, at full speed or at a fixed rate.

    Examples:
      cometmq bench producer -t trial --create -n 127.0.0.1:9876
      cometmq bench producer -t trial --messages 1000000 --size 1024 \\
        --in-flight 256 --processes 2
      cometmq bench producer -t trial --rate 5000 --seconds 60 --json

    With --rate, latencies count from when a message was due, so that a stall shows in all that waited for
    it. The exit code is 1 if messages failed; Ctrl-C ends early and shows what was measured until then.
    """
    if messages is not None and messages < processes:
        raise UsageError(
            f"{counted(messages, 'message')} cannot be shared by {processes} processes; use fewer of these"
        )
    from cometmq.cli.bench.load_send import ProducerPlan

    plan = ProducerPlan(
        link=link,
        topic=topic,
        messages=messages,
        seconds=SECONDS if messages is None and seconds is None else seconds,
        size=size,
        in_flight=in_flight,
        batch=batch,
        rate=rate,
        tag=tag,
        keys=keys,
        compress=compress,
        run=run_name(),
    )
    stop = asyncio.Event()
    tally = run_bench(_produce(plan, processes, stop, create=create, queues=queues))
    result = Result(topic=topic, processes=processes, interrupted=stop.is_set(), **figures_of(tally))
    pairs = [("failed", f"{result.failed:,}")]
    finish(result, pairs=pairs, latencies=[("sent until stored", result.latency_ms)], as_json=as_json)


async def _produce(
    plan: ProducerPlan, processes: int, stop: asyncio.Event, *, create: bool, queues: int
) -> Tally:
    from cometmq.cli.bench.processes import run_loads
    from cometmq.client.admin.admin import Admin

    async with Admin(**plan.link.options()) as admin:
        await need_topic(admin, plan.topic, create=create, queues=queues)
    with shown_progress("producer") as tell:
        return await run_loads(shares_of(plan, processes), stop, tell)


def shares_of(plan: ProducerPlan, processes: int) -> list[ProducerPlan]:
    """What each process sends: as many messages as the others, or one more, and its part of the rate."""
    from msgspec.structs import replace

    rate = None if plan.rate is None else plan.rate / processes
    each, more = (None, 0) if plan.messages is None else divmod(plan.messages, processes)
    return [
        replace(
            plan,
            messages=None if each is None else each + (number < more),
            rate=rate,
            run=f"{plan.run}-{number}",
        )
        for number in range(processes)
    ]
