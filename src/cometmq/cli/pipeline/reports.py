"""`cometmq pipeline dead-letters`, `traces` and `rebuild`: what fails, how long things take, and new queues.

Rules kept here: reports read, and change nothing. `rebuild` asks first, as `cometmq store rebuild` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cometmq.cli.common.connect import AsJson, Namesrv, Yes
from cometmq.cli.common.output import (
    INTERRUPTED,
    confirm,
    counted,
    note,
    print_json,
    print_table,
    say,
    time_text,
)
from cometmq.cli.pipeline.options import (
    Conf,
    Definition,
    From,
    Master,
    Run,
    SourceOptions,
    To,
    Verbose,
    need_spark,
)

if TYPE_CHECKING:
    from cometmq.spark.pipelines.dead_letters import DeadLetterReport
    from cometmq.spark.pipelines.traces import Line, TraceReport

TraceTopic = Annotated[
    str | None, typer.Option("--trace-topic", help="The topic of the traces.", metavar="TOPIC")
]

DEAD_LETTERS: Final = """
Examples:

  cometmq pipeline dead-letters -n 127.0.0.1:9876

  cometmq pipeline dead-letters --group billing --from 1d --json

The reason of a failure is known of consumers that write traces; of others it is unknown.
"""
TRACES: Final = """
Examples:

  cometmq pipeline traces -n 127.0.0.1:9876 --from 1h

  cometmq pipeline traces --trace-topic my-traces --json

Times are milliseconds: of sending until the answer, of delivery from sending until a consumer has it, of
consuming while the listener runs.
"""
REBUILD: Final = """
Examples:

  cometmq pipeline rebuild ~/store

  cometmq pipeline rebuild /mnt/shared/store --master spark://host:7077 --yes --json

The broker has to be stopped, and all workers have to see the store under the same path. The old queues and
index stay in place until the new ones are complete; what is interrupted is begun again.
"""


def dead_letters(
    groups: Annotated[
        list[str] | None,
        typer.Option("--group", help="Only this group; may be given often.", metavar="GROUP"),
    ] = None,
    start: From = None,
    end: To = None,
    trace_topic: TraceTopic = None,
    file: Definition = None,
    namesrv: Namesrv = "",
    master: Master = None,
    conf: Conf = None,
    options: SourceOptions = None,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Show why and where messages fail: dead letters by group, topic, reason and host."""
    need_spark()
    from cometmq.spark.pipelines import dead_letters as pipeline

    run = Run("dead-letters", file, namesrv, master, conf, options, as_json, verbose)
    times = {"from": start, "to": end}
    job = run.job(pipeline.DeadLettersJob, groups=groups, traceTopic=trace_topic, **times)
    try:
        with run.spark() as spark:
            report = pipeline.dead_letters(spark, job)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print_json(report)
    else:
        _show_dead_letters(report)


def _show_dead_letters(report: DeadLetterReport) -> None:
    titles = ("group", "topic", "reason", "host", "messages", "attempts", "last (UTC)", "last id")
    rows = [
        (
            line.group,
            line.topic,
            line.reason,
            line.host,
            line.count,
            line.most_attempts,
            time_text(line.last_timestamp),
            line.msg_id,
        )
        for line in report.lines
    ]
    print_table(titles, rows, right=("messages", "attempts"), marked=("group",))
    if report.messages and not report.traced:
        note("there are no traces, so no reason is known; consumers write them with enable_trace=True")


def traces(
    start: From = None,
    end: To = None,
    trace_topic: TraceTopic = None,
    file: Definition = None,
    namesrv: Namesrv = "",
    master: Master = None,
    conf: Conf = None,
    options: SourceOptions = None,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Show how long sending, delivery and consuming took, and what failed, from message traces."""
    need_spark()
    from cometmq.spark.pipelines import traces as pipeline

    run = Run("traces", file, namesrv, master, conf, options, as_json, verbose)
    job = run.job(pipeline.TracesJob, traceTopic=trace_topic, **{"from": start, "to": end})
    try:
        with run.spark() as spark:
            report = pipeline.traces(spark, job)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print_json(report)
    else:
        _show_traces(report)


def _show_traces(report: TraceReport) -> None:
    _show_lines("sent", report.sends)
    _show_lines("delivered", report.deliveries)
    _show_lines("consumed", report.consumptions)
    if report.failures:
        rows = [(each.group, each.outcome, each.count, each.msg_id) for each in report.failures]
        print_table(("failures of group", "outcome", "messages", "one of them"), rows, right=("messages",))


def _show_lines(what: str, lines: Sequence[Line]) -> None:
    titles = (what, "group", "messages", "failed", "p50 ms", "p95 ms", "p99 ms", "longest ms")
    rows = [
        (each.topic, each.group, each.count, each.failed, each.p50, each.p95, each.p99, each.longest)
        for each in lines
    ]
    print_table(titles, rows, right=titles[2:], marked=(what,))
    typer.echo()


def rebuild(
    directory: Annotated[
        Path, typer.Argument(help="A store directory.", metavar="DIR", exists=True, file_okay=False)
    ],
    config: Annotated[
        Path | None, typer.Option("-c", help="The broker's properties file.", metavar="FILE")
    ] = None,
    yes: Yes = False,
    file: Definition = None,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Make the consume queues and the index of a large store again from its commit log."""
    need_spark()
    from cometmq.cli.store import progress_bar, store_settings
    from cometmq.spark.rebuild.rebuild import rebuild as rebuild_store

    run = Run("rebuild", file, "", master, conf, None, as_json, verbose)
    settings = store_settings(config)
    confirm(f"Replace the queues and the index of {directory}?", yes=yes)
    try:
        with run.spark() as spark, progress_bar("rebuilding") as progress:
            result = rebuild_store(spark, directory, settings, progress=progress)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print_json(result)
        return
    queues = counted(result.queues, "queue")
    say(f"{counted(result.messages, 'message')}, {queues}, {result.indexed} messages in the index")
    if result.left_out_topics:
        say(f"without queues, as the broker does not know them: {', '.join(result.left_out_topics)}")
