"""Spark reads from Apache's broker what was sent to it; Apache's tools see how far it is, there and here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cometmq import Admin, Message, Producer
from cometmq.spark.live.batch import RocketmqReader
from cometmq.spark.live.options import live_options
from tests.compat.apache import AdminShell, CometBroker, CometNamesrv
from tests.compat.cluster import Cluster
from tests.spark import live_driver
from tests.waiting import wait_until

TOPIC = "SparkOnApache"
GROUP = "driven"
COUNT = 1000
RUN_S = 600.0


@pytest.fixture(scope="module")
def filled(cluster: Cluster) -> str:
    """The name server of a cluster that has the messages."""
    fill(cluster.namesrv.address)
    return cluster.namesrv.address


def fill(namesrv: str) -> None:
    with Admin(namesrv=namesrv) as admin, Producer("spark-compat", namesrv=namesrv) as producer:
        admin.create_topic(TOPIC, queues=4)
        for start in range(0, COUNT, 100):
            producer.send_batch(
                [
                    Message(TOPIC, b"%d" % number, tags="even" if number % 2 == 0 else "odd")
                    for number in range(start, start + 100)
                ]
            )
        producer.send(
            Message(TOPIC, b"%d" % COUNT + b" " * 10_000, keys=["größe"], properties={"città": "🚀"})
        )

        def all_there() -> bool:
            return sum(each.max_offset for each in admin.topic_status(TOPIC).values()) == COUNT + 1

        wait_until(all_there, seconds=60, what="the queues have all messages")


def rows(namesrv: str, **options: str) -> list[dict[str, object]]:
    """What workers read."""
    columns = ["body", "tags", "keys", "properties", "brokerName"]
    given = {"namesrvAddr": namesrv, "topic": TOPIC, "includeProperties": "true", **options}
    reader = RocketmqReader(live_options(given, streaming=False), columns)
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_every_message_is_read_with_its_properties(filled: str) -> None:
    """D1: 32 messages a pull, whatever is asked for; the last one is compressed."""
    found = {int(row["body"]): row for row in rows(filled)}  # type: ignore[call-overload]
    assert sorted(found) == list(range(COUNT + 1))
    assert (found[7]["tags"], found[8]["tags"], found[7]["brokerName"]) == ("odd", "even", "broker-a")
    assert found[COUNT]["keys"] == ["größe"]
    assert ("città", "🚀") in found[COUNT]["properties"]  # type: ignore[operator]


def test_its_broker_filters_by_tags(filled: str) -> None:
    found = [int(row["body"]) for row in rows(filled, tags="odd")]  # type: ignore[call-overload]
    assert sorted(found) == list(range(1, COUNT, 2))


@pytest.mark.timeout(900)
def test_a_streaming_query_reads_all_and_mqadmin_shows_its_progress(
    filled: str, cluster: Cluster, tmp_path: Path
) -> None:
    """D1"""
    check_stream(filled, cluster.mqadmin, tmp_path)


@pytest.mark.timeout(900)
def test_mqadmin_shows_the_progress_of_a_query_on_our_cluster_too(tmp_path: Path) -> None:
    """D1"""
    with (
        CometNamesrv(tmp_path / "namesrv") as namesrv,
        CometBroker(tmp_path / "broker", namesrv.address) as broker,
        AdminShell(tmp_path / "shell") as shell,
    ):
        broker.wait_registered(namesrv.address)
        fill(namesrv.address)
        check_stream(namesrv.address, partial(shell.run, namesrv=namesrv.address), tmp_path)


def check_stream(namesrv: str, mqadmin: Callable[..., str], folder: Path) -> None:
    """A query that reads everything, and what mqadmin says of its group then."""
    command = [sys.executable, live_driver.__file__, namesrv, TOPIC, str(folder), "availableNow"]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    run = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, env=environment, check=False)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]

    written = pq.read_table(folder / "out", columns=["body"])["body"].to_pylist()
    assert sorted(map(int, written)) == list(range(COUNT + 1))
    progress = mqadmin("consumerProgress", "-g", GROUP, "-t", TOPIC)
    # Topic, broker, queue, offset of the broker, offset of the group, the client if there is one, the lag.
    lines = re.findall(rf"^{TOPIC} +broker-a +\d +(\d+) +(\d+) .*$", progress, re.MULTILINE)
    assert len(lines) == 4, progress
    assert all(broker == consumer for broker, consumer in lines)
    assert sum(int(consumer) for _, consumer in lines) == COUNT + 1
    assert "Consume Diff Total: 0" in progress or "Diff Total: 0" in progress, progress
