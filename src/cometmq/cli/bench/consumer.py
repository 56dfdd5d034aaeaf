"""`cometmq bench consumer`: how fast messages come out, and how old they are then."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from cometmq.cli.bench.run import (
    SECONDS,
    Messages,
    Processes,
    Result,
    Seconds,
    Topic,
    UsedGroup,
    figures_of,
    finish,
    group_for,
    need_topic,
    run_bench,
    shown_progress,
)
from cometmq.cli.common.connect import NO_LINK, AsJson, Link
from cometmq.cli.common.output import UsageError, counted
from cometmq.cli.common.times import duration
from cometmq.model.errors import NotFoundError

if TYPE_CHECKING:
    from cometmq.cli.bench.figures import Tally
    from cometmq.cli.bench.load_consume import ConsumerPlan


class Start(StrEnum):
    """Where a run begins."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Consumed(Result, rename="camel", kw_only=True):
    """The result of a consumer load."""

    group: str
    group_deleted: bool
    from_future: int
    """Messages that arrived before they were born."""


def consumer(
    topic: Topic,
    group: Annotated[
        str | None, typer.Option("--group", help="Use this group and its offsets.", metavar="GROUP")
    ] = None,
    messages: Messages = None,
    seconds: Seconds = None,
    start: Annotated[
        Start, typer.Option("--from", help="Where a new group begins.", show_choices=True)
    ] = Start.EARLIEST,
    batch: Annotated[
        int,
        typer.Option("--batch", help="Messages in one call of the listener.", metavar="N", min=1, max=1024),
    ] = 1,
    processes: Processes = 1,
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            help="Give up after this time without a message.",
            metavar="DURATION",
            parser=duration(0.1),
            show_default="30s",
        ),
    ] = 30.0,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Measure the throughput of consuming with an empty listener, and the age of messages.

    Examples:
      cometmq bench consumer -t trial --messages 1000000 -n 127.0.0.1:9876
      cometmq bench consumer -t trial --from latest --seconds 60
      cometmq bench consumer -t trial --processes 4 --batch 32 --json

    Without --group, a group is made for the run and deleted after it. The age of a message is the time from
    its producer's send to the listener; it means something only if the clocks of both machines agree. The
    exit code is 4 if no message came, and 1 if fewer came than --messages says.
    """
    from cometmq.cli.bench.load_consume import ConsumerPlan

    plan = ConsumerPlan(
        link=link,
        topic=topic,
        group=group or "",
        messages=messages,
        seconds=SECONDS if messages is None and seconds is None else seconds,
        earliest=start is Start.EARLIEST,
        batch=batch,
        wait_s=wait,
    )
    stop = asyncio.Event()
    tally, used = run_bench(_consume(plan, processes, stop))
    if not tally.messages and not stop.is_set():
        raise NotFoundError(
            f"no message of topic {topic} came within {wait:g} s; "
            f"send some with: cometmq bench producer --topic {topic}"
        )
    result = Consumed(
        topic=topic,
        processes=processes,
        interrupted=stop.is_set(),
        group=used.name,
        group_deleted=used.removed,
        from_future=tally.early,
        **figures_of(tally),
    )
    notes = []
    if result.from_future and not as_json:
        notes.append(
            f"{result.from_future:,} messages came before they were sent; the clocks of the machines differ"
        )
    is_short = messages is not None and tally.messages < messages and seconds is None
    if is_short and not stop.is_set():
        notes.append(f"these are fewer than {messages}: nothing more came for {wait:g} s")
    latencies = [("age when consumed", result.latency_ms)]
    pairs = [("group", result.group)]
    finish(result, pairs=pairs, latencies=latencies, as_json=as_json, notes=notes, ok=not is_short)


async def _consume(plan: ConsumerPlan, processes: int, stop: asyncio.Event) -> tuple[Tally, UsedGroup]:
    from msgspec.structs import replace

    from cometmq.cli.bench.processes import run_loads
    from cometmq.client.admin.admin import Admin

    async with Admin(**plan.link.options()) as admin:
        queues = await need_topic(admin, plan.topic)
        if processes > queues:
            raise UsageError(
                f"topic {plan.topic} has {counted(queues, 'queue')}, and each is read by one process; "
                f"say --processes {queues}, or fewer"
            )
        async with group_for(admin, plan.topic, plan.group or None, earliest=plan.earliest) as used:
            plans = [replace(plan, group=used.name)] * processes
            with shown_progress("consumer") as tell:
                tally = await run_loads(plans, stop, tell, enough=plan.messages, queues=queues)
    return tally, used
