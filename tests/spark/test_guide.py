"""The programs in the Spark guide, and those in `examples/`, work as they stand there."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from cometmq import Admin, Message
from tests.integration.documents import snippets
from tests.spark.live_kit import Live, numbers

PROGRAMS = list(snippets("docs/SPARK.md", "python"))
STREAM = next(each for each in snippets("README.md", "python") if "readStream" in each.text)


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
    printed = capsys.readouterr().out.split()
    assert "4" in printed
    assert printed[-2:] == ["4", "4"]
    assert numbers(live.spark.read.parquet(str(tmp_path / "lake" / "orders"))) == [0, 1, 2, 3]
    assert [bytes(row.body) for row in live.table("invoices").collect()] == [b'{"id":42}']


def test_the_stream_of_the_readme_counts_what_was_sent(live: Live) -> None:
    """D1: everything that is there, then it ends."""
    live.rocketmq.call(live.rocketmq.create_topic("orders", queues=2))
    live.send(*(Message("orders", b"x", tags="paid") for _ in range(5)))
    there = live.table("orders").count()
    names: dict[str, Any] = {"__name__": STREAM.name}
    exec(compile(STREAM.on(live.rocketmq.namesrv), STREAM.name, "exec"), names)
    assert sum(progress.numInputRows for progress in names["query"].recentProgress) == there >= 5


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
