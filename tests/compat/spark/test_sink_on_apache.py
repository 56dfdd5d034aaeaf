"""Rows are written to Apache's broker, at least once; exactly once it cannot, and says so (D2)."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cometmq import Admin
from cometmq.model.errors import ClientError
from cometmq.spark.live.batch import RocketmqReader
from cometmq.spark.live.options import live_options
from cometmq.spark.sink.exactly_once import WriteId
from tests.compat.cluster import Cluster
from tests.spark.sink_kit import numbered, rows, tasks
from tests.waiting import wait_until

TOPIC = "SparkSinkOnApache"
COUNT = 2000


def read(namesrv: str) -> list[dict[str, object]]:
    """What is in the topic."""
    columns = ["queueId", "tags", "keys", "properties", "body", "msgId"]
    given = {"namesrvAddr": namesrv, "topic": TOPIC, "includeProperties": "true"}
    reader = RocketmqReader(live_options(given, streaming=False), columns)
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_apaches_broker_takes_what_the_sink_sends(cluster: Cluster) -> None:
    """D2: batches for any queue, for the queue of a key, and delayed messages."""
    namesrv = cluster.namesrv.address
    batch = rows(
        body=[f"{number}" for number in range(COUNT)],
        tags=["even" if number % 2 == 0 else None for number in range(COUNT)],
        keys=pa.array([[f"k{number}", "größe"] for number in range(COUNT)], pa.list_(pa.string())),
        properties=pa.array([[("città", "🚀")]] * COUNT, pa.map_(pa.string(), pa.string())),
        shardingKey=[f"s{number % 5}" if number % 4 else None for number in range(COUNT)],
        delayLevel=[1 if number % 1000 == 7 else None for number in range(COUNT)],
    )
    with Admin(namesrv=namesrv) as admin, tasks(namesrv, {"topic": TOPIC}) as kit:
        admin.create_topic(TOPIC, queues=4)
        kit.write(None, batch)

        def all_there() -> bool:
            return sum(each.max_offset for each in admin.topic_status(TOPIC).values()) == COUNT

        wait_until(all_there, seconds=60, what="the queues have all messages")
    found = {int(row["body"]): row for row in read(namesrv)}  # type: ignore[call-overload]
    assert sorted(found) == list(range(COUNT))
    assert len({row["msgId"] for row in found.values()}) == COUNT
    for number in (0, 7, 1999):
        row = found[number]
        assert row["keys"] == [f"k{number}", "größe"]
        assert row["tags"] == ("even" if number % 2 == 0 else None)
        assert dict(row["properties"])["città"] == "🚀"  # type: ignore[call-overload]
    queues: dict[int, set[object]] = {}
    for number, row in found.items():
        if number % 4:
            queues.setdefault(number % 5, set()).add(row["queueId"])
    assert all(len(each) == 1 for each in queues.values())


def test_exactly_once_is_refused_before_anything_is_sent(cluster: Cluster) -> None:
    """D2."""
    namesrv = cluster.namesrv.address
    with Admin(namesrv=namesrv) as admin, tasks(namesrv, {"topic": "OnceOnApache"}) as kit:
        admin.create_topic("OnceOnApache", queues=4)
        with pytest.raises(ClientError, match=r"cannot store messages exactly once.*leave exactlyOnce out"):
            kit.write(WriteId("q", 0, 0), numbered(0, 10))
        assert sum(each.max_offset for each in admin.topic_status("OnceOnApache").values()) == 0
