"""`cometmq bench spark`: how fast Spark reads a topic.

Rules kept here: every run reads the same messages, counts them and the bytes of their bodies, and is not
believed if it found fewer; the first one, in which Spark warms up, is not shown.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from cometmq.cli.bench.run import Topic, need_topic
from cometmq.cli.common.connect import NO_LINK, AsJson, Link, ask
from cometmq.cli.common.output import counted, note, print_table, shown
from cometmq.cli.pipeline.options import Conf, Master, Run, SourceOptions, Verbose, need_spark
from cometmq.model.errors import ClientError, NotFoundError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cometmq.client.admin.admin import Admin
    from cometmq.model.queue import MessageQueue

    Ranges = dict[MessageQueue, tuple[int, int]]


class SparkRun(msgspec.Struct, rename="camel"):
    """One reading of the topic."""

    seconds: float
    rows_per_second: float
    bytes_per_second: float


class SparkResult(msgspec.Struct, rename="camel"):
    """What Spark read; the rates of the whole are those of the run in the middle."""

    topic: str
    master: str
    rows: int
    bytes: int
    partitions: int
    rows_per_second: float
    bytes_per_second: float
    runs: list[SparkRun]


def spark(
    topic: Topic,
    rows: Annotated[
        int | None, typer.Option("--rows", help="Rows to read; else all.", metavar="N", min=1)
    ] = None,
    runs: Annotated[
        int, typer.Option("--runs", help="Runs, after a first one that does not count.", metavar="N", min=1)
    ] = 3,
    link: Link = NO_LINK,
    master: Master = None,
    conf: Conf = None,
    options: SourceOptions = None,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Measure how fast Spark reads a topic with the source rocketmq.

    Examples:
      cometmq bench spark -t trial -n 127.0.0.1:9876
      cometmq bench spark -t trial --rows 1000000 --option minPartitions=8
      cometmq bench spark -t trial --runs 5 --json | jq .rowsPerSecond

    It needs pip install 'cometmq[spark]' and Java 17 or newer. The exit code is 4 if the topic is empty.
    """
    need_spark()
    from cometmq.spark.pipelines.run.jobs import Job
    from cometmq.spark.pipelines.run.streams import plain_errors

    ranges = ask(link, lambda admin: ranges_of(admin, topic, rows))
    run = Run("bench", None, link.namesrv, link.context, master, conf, options, verbose, as_json)
    reading = run.job(Job).source_options(topic=topic, **_offsets(ranges))
    with run.spark() as session, plain_errors():
        table = session.read.format("rocketmq").options(**reading).load()
        found, size = _read(table)
        result = SparkResult(
            topic, session.sparkContext.master or "", found, size, table.rdd.getNumPartitions(), 0.0, 0.0, []
        )
        for number in range(runs):
            result.runs.append(_timed(table, result))
            note(f"bench: run {number + 1} of {runs}, {result.runs[-1].rows_per_second:,.0f} rows a second")
    result.rows_per_second = statistics.median_low(each.rows_per_second for each in result.runs)
    result.bytes_per_second = statistics.median_low(each.bytes_per_second for each in result.runs)
    shown(result, show, as_json=as_json)


async def ranges_of(admin: Admin, topic: str, rows: int | None) -> Ranges:
    """The range of offsets to read in each queue: all of it, or its share of `rows`."""
    from cometmq.spark.live.offsets import share

    await need_topic(admin, topic)
    status = await admin.topic_status(topic)
    held = {queue: each.max_offset - each.min_offset for queue, each in status.items()}
    there = sum(held.values())
    if not there:
        raise NotFoundError(
            f"topic {topic} is empty; send something first, such as: cometmq bench producer --topic {topic}"
        )
    if rows is not None and rows > there:
        note(f"topic {topic} has {there:,} messages, which are fewer than {rows:,}")
    taken = share(held, there if rows is None else rows)
    return {queue: (each.min_offset, each.min_offset + taken[queue]) for queue, each in status.items()}


def _offsets(ranges: Ranges) -> dict[str, str]:
    """Ranges as options of the source."""
    from cometmq.spark.live.offsets import to_nested

    starts = to_nested({queue: start for queue, (start, _) in ranges.items()})
    ends = to_nested({queue: end for queue, (_, end) in ranges.items()})
    return {"startingOffsets": json.dumps(starts), "endingOffsets": json.dumps(ends)}


def _read(table: DataFrame) -> tuple[int, int]:
    """Read everything; how many rows, and how many bytes in their bodies."""
    found = table.selectExpr("count(*) AS rows", "sum(length(body)) AS bytes").collect()[0]
    return found["rows"], found["bytes"] or 0


def _timed(table: DataFrame, expected: SparkResult) -> SparkRun:
    begun = time.perf_counter()
    found = _read(table)
    seconds = time.perf_counter() - begun
    if found != (expected.rows, expected.bytes):
        raise ClientError(
            f"a run found {found[0]:,} rows, the first one {expected.rows:,}: messages expire meanwhile; "
            "measure on a topic that stays as it is"
        )
    return SparkRun(round(seconds, 3), round(found[0] / seconds, 1), round(found[1] / seconds, 1))


def show(result: SparkResult) -> None:
    """For people."""
    titles = ("run", "seconds", "rows/s", "MB/s")
    table = [
        (number, f"{each.seconds:.2f}", f"{each.rows_per_second:,.0f}", f"{each.bytes_per_second / 1e6:,.2f}")
        for number, each in enumerate(result.runs, 1)
    ]
    print_table(titles, table, right=titles)
    typer.echo(
        f"{result.rows:,} rows, {result.bytes / 1e6:,.1f} MB, {counted(result.partitions, 'partition')}, "
        f"{result.master}"
    )
