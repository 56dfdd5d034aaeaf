"""`cometmq pipeline sql`: questions to topics.

Rules kept here: rows are shown as a table, or as JSON; those that are left out are said to be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from cometmq.cli.common.connect import AsJson, Namesrv
from cometmq.cli.common.output import INTERRUPTED, Cell, note, print_json, print_table
from cometmq.cli.pipeline.options import (
    AtLeastOnce,
    Checkpoint,
    Conf,
    Definition,
    Every,
    From,
    Master,
    Run,
    SourceOptions,
    To,
    Verbose,
    need_spark,
    show_done,
    shown_progress,
)

if TYPE_CHECKING:
    from cometmq.spark.pipelines.sql import Rows

EPILOG: Final = """
Examples:

  cometmq pipeline sql 'SELECT tags, count(*) FROM orders GROUP BY tags' -n 127.0.0.1:9876

  cometmq pipeline sql 'SELECT text FROM `my-topic` WHERE tags = "paid"' --from 2h --json

  cometmq pipeline sql 'SELECT tags, text FROM orders' --stream -o /data/orders --format json

  cometmq pipeline sql 'SELECT text AS body FROM orders' --stream --to-topic copies --checkpoint DIR

A topic is a table with the columns of docs/SPARK.md, and text, the body as text. Files are tables as well:
FROM parquet.`/data/archive`.
"""


def sql(
    query: Annotated[str | None, typer.Argument(help="What to ask, in Spark's SQL.", metavar="QUERY")] = None,
    stream: Annotated[bool | None, typer.Option("--stream", help="Again as messages come.")] = None,
    once: Annotated[
        bool | None, typer.Option("--once", help="With --stream: end with what there is now.")
    ] = None,
    start: From = None,
    end: To = None,
    properties: Annotated[
        bool | None, typer.Option("--properties", help="Read the properties of messages, too.")
    ] = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", help="A folder for the result.", metavar="DIR")
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="Of files: parquet, json, csv or orc.", metavar="NAME")
    ] = None,
    overwrite: Annotated[bool | None, typer.Option("--overwrite", help="Replace the folder.")] = None,
    to_topic: Annotated[
        str | None, typer.Option("--to-topic", help="A topic for the result.", metavar="TOPIC")
    ] = None,
    mode: Annotated[
        str | None, typer.Option("--mode", help="Of a stream: append, update, complete.", metavar="NAME")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-l", help="Rows to show at most.", min=1)] = None,
    every: Every = None,
    checkpoint: Checkpoint = None,
    at_least_once: AtLeastOnce = None,
    file: Definition = None,
    namesrv: Namesrv = "",
    master: Master = None,
    conf: Conf = None,
    options: SourceOptions = None,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Ask topics in SQL, once or as messages come; the answer is shown, or goes to files or a topic."""
    need_spark()
    from cometmq.spark.pipelines import sql as pipeline

    run = Run("sql", file, namesrv, master, conf, options, as_json, verbose)
    job = run.job(
        pipeline.SqlJob,
        query=query,
        stream=stream,
        once=once,
        properties=properties,
        output=output,
        format=form,
        overwrite=overwrite,
        toTopic=to_topic,
        mode=mode,
        limit=limit,
        everyS=every,
        checkpoint=checkpoint,
        atLeastOnce=at_least_once,
        **{"from": start, "to": end},
    )
    try:
        with run.spark() as spark, shown_progress(run.name) as report:
            done = pipeline.sql(spark, job, lambda rows: _show_rows(rows, as_json=as_json), report)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    if done is not None and (job.output or job.to_topic):
        show_done(run, done, f"the result is in {job.output or 'topic ' + str(job.to_topic)}")


def _show_rows(rows: Rows, *, as_json: bool) -> None:
    if as_json:
        print_json(rows, compact=rows.batch is not None)
        return
    cells = [[_cell(value) for value in row] for row in rows.rows]
    print_table(rows.columns, cells)
    if rows.is_cut:
        note(f"these are the first {len(rows.rows)} rows; --limit shows more")


def _cell(value: object) -> Cell:
    return value if isinstance(value, str | int | float) or value is None else str(value)
