"""`cometmq pipeline`: topics as files, tables and copies, on Spark.

`sql` is in `pipeline_sql`; the reports, and `rebuild`, are in `pipeline_reports`.
"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from cometmq.cli.commands import group_app
from cometmq.cli.common.connect import AsJson, Namesrv
from cometmq.cli.common.output import counted
from cometmq.cli.pipeline import reports as pipeline_reports
from cometmq.cli.pipeline import sql as pipeline_sql
from cometmq.cli.pipeline.options import (
    AtLeastOnce,
    Checkpoint,
    Conf,
    Definition,
    Every,
    From,
    Master,
    Pattern,
    Run,
    SourceOptions,
    To,
    Topics,
    Verbose,
    need_spark,
    show_done,
    shown_progress,
)

app = group_app("pipeline")

Rate = Annotated[int | None, typer.Option("--rate", help="Messages a second.", metavar="N", min=1)]
Group = Annotated[
    str | None, typer.Option("--group", help="A consumer group that shows how far it is.", metavar="GROUP")
]
KeepQueues = Annotated[
    bool | None, typer.Option("--keep-queues/--spread", help="To queues of the same numbers, or to any.")
]
ToNamesrv = Annotated[
    str | None, typer.Option("--to-namesrv", help="The name servers of the other cluster.", metavar="ADDRS")
]

_DEFINITION: Final = """
Every option can stand in a definition file (-f), TOML with the names of docs/SPARK.md; flags win. Start it
again with the same options, and it goes on where it stopped.
"""


@app.command(
    epilog=f"""
Examples:

  cometmq pipeline archive -t orders -o /data/archive -n 127.0.0.1:9876        what there is now, then ends

  cometmq pipeline archive --pattern 'orders.*' -o s3a://logs/mq --follow      for ever

  cometmq pipeline archive -f archive.toml --master spark://host:7077 --json

{_DEFINITION}"""
)
def archive(
    topics: Topics = None,
    pattern: Pattern = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", help="Where the files go.", metavar="DIR")
    ] = None,
    start: From = None,
    follow: Annotated[bool | None, typer.Option("--follow", help="Go on for ever.")] = None,
    every: Every = None,
    group: Group = None,
    batch_rows: Annotated[
        int | None, typer.Option("--batch-rows", help="Messages of a batch at most.", metavar="N", min=1)
    ] = None,
    properties: Annotated[
        str | None,
        typer.Option("--properties", help="Which to archive: user, all or none.", metavar="WHICH"),
    ] = None,
    compression: Annotated[
        str | None, typer.Option("--compression", help="snappy, zstd, lz4_raw, gzip or none.", metavar="NAME")
    ] = None,
    checkpoint: Checkpoint = None,
    file: Definition = None,
    namesrv: Namesrv = "",
    master: Master = None,
    conf: Conf = None,
    options: SourceOptions = None,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Write topics to Parquet files, each message once, with a manifest of offsets."""
    need_spark()
    from cometmq.spark.pipelines.archive import job as pipeline

    run = Run("archive", file, namesrv, master, conf, options, as_json, verbose)
    job = run.job(
        pipeline.ArchiveJob,
        topics=topics,
        topicPattern=pattern,
        output=output,
        follow=follow,
        everyS=every,
        group=group,
        batchRows=batch_rows,
        properties=properties,
        compression=compression,
        checkpoint=checkpoint,
        **{"from": start},
    )
    with run.spark() as spark, shown_progress(run.name) as report:
        done = pipeline.archive(spark, job, report)
    batches = f"{done.batches} batch" if done.batches == 1 else f"{done.batches} batches"
    show_done(run, done, f"{counted(done.rows, 'message')} in {batches} archived in {done.output}")


@app.command(
    epilog=f"""
Examples:

  cometmq pipeline replay -t orders --from 2h --to-topic orders-again --checkpoint /data/replay-1

  cometmq pipeline replay --archive /data/archive -t orders --to-topic orders --rate 500 --checkpoint DIR

{_DEFINITION}"""
)
def replay(
    topics: Topics = None,
    pattern: Pattern = None,
    archive: Annotated[
        str | None, typer.Option("--archive", help="Read from this archive instead.", metavar="DIR")
    ] = None,
    start: From = None,
    end: To = None,
    to_topic: Annotated[str | None, typer.Option("--to-topic", help="Where to.", metavar="TOPIC")] = None,
    to_namesrv: ToNamesrv = None,
    checkpoint: Checkpoint = None,
    rate: Rate = None,
    keep_queues: KeepQueues = None,
    at_least_once: AtLeastOnce = None,
    file: Definition = None,
    namesrv: Namesrv = "",
    master: Master = None,
    conf: Conf = None,
    options: SourceOptions = None,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Send messages of a time range to a topic once more, from topics or from an archive."""
    need_spark()
    from cometmq.spark.pipelines import replay as pipeline

    run = Run("replay", file, namesrv, master, conf, options, as_json, verbose)
    job = run.job(
        pipeline.ReplayJob,
        topics=topics,
        topicPattern=pattern,
        archive=archive,
        toTopic=to_topic,
        toNamesrvAddr=to_namesrv,
        checkpoint=checkpoint,
        rate=rate,
        keepQueues=keep_queues,
        atLeastOnce=at_least_once,
        **{"from": start, "to": end},
    )
    with run.spark() as spark, shown_progress(run.name) as report:
        done = pipeline.replay(spark, job, report)
    progress = f"{done.batches} of {counted(done.steps, 'step')}"
    show_done(run, done, f"{counted(done.rows, 'message')} sent to {done.to_topic}, {progress} done")


@app.command(
    epilog=f"""
Examples:

  cometmq pipeline mirror -t orders -n a:9876 --to-namesrv b:9876 --checkpoint /data/mirror        for ever

  cometmq pipeline mirror --pattern '.*' -n a:9876 --to-namesrv b:9876 --prefix a- --once --checkpoint DIR

{_DEFINITION}"""
)
def mirror(
    topics: Topics = None,
    pattern: Pattern = None,
    start: From = None,
    to_namesrv: ToNamesrv = None,
    checkpoint: Checkpoint = None,
    prefix: Annotated[
        str | None, typer.Option("--prefix", help="Put before the names of topics there.", metavar="TEXT")
    ] = None,
    group: Group = None,
    once: Annotated[bool | None, typer.Option("--once", help="End with what there is now.")] = None,
    every: Every = None,
    keep_queues: KeepQueues = None,
    at_least_once: AtLeastOnce = None,
    file: Definition = None,
    namesrv: Namesrv = "",
    master: Master = None,
    conf: Conf = None,
    options: SourceOptions = None,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Keep topics of one cluster on another one, too."""
    need_spark()
    from cometmq.spark.pipelines import mirror as pipeline

    run = Run("mirror", file, namesrv, master, conf, options, as_json, verbose)
    job = run.job(
        pipeline.MirrorJob,
        topics=topics,
        topicPattern=pattern,
        toNamesrvAddr=to_namesrv,
        checkpoint=checkpoint,
        prefix=prefix,
        group=group,
        once=once,
        everyS=every,
        keepQueues=keep_queues,
        atLeastOnce=at_least_once,
        **{"from": start},
    )
    with run.spark() as spark, shown_progress(run.name) as report:
        done = pipeline.mirror(spark, job, report)
    show_done(run, done, f"{counted(done.rows, 'message')} copied to {done.to_namesrv_addr}")


app.command(epilog=pipeline_sql.EPILOG)(pipeline_sql.sql)
app.command("dead-letters", epilog=pipeline_reports.DEAD_LETTERS)(pipeline_reports.dead_letters)
app.command(epilog=pipeline_reports.TRACES)(pipeline_reports.traces)
app.command(epilog=pipeline_reports.REBUILD)(pipeline_reports.rebuild)
