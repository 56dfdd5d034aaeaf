"""`cometmq bench latency`: latency from due to stored, and from due to the listener.

Rules kept here:
- Messages are due at a fixed rate, whatever the system does, and each latency counts from when its message
  was due. A producer that waits for each answer hides a stall's effect on the messages due meanwhile
  (coordinated omission).
- Producer and consumer are in one process, so one clock measures both.
- It begins when a message has come back from every queue, so that no connection is made while it measures.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cometmq.cli.bench.figures import Percentiles, Tally
from cometmq.cli.bench.run import (
    Create,
    Queues,
    Result,
    Size,
    Topic,
    figures_of,
    finish,
    group_for,
    need_topic,
    run_bench,
    run_name,
    shown_progress,
)
from cometmq.cli.common.connect import NO_LINK, AsJson, Link
from cometmq.cli.common.times import duration
from cometmq.model.errors import ClientError

if TYPE_CHECKING:
    from cometmq.cli.bench.load_send import ProducerPlan, Sends
    from cometmq.model.message import StoredMessage

_PROBE: Final = "probe"
_IN_FLIGHT: Final = 1_000


class Measured(Result, rename="camel", kw_only=True):
    """The result; `latency_ms` is that of the sends."""

    rate: float
    received: int
    missing: int
    delivery_ms: Percentiles


class Arrivals:
    """The listener: counts the run's own messages and their latencies."""

    def __init__(self, run: str) -> None:
        self._run = run
        self.tally = Tally()
        self.probes: set[tuple[str, int]] = set()
        """The queues from which a probe came back."""

    async def listen(self, message: StoredMessage) -> None:
        from cometmq.cli.bench.load_send import MARK

        run, _, due = message.properties.get(MARK, "").partition(" ")
        if run != self._run:
            return
        if due == _PROBE:
            self.probes.add((message.broker_name, message.queue_id))
            return
        self.tally.messages += 1
        self.tally.latencies.took(time.monotonic() - float(due))


def latency(
    topic: Topic,
    rate: Annotated[float, typer.Option("--rate", help="Messages a second.", metavar="N", min=0.1)] = 500.0,
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds", help="Duration.", metavar="DURATION", parser=duration(0.1), show_default="10s"
        ),
    ] = 10.0,
    size: Size = 128,
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            help="Longest wait for the last message.",
            metavar="DURATION",
            parser=duration(0.1),
            show_default="30s",
        ),
    ] = 30.0,
    create: Create = False,
    queues: Queues = 8,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Measure latency: send at a fixed rate, and consume in the same process.

    Examples:
      cometmq bench latency -t trial --create -n 127.0.0.1:9876
      cometmq bench latency -t trial --rate 5000 --seconds 60 --size 1024
      cometmq bench latency -t trial --json | jq '.deliveryMs["p99.9"]'

    Latencies count from when a message was due by the rate, not from when it could be sent: what a stall
    delays counts as delayed. The exit code is 1 if messages failed, or did not come back within --wait.
    """
    from cometmq.cli.bench.load_send import ProducerPlan

    plan = ProducerPlan(
        link=link,
        topic=topic,
        seconds=seconds,
        size=size,
        in_flight=_IN_FLIGHT,
        rate=rate,
        run=run_name(),
        marked=True,
    )
    stop = asyncio.Event()
    sent, received = run_bench(_measure(plan, wait, stop, create=create, queues=queues))
    result = Measured(
        topic=topic,
        rate=rate,
        received=received.messages,
        missing=max(sent.messages - received.messages, 0),
        delivery_ms=received.latencies.percentiles(),
        interrupted=stop.is_set(),
        **figures_of(sent),
    )
    pairs = [
        ("asked for", f"{result.rate:,.0f}/s"),
        ("failed", f"{result.failed:,}"),
        ("missing", f"{result.missing:,}"),
    ]
    latencies = [("due until stored", result.latency_ms), ("due until consumed", result.delivery_ms)]
    notes = []
    if result.missing:
        notes = [
            f"{result.missing:,} messages were stored and did not come to the listener within {wait:g} s"
        ]
    finish(result, pairs=pairs, latencies=latencies, as_json=as_json, notes=notes, ok=not result.missing)


async def _measure(
    plan: ProducerPlan, wait_s: float, stop: asyncio.Event, *, create: bool, queues: int
) -> tuple[Tally, Tally]:
    """The figures of producer and consumer."""
    from cometmq.cli.bench.load_consume import until
    from cometmq.cli.bench.load_send import Sends
    from cometmq.cli.bench.processes import interrupts, watch
    from cometmq.client.admin.admin import Admin
    from cometmq.client.consumer.push import PushConsumer

    options = plan.link.options()
    arrivals = Arrivals(plan.run)
    async with Admin(**options) as admin:
        await need_topic(admin, plan.topic, create=create, queues=queues)
        async with group_for(admin, plan.topic, None, earliest=False) as group:
            consumer = PushConsumer(group.name, **options)
            consumer.subscribe(plan.topic, listener=arrivals.listen)
            async with Sends(plan) as sends, consumer:
                await _probe(sends, arrivals, wait_s)
                with shown_progress("latency") as tell, interrupts(stop):
                    await watch(sends, stop, tell)
                    await until(lambda: arrivals.tally.messages >= sends.tally.messages, wait_s)
                return sends.measured(), arrivals.tally


async def _probe(sends: Sends, arrivals: Arrivals, wait_s: float) -> None:
    """Send a message to every queue, and wait until all came back."""
    from cometmq.cli.bench.load_consume import until
    from cometmq.cli.bench.load_send import MARK
    from cometmq.model.message import Message

    topic, producer = sends.plan.topic, sends.producer
    probe = Message(topic, b"probe", properties={MARK: f"{sends.plan.run} {_PROBE}"})
    queues = await producer.queues(topic)
    for queue in queues:
        await producer.send(probe, queue=queue)
    if not await until(lambda: len(arrivals.probes) == len(queues), wait_s):
        raise ClientError(
            f"messages of {len(queues) - len(arrivals.probes)} of the {len(queues)} queues of {topic} did "
            f"not come to a consumer within {wait_s:g} s; look for what is wrong with: cometmq doctor"
        )
