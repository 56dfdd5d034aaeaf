"""`cometmq pipeline`: the commands.

Each one takes the flags of its job (`spark/pipelines/run/jobs.py`) and runs the pipeline of its name.
"""

from __future__ import annotations

from typing import Final

from cometmq.cli.commands import CommandGroup
from cometmq.cli.common.output import counted, shown
from cometmq.cli.pipeline.options import Run, job_command, show_done, shown_progress
from cometmq.cli.pipeline.rebuild import rebuild
from cometmq.cli.pipeline.reports import show_dead_letters, show_rows, show_traces
from cometmq.spark.pipelines.run.jobs import (
    ArchiveJob,
    DeadLettersJob,
    MirrorJob,
    ReplayJob,
    SqlJob,
    TracesJob,
)

app = CommandGroup("pipeline")

_CONTINUES: Final = (
    "\nA definition file (-f, TOML with the names of docs/SPARK.md) can set every option; flags win. "
    "Started again with the same options, the pipeline continues where it stopped.\n"
)


@job_command(app, "archive", ArchiveJob, _CONTINUES)
def archive(run: Run, job: ArchiveJob) -> None:
    """Write topics to Parquet files, each message once, with a manifest of offsets.

    Examples:
      cometmq pipeline archive -t orders -o /data/archive -n 127.0.0.1:9876
      cometmq pipeline archive --pattern 'orders.*' -o s3a://logs/mq --follow
      cometmq pipeline archive -f archive.toml --master spark://host:7077 --json
    """
    from cometmq.spark.pipelines.archive.job import archive

    with run.spark() as spark, shown_progress(run.name) as report:
        done = archive(spark, job, report)
    batches = f"{done.batches} batch" if done.batches == 1 else f"{done.batches} batches"
    show_done(run, done, f"{counted(done.rows, 'message')} in {batches} archived in {done.output}")


@job_command(app, "replay", ReplayJob, _CONTINUES)
def replay(run: Run, job: ReplayJob) -> None:
    """Send messages of a time range again, from topics or from an archive.

    Examples:
      cometmq pipeline replay -t orders --from 2h --to-topic orders-again \\
        --checkpoint /data/replay-1
      cometmq pipeline replay --archive /data/archive -t orders --to-topic orders \\
        --rate 500 --checkpoint /data/replay-2
    """
    from cometmq.spark.pipelines.replay import replay

    with run.spark() as spark, shown_progress(run.name) as report:
        done = replay(spark, job, report)
    progress = f"{done.batches} of {counted(done.steps, 'step')}"
    show_done(run, done, f"{counted(done.rows, 'message')} sent to {done.to_topic}, {progress} done")


@job_command(app, "mirror", MirrorJob, _CONTINUES)
def mirror(run: Run, job: MirrorJob) -> None:
    """Copy topics to another cluster, continuously or once.

    Examples:
      cometmq pipeline mirror -t orders -n a:9876 --to-namesrv b:9876 \\
        --checkpoint /data/mirror
      cometmq pipeline mirror --pattern '.*' -n a:9876 --to-namesrv b:9876 \\
        --prefix a- --once --checkpoint /data/mirror-all
    """
    from cometmq.spark.pipelines.mirror import mirror

    with run.spark() as spark, shown_progress(run.name) as report:
        done = mirror(spark, job, report)
    show_done(run, done, f"{counted(done.rows, 'message')} copied to {done.to_namesrv_addr}")


@job_command(app, "sql", SqlJob)
def sql(run: Run, job: SqlJob) -> None:
    """Query topics with SQL, once or continuously; print the result, or write it to files or a topic.

    Examples:
      cometmq pipeline sql 'SELECT tags, count(*) FROM orders GROUP BY tags'
      cometmq pipeline sql 'SELECT text FROM `my-topic` WHERE tags = "paid"' \\
        --from 2h --json
      cometmq pipeline sql 'SELECT tags, text FROM orders' --stream \\
        -o /data/orders --format json
      cometmq pipeline sql 'SELECT text AS body FROM orders' --stream \\
        --to-topic copies --checkpoint /data/copies

    Each topic is a table with the columns of docs/SPARK.md, and text, the body as a string. Files can be
    queried as well: FROM parquet.`/data/archive`.
    """
    from cometmq.spark.pipelines.sql import sql

    with run.spark() as spark, shown_progress(run.name) as report:
        done = sql(spark, job, lambda rows: show_rows(rows, as_json=run.as_json), report)
    if done is not None and (job.output or job.to_topic):
        show_done(run, done, f"the result is in {job.output or 'topic ' + str(job.to_topic)}")


@job_command(app, "dead-letters", DeadLettersJob)
def dead_letters(run: Run, job: DeadLettersJob) -> None:
    """Count dead letters by group, topic, reason and host.

    Examples:
      cometmq pipeline dead-letters -n 127.0.0.1:9876
      cometmq pipeline dead-letters --group billing --from 1d --json

    Reasons come from message traces. Without them (enable_trace), a reason is unknown.
    """
    from cometmq.spark.pipelines.dead_letters import dead_letters

    with run.spark() as spark:
        report = dead_letters(spark, job)
    shown(report, show_dead_letters, as_json=run.as_json)


@job_command(app, "traces", TracesJob)
def traces(run: Run, job: TracesJob) -> None:
    """Show latencies and failures of sending, delivery and consuming, from message traces.

    Examples:
      cometmq pipeline traces -n 127.0.0.1:9876 --from 1h
      cometmq pipeline traces --trace-topic my-traces --json

    Times are in milliseconds. Sending ends with the broker's response. Delivery is the time from the send
    until a consumer has the message. Consuming is the time that the listener takes.
    """
    from cometmq.spark.pipelines.traces import traces

    with run.spark() as spark:
        report = traces(spark, job)
    shown(report, show_traces, as_json=run.as_json)


app.command()(rebuild)
