"""The programs in the Spark guide, and those in `examples/`, work as they stand there."""

from __future__ import annotations

import runpy
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from cometmq import Admin, Message
from cometmq.testing.embedded import EmbeddedBroker
from tests.integration.cli.cli_kit import Cometmq
from tests.integration.documents.documents import Snippet, every_snippet, snippets
from tests.spark.live_kit import Live, numbers

PROGRAMS = list(snippets("docs/SPARK.md", "python"))
STREAMS = [
    next(each for each in snippets(page, "python") if "readStream" in each.text)
    for page in ("README.md", "docs/GETTING_STARTED.md")
]


def commands(page: str) -> Iterator[list[str]]:
    """What the page says to type at `cometmq` and leaves to these tests."""
    for block in every_snippet(page):
        if block.note == "run by tests/spark/test_guide.py":
            typed = (shlex.split(step.command) for step in block.steps())
            yield from (words[1:] for words in typed if words[0] == "cometmq")


def test_the_programs_of_the_guide_run_one_after_the_other(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """D1, D3: on a topic of two tags."""
    monkeypatch.chdir(tmp_path)
    live.rocketmq.call(live.rocketmq.create_topic("orders", queues=2))
    live.rocketmq.call(live.rocketmq.create_topic("invoices", queues=1))
    live.send(*(Message("orders", b"%d" % number, tags="paid") for number in range(4)))
    for program in PROGRAMS:
        text = program.on(live.rocketmq.namesrv).replace("/data/store", str(live.rocketmq.folder))
        for path in ("lake/orders", "lake/checkpoint"):
            text = text.replace(f'"{path}"', f'"{tmp_path / path}"')
        text = text.replace('"archive"', f'"{tmp_path / "archive"}"')
        exec(compile(text, program.name, "exec"), {"__name__": program.name})
    shown = capsys.readouterr().out
    assert "[SourceLag(min_offsets_behind_latest=0, max_offsets_behind_latest=0," in shown
    assert "|paid| 42| NULL|" in shown  # JSON with its schema
    assert " |-- id: long" in shown  # JSON without one
    printed = shown.split()
    assert "4" in printed
    assert printed[-2:] == ["4", "4"]
    assert numbers(live.spark.read.parquet(str(tmp_path / "lake" / "orders"))) == [0, 1, 2, 3]
    assert [bytes(row.body) for row in live.table("invoices").collect()] == [b'{"id":42}']


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.page)
def test_a_first_stream_counts_what_was_sent(live: Live, stream: Snippet) -> None:
    """D1: everything that is there, then it ends."""
    live.rocketmq.call(live.rocketmq.create_topic("orders", queues=2))
    live.send(*(Message("orders", b"x", tags="paid") for _ in range(5)))
    there = live.table("orders").count()
    names: dict[str, Any] = {"__name__": stream.name}
    exec(compile(stream.on(live.rocketmq.namesrv), stream.name, "exec"), names)
    assert sum(progress.numInputRows for progress in names["query"].recentProgress) == there >= 5


def test_the_pipelines_of_the_guide_run_as_they_are_typed(live: Live, tmp_path: Path) -> None:
    """D1, D2, D3: one after the other, from one cluster to another, and on a copy of a store."""
    live.rocketmq.call(live.rocketmq.create_topic("orders", queues=2))
    for name in ("orders-again", "RMQ_SYS_TRACE_TOPIC"):
        live.rocketmq.call(live.rocketmq.create_topic(name, queues=1))
    live.send(*(Message("orders", b"x", tags="paid") for _ in range(5)))
    there = live.table("orders").count()
    cometmq = Cometmq(live.rocketmq.namesrv)
    with EmbeddedBroker() as other:
        for words in commands("docs/SPARK.md"):
            if "rebuild" in words:
                shutil.copytree(other.folder, tmp_path / "store")
            here = [
                word.replace("/data", str(tmp_path)).replace("10.0.0.2:9876", other.namesrv) for word in words
            ]
            cometmq.ok(*here)
        with Admin(namesrv=other.namesrv) as admin:
            mirrored = sum(each.max_offset for each in admin.topic_status("orders").values())
    assert mirrored == live.table("orders-again").count() == there


def test_the_query_that_a_newcomer_types_counts_orders(live: Live) -> None:
    """D1: as docs/GETTING_STARTED.md has it."""
    live.rocketmq.call(live.rocketmq.create_topic("orders", queues=2))
    live.send(Message("orders", b"x", tags="shipped"))
    (typed,) = commands("docs/GETTING_STARTED.md")
    live.spark.catalog.dropTempView(
        "orders"
    )  # a newcomer has a session of his own, without an older query's table
    shown = Cometmq(live.rocketmq.namesrv).ok(*typed).out
    assert shown.split()[:2] == ["tags", "orders"]
    assert ["shipped", "1"] in [line.split() for line in shown.splitlines()]


def run_patiently(program: str) -> None:
    """On a busy machine Spark gives up on its own Python before a query has begun, at times."""
    while True:
        try:
            runpy.run_path(program)
        except StreamingQueryException as error:
            if "Python worker failed to connect back" not in str(error):
                raise
        else:
            return


def test_the_examples_count_orders(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """D1: by a query, and by a stream until it is interrupted."""
    live.rocketmq.call(live.rocketmq.create_topic("orders", queues=2))
    live.send(*(Message("orders", b"x", tags="refunded") for _ in range(7)))

    def interrupted(query: StreamingQuery, timeout: int | None = None) -> NoReturn:
        query.processAllAvailable()
        raise KeyboardInterrupt

    monkeypatch.setattr(StreamingQuery, "awaitTermination", interrupted)
    monkeypatch.setattr(sys, "argv", ["example", live.rocketmq.namesrv, str(tmp_path)])
    runpy.run_path("examples/spark_sql.py")
    run_patiently("examples/spark_stream.py")

    assert "|refunded|     7|" in capsys.readouterr().out
    with Admin(namesrv=live.rocketmq.namesrv) as admin:
        progress = admin.consumer_progress("spark-orders", "orders").values()
    assert all(each.consumer_offset == each.broker_offset for each in progress)
    assert sum(each.consumer_offset for each in progress) >= 7
