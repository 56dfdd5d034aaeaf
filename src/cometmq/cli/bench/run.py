"""Common parts of the `cometmq bench` commands: options, topic, temporary group, progress, results.

Rules kept here:
- A group that was made for a run is deleted after it, with its offsets and its retry topic; if that is not
  allowed, its name is shown.
- Progress goes to standard error every second: one changing line on a terminal, elsewhere a line each.
- A run with failures has exit code 1, an interrupted one 130; both show their figures.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec
import typer

from cometmq.cli.bench.figures import Failure, Percentiles, Tally, progress_text
from cometmq.cli.common.connect import silence_clients
from cometmq.cli.common.output import (
    FAILED,
    INTERRUPTED,
    note,
    print_json,
    print_pairs,
    print_rows,
    print_table,
    status_line,
)
from cometmq.cli.common.times import duration
from cometmq.model.errors import ClientError, CometError, NotFoundError

if TYPE_CHECKING:
    from cometmq.client.admin.admin import Admin

T = TypeVar("T")

SECONDS: Final = 10.0
"""The default duration of a load."""
MOST_SIZE: Final = 4 * 1024 * 1024
_EVERY_S: Final = 1.0

Topic = Annotated[str, typer.Option("--topic", "-t", help="The topic.", metavar="TOPIC")]
Messages = Annotated[
    int | None, typer.Option("--messages", help="End after this many messages.", metavar="N", min=1)
]
Seconds = Annotated[
    float | None,
    typer.Option(
        "--seconds", help="Duration; 10s without --messages.", metavar="DURATION", parser=duration(0.1)
    ),
]
Size = Annotated[int, typer.Option("--size", help="Size of a body.", metavar="BYTES", min=1, max=MOST_SIZE)]
Create = Annotated[bool, typer.Option("--create", help="Create the topic if it does not exist.")]
Queues = Annotated[int, typer.Option("--queues", help="With --create: queues on each broker.", min=1)]
Processes = Annotated[
    int, typer.Option("--processes", help="Number of client processes.", metavar="N", min=1, max=64)
]


class Result(msgspec.Struct, rename="camel", kw_only=True):
    """The result of every load."""

    topic: str
    messages: int
    bytes: int
    seconds: float
    messages_per_second: float
    bytes_per_second: float
    cpu_seconds_per_million: float
    processes: int = 1
    latency_ms: Percentiles
    failed: int
    failures: list[Failure]
    interrupted: bool


def figures_of(tally: Tally) -> dict[str, Any]:
    """The members of a `Result` that a tally has."""
    return {
        "messages": tally.messages,
        "bytes": tally.bytes,
        "seconds": round(tally.seconds, 3),
        "messages_per_second": round(tally.rate, 1),
        "bytes_per_second": round(tally.byte_rate, 1),
        "cpu_seconds_per_million": round(tally.cpu_per_million, 3),
        "latency_ms": tally.latencies.percentiles(),
        "failed": tally.failed,
        "failures": list(tally.failures.values()),
    }


def run_bench(work: Coroutine[Any, Any, T]) -> T:
    """Run a load on the event loop of clients."""
    from cometmq.remoting.loop import run

    silence_clients()
    return run(work)


def run_name() -> str:
    """A unique name."""
    return f"bench-{time.time_ns():x}"


# Topics and groups.


async def need_topic(admin: Admin, topic: str, *, create: bool = False, queues: int = 8) -> int:
    """Require a topic, or create it; returns the number of its read queues."""
    if create and await admin.topic_route(topic) is None:
        await admin.create_topic(topic, queues=queues)
    route = await admin.topic_route(topic)
    if route is None:
        raise NotFoundError(
            f"there is no topic {topic}; make it with: cometmq topic create {topic} (or send with --create)"
        )
    return sum(each.read_queue_nums for each in route.queue_datas)


class UsedGroup(msgspec.Struct):
    """The consumer group of a run."""

    name: str
    temporary: bool = False
    removed: bool = False


@asynccontextmanager
async def group_for(
    admin: Admin, topic: str, name: str | None, *, earliest: bool
) -> AsyncIterator[UsedGroup]:
    """The named group, or a temporary one that begins at the first or the last offset."""
    if name is not None:
        yield UsedGroup(name)
        return
    group = UsedGroup(run_name(), temporary=True)
    try:
        await admin.create_group(group.name)
        for queue, status in (await admin.topic_status(topic)).items():
            offset = status.min_offset if earliest else status.max_offset
            await admin.commit_offset(group.name, queue, offset)
    except CometError as error:
        await _remove(admin, group)
        raise ClientError(
            f"no group could be made for this run: {error}; name one that exists with --group"
        ) from None
    try:
        yield group
    finally:
        await _remove(admin, group)


async def _remove(admin: Admin, group: UsedGroup) -> None:
    from cometmq.model.names import retry_topic

    try:
        await admin.delete_group(group.name, clean_offsets=True)
        if await admin.topic_route(retry_topic(group.name)) is not None:
            await admin.delete_topic(retry_topic(group.name))
    except CometError as error:
        note(f"group {group.name} of this run could not be deleted: {error}")
    else:
        group.removed = True


# Progress and results.


@contextmanager
def shown_progress(name: str) -> Iterator[Callable[[Tally], None]]:
    """A callback for progress, which may be called often."""
    last_s, messages = time.monotonic(), 0

    def tell(tally: Tally) -> None:
        nonlocal last_s, messages
        now = time.monotonic()
        if now - last_s >= _EVERY_S:
            show(progress_text(tally, (tally.messages - messages) / (now - last_s)))
            last_s, messages = now, tally.messages

    with status_line(name, 0.0) as show:
        yield tell


def finish(
    result: Result,
    *,
    pairs: Sequence[tuple[str, str]],
    latencies: Sequence[tuple[str, Percentiles]],
    as_json: bool,
    notes: Sequence[str] = (),
    ok: bool = True,
) -> None:
    """Show the result of a run, and end with its exit code."""
    if as_json:
        print_json(result)
    else:
        common = [
            ("messages", f"{result.messages:,}"),
            ("seconds", f"{result.seconds:.2f}"),
            ("messages/s", f"{result.messages_per_second:,.0f}"),
            ("MB/s", f"{result.bytes_per_second / 1e6:,.2f}"),
            ("CPU s per million", f"{result.cpu_seconds_per_million:,.1f}"),
        ]
        print_pairs([*common, *pairs])
        typer.echo()
        titles = ("latency (ms)", "p50", "p90", "p99", "p99.9", "max")
        print_table(titles, [(name, *found.cells()) for name, found in latencies], right=titles[1:])
        if result.failures:
            typer.echo()
            print_rows(Failure, result.failures)
    for each in notes:
        note(each)
    if result.interrupted:
        note("interrupted; this is what was measured until then")
        raise typer.Exit(INTERRUPTED)
    if result.failed or not ok:
        raise typer.Exit(FAILED)
