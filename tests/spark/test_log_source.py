"""The log source on real Spark: stores of Apache and of ours, whole, damaged, crashed and in use."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from cometmq.model.message import Message
from cometmq.testing.embedded import EmbeddedBroker
from tests.spark.spark_kit import as_dicts, broker_with, send
from tests.unit.spark.records_kit import consumer_row
from tests.unit.spark.stores_kit import lines_of, unpacked

SMALL_RANGES = {"partitionBytes": "16384"}
Rows = dict[tuple[str, int, int], dict[str, Any]]


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked("store-clean.tar.gz", tmp_path_factory.mktemp("clean"))


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker that runs, with 300 messages of one topic and 20 of another."""
    messages = [
        Message("many", f"body {number}".encode(), tags=f"t{number % 3}", keys=[f"k{number}"])
        for number in range(300)
    ]
    messages += [Message("few", b"x" * 100_000, tags="t0") for _ in range(20)]
    folder = tmp_path_factory.mktemp("ours")
    with broker_with(messages, folder=folder, mappedFileSizeCommitLog=str(512 * 1024)) as rocketmq:
        yield rocketmq


def log(spark: SparkSession, path: Path | str, **options: str) -> DataFrame:
    return spark.read.format("rocketmq-log").options(**options).load(str(path))


def by_place(rows: list[dict[str, Any]]) -> Rows:
    found = {(row["topic"], row["queueId"], row["queueOffset"]): row for row in rows}
    assert len(found) == len(rows), "a message came twice"
    return found


def seen_by_java(name: str) -> Rows:
    rows = [consumer_row(line) for line in lines_of(name)]
    for row in rows:  # Spark hands out times without a zone, in that of this machine
        for column in ("bornTimestamp", "storeTimestamp"):
            row[column] = row[column].astimezone().replace(tzinfo=None)
    return by_place(rows)


def read_whole(spark: SparkSession, path: Path, **options: str) -> Rows:
    frame = log(spark, path, brokerName="broker-a", includeProperties="true", **options)
    rows = as_dicts(frame.drop("physicalOffset"))
    return by_place(rows)


def test_apaches_store_is_read_to_exactly_what_its_consumer_saw(spark: SparkSession, apache: Path) -> None:
    """D3: every column of every message, read in many ranges."""
    assert read_whole(spark, apache, **SMALL_RANGES) == seen_by_java("messages-clean.jsonl.gz")


def test_a_crashed_store_is_read_to_its_valid_part(spark: SparkSession, tmp_path: Path) -> None:
    """D3: what Apache's own recovery finds."""
    root = unpacked("store-crashed.tar.gz", tmp_path)
    assert (root / "abort").exists()
    assert read_whole(spark, root) == seen_by_java("store/messages-crashed.jsonl.gz")


def test_a_store_in_use_is_read_up_to_its_last_message(spark: SparkSession, ours: EmbeddedBroker) -> None:
    """D3: the broker goes on; the next query sees what came meanwhile."""
    send(ours, [Message("later", b"1")])
    assert log(spark, ours.folder, topic="later").count() == 1
    send(ours, [Message("later", b"2")])
    assert log(spark, ours.folder, topic="later").count() == 2


def test_filters_find_the_same_with_and_without_the_help_of_queue_files(
    spark: SparkSession, ours: EmbeddedBroker
) -> None:
    everything = log(spark, ours.folder)
    rows = as_dicts(everything.where("topic in ('many', 'few')"))
    assert len(rows) == 320
    questions: dict[str, Callable[[dict[str, Any]], bool]] = {
        "topic = 'few' and queueId in (1, 2)": lambda row: row["topic"] == "few" and row["queueId"] in (1, 2),
        "topic = 'many' and queueOffset >= 70 and queueId = 3": lambda row: (
            row["topic"] == "many" and row["queueOffset"] >= 70 and row["queueId"] == 3
        ),
        "topic = 'few' and tags = 't0'": lambda row: row["topic"] == "few" and row["tags"] == "t0",
        "topic = 'few' and tags = 't1'": lambda row: False,
    }
    for question, is_right in questions.items():
        found = by_place(as_dicts(everything.where(question)))
        assert found == by_place([row for row in rows if is_right(row)]), question


def test_a_message_is_found_by_its_id_and_by_its_keys(spark: SparkSession, ours: EmbeddedBroker) -> None:
    """D3: with the help of the index, in a store that is in use."""
    rows = as_dicts(log(spark, ours.folder, topic="many"))
    (row,) = [row for row in rows if row["keys"] == ["k250"]]
    for found in (
        log(spark, ours.folder).where(f"msgId = '{row['msgId']}'"),
        log(spark, ours.folder, keys="k250 nobody-has-it"),
        log(spark, ours.folder, topic="many").where("array_contains(keys, 'k250')"),
    ):
        assert as_dicts(found) == [row]


def test_several_stores_are_read_at_once(spark: SparkSession, apache: Path, ours: EmbeddedBroker) -> None:
    frame = log(spark, f"{apache}, {ours.folder}", brokerName="a,b").groupBy("brokerName").count()
    assert {row["brokerName"]: row["count"] >= 151 for row in frame.collect()} == {"a": True, "b": True}


def test_only_asked_columns_are_read(spark: SparkSession, ours: EmbeddedBroker) -> None:
    reader = spark.read.format("rocketmq-log").schema("body binary, queueId int").option("topic", "few")
    assert as_dicts(reader.load(str(ours.folder)).limit(1)) == [{"body": b"x" * 100_000, "queueId": 0}]


def test_a_schema_that_names_them_has_the_properties_of_senders(
    spark: SparkSession, ours: EmbeddedBroker
) -> None:
    send(ours, [Message("named", b"1", tags="a", properties={"n": "1"})])
    reader = spark.read.format("rocketmq-log").schema("properties map<string,string>")
    assert as_dicts(reader.option("topic", "named").load(str(ours.folder))) == [{"properties": {"n": "1"}}]


def test_damage_ends_a_query_with_an_error_that_names_it(
    spark: SparkSession, apache: Path, tmp_path: Path
) -> None:
    """D3: or is a row, on request."""
    shutil.copytree(apache, tmp_path / "store")
    (log_file,) = (tmp_path / "store" / "commitlog").iterdir()
    with log_file.open("r+b") as file:
        file.write(bytes(50))
    with pytest.raises(PySparkException, match=r"commitlog/0+ is damaged at 0 of the log"):
        log(spark, tmp_path / "store").count()
    bad = log(spark, tmp_path / "store", mode="permissive").where("error is not null")
    assert [row["physicalOffset"] for row in bad.collect()] == [0]


def test_a_mistake_is_told_before_anything_is_read(spark: SparkSession, apache: Path) -> None:
    with pytest.raises(PySparkException, match="did you mean topic"):
        log(spark, apache, topik="x")
