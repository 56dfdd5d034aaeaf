"""Small batches of a stream: the driver reads them, and nobody sees a difference but in time (D1)."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming import python_streaming_source_runner as runner

from cometmq import Message, Producer
from cometmq.model.errors import ClientError
from cometmq.spark.live import driver_batches as small_batches
from cometmq.spark.live.partitions import RangesPartition
from cometmq.spark.source import RocketmqSource
from cometmq.testing.embedded import EmbeddedBroker
from tests.spark.live_kit import Live

COUNT = 300
QUEUES = 3


@pytest.fixture(scope="module")
def rocketmq() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as rocketmq:
        rocketmq.call(rocketmq.create_topic("small", queues=QUEUES))
        with Producer("small", namesrv=rocketmq.namesrv) as producer:
            for number in range(COUNT):
                tags = "even" if number % 2 == 0 else "odd"
                producer.send(Message("small", b"%d" % number, tags=tags, properties={"n": str(number)}))
        yield rocketmq


class Planner:
    """Spark's side of a stream reader, where it plans: its own code, without Spark."""

    def __init__(self, rocketmq: EmbeddedBroker, **options: str) -> None:
        given = {
            "namesrvAddr": rocketmq.namesrv,
            "topic": "small",
            "startingOffsets": "earliest",
            "pollTimeoutMs": "2000",
            **options,
        }
        self.source = RocketmqSource(given)
        reader = self.source.streamReader(self.source.schema())
        assert isinstance(reader, small_batches.PromptStreamReader)
        self.reader = reader
        self.start = self.reader.initialOffset()

    def plan(self) -> tuple[int, list[int] | None]:
        """How many partitions the whole topic makes, and the numbers that come along."""
        end = self.reader.latestOffset(self.start, self.reader.getDefaultReadLimit())
        asked, told = BytesIO(), BytesIO()
        for offset in (self.start, end):
            text = json.dumps(offset).encode()
            asked.write(struct.pack(">i", len(text)) + text)
        asked.seek(0)
        runner.partitions_func(self.reader, self.source, self.source.schema(), 10_000, asked, told)
        told.seek(0)
        (partitions,) = struct.unpack(">i", told.read(4))
        for _ in range(partitions):
            told.read(struct.unpack(">i", told.read(4))[0])
        (what,) = struct.unpack(">i", told.read(4))
        if what == runner.PREFETCHED_RECORDS_NOT_FOUND:
            return partitions, None
        if what == runner.EMPTY_PYARROW_RECORD_BATCHES:
            return partitions, []
        told.read(4)  # the mark of a stream
        rows = pa.ipc.open_stream(told).read_all()
        return partitions, sorted(map(int, rows.column("body").to_pylist()))


def planned(rocketmq: EmbeddedBroker, **options: str) -> tuple[int, list[int] | None]:
    planner = Planner(rocketmq, **options)
    try:
        return planner.plan()
    finally:
        planner.reader.stop()


def test_rows_of_a_small_batch_come_with_its_plan(rocketmq: EmbeddedBroker) -> None:
    assert planned(rocketmq) == (1, list(range(COUNT)))
    assert planned(rocketmq, tags="even") == (1, list(range(0, COUNT, 2)))
    assert planned(rocketmq, tags="never") == (1, [])


@pytest.mark.parametrize(
    "options",
    [
        {"driverMaxRecords": "0"},
        {"driverMaxRecords": str(COUNT - 1)},
        {"minPartitions": "3"},
        {"maxRecordsPerPartition": "100"},
    ],
    ids=str,
)
def test_what_is_not_small_or_to_be_read_in_parallel_is_left_to_tasks(
    rocketmq: EmbeddedBroker, options: dict[str, str]
) -> None:
    partitions, rows = planned(rocketmq, **options)
    assert rows is None
    assert partitions >= 1


def test_rows_that_turn_out_large_are_left_to_tasks(
    rocketmq: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so are the next batches for a while, without being read first."""
    planner = Planner(rocketmq)
    reads = 0
    read = small_batches.SmallBatches._read

    def counted(*arguments: Any) -> Any:
        nonlocal reads
        reads += 1
        return read(*arguments)

    monkeypatch.setattr(small_batches.SmallBatches, "_read", counted)
    monkeypatch.setattr(small_batches, "MAX_BYTES", 1000)
    assert [planner.plan()[1] for _ in range(5)] == [None] * 5
    assert reads == 1
    monkeypatch.setattr(small_batches, "MAX_BYTES", 1_000_000)
    assert planner.plan() == (1, list(range(COUNT)))
    planner.reader.stop()


def test_a_reader_passes_for_spark_s_own_only_while_it_has_rows(rocketmq: EmbeddedBroker) -> None:
    """Otherwise Spark would not ask it how large the backlog is."""
    planner = Planner(rocketmq)
    planner.plan()
    assert planner.reader.__class__ is small_batches.PromptStreamReader
    report = planner.reader.reportLatestOffset()
    assert report is not None
    assert sum(report["small"]["embedded"].values()) == COUNT
    planner.reader.stop()


def test_a_broker_that_is_away_is_left_to_tasks() -> None:
    with EmbeddedBroker() as rocketmq:
        rocketmq.call(rocketmq.create_topic("small", queues=1))
        with Producer("small", namesrv=rocketmq.namesrv) as producer:
            producer.send(Message("small", b"1"))
        planner = Planner(rocketmq)
        end = planner.reader.latestOffset(planner.start, planner.reader.getDefaultReadLimit())
    (partition,) = planner.reader.partitions(planner.start, end)
    assert isinstance(partition, RangesPartition)
    assert [each.count for each in partition.ranges] == [1]
    worker = pickle.loads(pickle.dumps(planner.reader))
    with pytest.raises(ClientError, match="could not be read at offset 0"):
        list(worker.read(partition))
    planner.reader.stop()


def test_every_column_is_the_same_whoever_reads(live: Live, tmp_path: Path) -> None:
    topic = live.topic(queues=3)
    live.send(
        *(
            Message(topic, b"%d" % number, tags=f"t{number % 3}", keys=[f"k{number}"], properties={"ü": "ß"})
            for number in range(60)
        )
    )
    options = {"maxOffsetsPerTrigger": 25, "includeProperties": "true"}
    live.run_to_end(live.stream(topic, **options), tmp_path / "driver")
    live.run_to_end(live.stream(topic, driverMaxRecords=0, **options), tmp_path / "tasks")

    def rows(who: str) -> list[Any]:
        frame = live.spark.read.parquet(str(tmp_path / who / "out"))
        return sorted(
            (row.asDict(recursive=True) for row in frame.collect()), key=lambda row: int(row["body"])
        )

    assert len(rows("driver")) == 60
    assert rows("driver") == rows("tasks")
    assert rows("driver")[7]["properties"]["ü"] == "ß"
