"""The log source without Spark around it: what its reader plans and reads, of whole and of damaged stores."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, In, LessThan

from cometmq.model.errors import SettingsError, StoreError
from cometmq.model.sysflag import CompressionType, with_compression
from cometmq.spark.arrow.record_scan import scan_records
from cometmq.spark.columns import PERMISSIVE_LOG_SCHEMA
from cometmq.spark.log import chunks as log_walking
from cometmq.spark.log import store as log_store
from cometmq.spark.log.chunks import LogFile, LogFileReader
from cometmq.spark.log.options import log_options
from cometmq.spark.log.partitions import LogRange, QueueParts
from cometmq.spark.log.source import FilteringLogReader, RocketmqLogSource
from cometmq.store.queue.files import UNIT
from cometmq.wire.record.compression import compress
from cometmq.wire.record.layout import write_filler
from tests.unit.spark.records_kit import consumer_row, placed, record
from tests.unit.spark.stores_kit import lines_of, unpacked

Row = dict[str, Any]


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked("store-clean.tar.gz", tmp_path_factory.mktemp("clean"))


def reader_of(path: Path, *filters: Filter, **options: str) -> FilteringLogReader:
    reader = FilteringLogReader(log_options({"path": str(path), **options}), PERMISSIVE_LOG_SCHEMA.names)
    reader.pushFilters(list(filters))
    return reader


def read(path: Path, *filters: Filter, **options: str) -> list[Row]:
    reader = reader_of(path, *filters, **options)
    return [
        row
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def places(rows: list[Row]) -> list[int]:
    return sorted(row["physicalOffset"] for row in rows)


# Apache's stores


def seen_by_java(name: str) -> list[Row]:
    return sorted(map(consumer_row, lines_of(name)), key=place)


def place(row: Row) -> tuple[str, int, int]:
    return row["topic"], row["queueId"], row["queueOffset"]


def as_java_sees(rows: list[Row]) -> list[Row]:
    shown = []
    for row in sorted(rows, key=place):
        assert row.pop("error") is None
        del row["physicalOffset"]
        shown.append(row | {"properties": dict(row["properties"])})
    return shown


@pytest.mark.parametrize("size", ["4096", "10000", "67108864"])
def test_apaches_store_is_read_to_exactly_what_its_consumer_saw(apache: Path, size: str) -> None:
    """D3: however the log is cut into ranges."""
    rows = read(apache, brokerName="broker-a", includeProperties="true", partitionBytes=size)
    assert as_java_sees(rows) == seen_by_java("messages-clean.jsonl.gz")


def test_a_crashed_store_is_read_to_its_valid_part(tmp_path: Path) -> None:
    """D3: what Apache's own recovery finds."""
    root = unpacked("store-crashed.tar.gz", tmp_path)
    rows = read(root, brokerName="broker-a", includeProperties="true", partitionBytes="4096")
    assert as_java_sees(rows) == seen_by_java("store/messages-crashed.jsonl.gz")


def test_nothing_in_the_directory_changes(apache: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in apache.rglob("*")}
    assert len(read(apache)) == 151
    assert {path: path.stat().st_mtime_ns for path in apache.rglob("*")} == before


def test_messages_of_deleted_topics_come_when_they_are_asked_for(apache: Path) -> None:
    topics = [row["topic"] for row in read(apache, includeDeletedTopics="true")]
    assert len(topics) == 153
    assert {"VecAuto", "VecAutoB"} < set(topics)


# Which messages


def matching(rows: list[Row], is_wanted: Callable[[Row], bool]) -> list[int]:
    found = places([row for row in rows if is_wanted(row)])
    assert found
    return found


def test_topics_are_chosen_by_name_and_by_pattern(apache: Path) -> None:
    rows = read(apache)
    assert places(read(apache, topic="VecTx")) == matching(rows, lambda row: row["topic"] == "VecTx")
    both = matching(rows, lambda row: row["topic"] in ("VecTx", "VecOrder"))
    assert places(read(apache, topics="VecTx, VecOrder")) == both
    of_users = matching(rows, lambda row: row["topic"].startswith("Vec"))
    assert places(read(apache, topicPattern="Vec.*")) == of_users
    assert read(apache, topic="unheard-of") == []


def test_a_span_of_time_is_read(apache: Path) -> None:
    rows = read(apache)
    times = sorted({row["storeTimestamp"] for row in rows})
    start, end = times[20], times[60]
    wanted = matching(rows, lambda row: start <= row["storeTimestamp"] < end)
    options = {"startingTimestamp": start.isoformat(), "endingTimestamp": end.isoformat()}
    assert places(read(apache, **options)) == wanted


def test_queue_files_lead_to_the_messages_of_a_small_topic(apache: Path) -> None:
    reader = reader_of(apache, EqualTo(("topic",), "VecTx"), partitionBytes="4096")
    assert all(isinstance(partition, QueueParts) for partition in reader.partitions())
    whole = reader_of(apache)
    assert all(isinstance(partition, LogRange) for partition in whole.partitions())


QUESTIONS: list[tuple[list[Filter], Callable[[Row], bool]]] = [
    ([EqualTo(("topic",), "VecTx")], lambda row: row["topic"] == "VecTx"),
    (
        [In(("topic",), ("VecTx", "VecOrder")), In(("queueId",), (1, 2))],
        lambda row: row["topic"] in ("VecTx", "VecOrder") and row["queueId"] in (1, 2),
    ),
    (
        [EqualTo(("topic",), "VecOrder"), GreaterThanOrEqual(("queueOffset",), 2)],
        lambda row: row["topic"] == "VecOrder" and row["queueOffset"] >= 2,
    ),
    ([LessThan(("queueOffset",), 1)], lambda row: row["queueOffset"] < 1),
    ([In(("queueId",), (1, 2))], lambda row: row["queueId"] in (1, 2)),
]


@pytest.mark.parametrize("number", range(len(QUESTIONS)))
def test_filters_that_are_certain_find_just_the_messages(apache: Path, number: int) -> None:
    filters, is_wanted = QUESTIONS[number]
    assert places(read(apache, *filters, partitionBytes="4096")) == matching(read(apache), is_wanted)


def forget_units_from(root: Path, place: int) -> None:
    """Let the queues be behind the log."""
    for path in (root / "consumequeue").rglob("0*"):
        if path.is_file():
            units = [*UNIT.iter_unpack(path.read_bytes())]
            kept = [unit if unit[0] < place else (0, 0, 0) for unit in units]
            path.write_bytes(b"".join(UNIT.pack(*unit) for unit in kept))


def test_what_is_not_yet_in_the_queues_of_a_running_broker_is_found_in_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = unpacked("store-crashed.tar.gz", tmp_path)  # as it was in the moment before the crash
    monkeypatch.setattr(log_store, "_is_locked", lambda path: True)
    rows = read(root, partitionBytes="4096")
    assert len(rows) == 451
    forget_units_from(root, places(rows)[300])
    ways = set()
    for topic in {row["topic"] for row in rows}:
        partitions = reader_of(root, topic=topic).partitions()
        ways.add(tuple(sorted({type(partition).__name__ for partition in partitions})))
        expected = matching(rows, lambda row, topic=topic: row["topic"] == topic)  # type: ignore[misc]
        assert places(read(root, topic=topic)) == expected
    assert ("LogRange", "QueueParts") in ways


def test_tags_are_looked_up_in_queue_files(apache: Path) -> None:
    of_tag = [row for row in read(apache) if row["topic"] == "VecTx" and row["tags"] == "T"]
    other = read(apache, EqualTo(("topic",), "VecTx"), EqualTo(("tags",), "unheard-of"))
    assert of_tag
    assert other == []
    found = read(apache, EqualTo(("topic",), "VecTx"), EqualTo(("tags",), "T"))
    assert places(found) == places(of_tag)


# Damage


def damaged(apache: Path, folder: Path, at: int, new: bytes) -> Path:
    shutil.copytree(apache, folder / "store")
    (log_file,) = (folder / "store" / "commitlog").iterdir()
    with log_file.open("r+b") as file:
        file.seek(at)
        file.write(new)
    return folder / "store"


HURT = {"head": (0, bytes(90)), "lengths": (84, b"\x00\x7f"), "place": (28, b"\x01")}


@pytest.mark.parametrize("what", HURT)
def test_damage_is_a_row_with_an_error_or_ends_the_query(apache: Path, tmp_path: Path, what: str) -> None:
    """D3: once, and everything else is read, wherever the ranges are cut."""
    all_places = places(read(apache, includeDeletedTopics="true"))
    hurt = all_places[40]
    shift, new = HURT[what]
    root = damaged(apache, tmp_path, hurt + shift, new)
    for size in (4096, 10_000, hurt, 10**9):
        rows = read(root, mode="permissive", includeDeletedTopics="true", partitionBytes=str(size))
        assert places(rows) == all_places
        (bad,) = [row for row in rows if row["error"] is not None]
        assert (bad["physicalOffset"], bad["topic"], bad["brokerName"]) == (hurt, None, tmp_path.name)
        assert f"at {hurt}" in bad["error"] or f"at {hurt + 4}" in bad["error"]
    with pytest.raises(StoreError, match=rf"commitlog/0+ is damaged at {hurt} .*mode=permissive"):
        read(root)


def test_a_row_with_an_error_has_no_topic_to_be_found_by(apache: Path, tmp_path: Path) -> None:
    hurt = places(read(apache))[40]
    root = damaged(apache, tmp_path, hurt, bytes(90))
    found = read(root, In(("queueId",), (0, 1, 2, 3)), mode="permissive")
    assert found
    assert hurt not in places(found)


def test_a_unit_that_leads_nowhere_is_damage(apache: Path, tmp_path: Path) -> None:
    row = read(apache, topic="VecTx")[0]
    root = damaged(apache, tmp_path, row["physicalOffset"] + 4, b"\x00")
    (bad,) = [row for row in read(root, topic="VecTx", mode="permissive") if row["error"]]
    assert bad["physicalOffset"] == row["physicalOffset"]
    with pytest.raises(StoreError, match="because its queue says so"):
        read(root, topic="VecTx")


def test_a_wrong_body_is_found_when_checksums_are_checked(apache: Path, tmp_path: Path) -> None:
    row = next(row for row in read(apache) if row["body"] == b"tx commit")
    root = damaged(apache, tmp_path, row["physicalOffset"] + 88, b"T")
    assert b"Tx commit" in [row["body"] for row in read(root)]
    (bad,) = [row for row in read(root, mode="permissive", checkCrc="true") if row["error"]]
    assert bad["physicalOffset"] == row["physicalOffset"]
    with pytest.raises(StoreError, match="a body with checksum"):
        read(root, checkCrc="true")


# Logs of our own making

FILE_SIZE = 65536


def store_of(folder: Path, *contents: bytes) -> Path:
    """A store that has nothing but a log, of so many files."""
    (folder / "commitlog").mkdir(parents=True)
    for number, content in enumerate(contents):
        path = folder / "commitlog" / f"{number * FILE_SIZE:020}"
        path.write_bytes(content.ljust(FILE_SIZE, b"\x00"))
    return folder


@given(
    st.lists(st.integers(0, 900), min_size=1, max_size=60),
    st.lists(st.integers(0, FILE_SIZE), max_size=8),
    st.booleans(),
)
def test_every_record_is_in_one_range_wherever_the_log_is_cut(
    sizes: list[int], cuts: list[int], is_full: bool
) -> None:
    content = bytearray(placed(record(bytes(size)) for size in sizes))
    starts = scan_records(content).starts.tolist()
    if is_full:
        used = len(content)
        content += bytes(FILE_SIZE - used)
        write_filler(content, used, FILE_SIZE - used)
    with NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        with LogFileReader(LogFile(file.name, 0, len(content))) as reader:
            edges = [0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]
            found = [
                int(place)
                for start, stop in pairwise(edges)
                for piece in reader.records(reader.beginning_from(start), stop)
                for place in piece.physical_offsets  # type: ignore[union-attr]
            ]
    assert found == starts


def test_a_body_that_cannot_be_decompressed_is_damage(tmp_path: Path) -> None:
    flags = with_compression(0, CompressionType.ZSTD)
    good = [record(compress(bytes(100), CompressionType.ZSTD), sys_flag=flags) for _ in range(200)]
    bad = record(b"nonsense", sys_flag=flags)
    root = store_of(tmp_path, placed([*good, bad, *good]))
    rows = read(root, mode="permissive")
    assert [row["body"] for row in rows if row["error"] is None] == [bytes(100)] * 400
    assert [row["physicalOffset"] for row in rows if row["error"]] == [bad.physical_offset]


def test_a_record_that_is_larger_than_what_is_read_at_once_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_walking, "CHUNK_BYTES", 1000)
    sizes = [0, 10, 5000, 20, 30_000, 0]
    root = store_of(tmp_path, placed(record(bytes(size)) for size in sizes))
    for part in ("4096", "65536"):
        assert [len(row["body"]) for row in read(root, partitionBytes=part)] == sizes


def test_a_log_goes_on_in_the_next_file_and_empty_files_are_passed_over(tmp_path: Path) -> None:
    first = bytearray(placed(record(bytes(100)) for _ in range(50)).ljust(FILE_SIZE, b"\x00"))
    used = 50 * (91 + 100 + 6)
    write_filler(first, used, FILE_SIZE - used)
    root = store_of(tmp_path, bytes(first), placed([record(b"next")], FILE_SIZE), b"")
    rows = read(root, partitionBytes="4096")
    assert len(rows) == 51
    assert rows[-1]["body"] == b"next"


def test_a_record_that_is_quoted_in_a_body_does_not_lead_astray(tmp_path: Path) -> None:
    quoted = placed([record(b"quoted" * 20)] * 5)
    bodies = [quoted * (1 + number % 7) for number in range(20)]
    root = store_of(tmp_path, placed(record(body) for body in bodies))
    for part in ("4096", "5000", "65536"):
        assert [row["body"] for row in read(root, partitionBytes=part)] == bodies


def test_halves_of_transactions_are_no_rows(tmp_path: Path) -> None:
    kinds = {0x0: b"none", 0x4: b"prepared", 0x8: b"commit", 0xC: b"rollback"}
    root = store_of(tmp_path, placed(record(body, sys_flag=flags) for flags, body in kinds.items()))
    assert [row["body"] for row in read(root)] == [b"none", b"commit"]


# Options


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "path is missing"),
        ({"path": "a", "topik": "x"}, "did you mean topic"),
        ({"path": "a", "mode": "strict"}, "permissive or failfast"),
        ({"path": "a", "topic": "a", "topicPattern": "b"}, "exclude each other"),
        ({"path": "a", "topicPattern": "("}, "no regular expression"),
        ({"path": "a", "brokerName": "a,b"}, "2 names for 1 paths"),
        ({"path": "a/store,b/x/../a/store"}, "tell them apart with brokerName"),
        ({"path": "a", "startingTimestamp": "5", "endingTimestamp": "5"}, "endingTimestamp is not after"),
        ({"path": "a", "partitionBytes": "1"}, "at least 4096"),
    ],
)
def test_a_mistake_is_told_before_anything_is_read(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        RocketmqLogSource(options).schema()


def test_a_folder_that_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a store"):
        read(tmp_path)
    with pytest.raises(StoreError, match="is no directory"):
        read(tmp_path / "missing")


def test_the_error_column_is_only_there_in_the_permissive_mode() -> None:
    assert RocketmqLogSource({"path": "a"}).schema().names[-1] == "physicalOffset"
    assert RocketmqLogSource({"path": "a", "mode": "permissive"}).schema().names[-1] == "error"


def test_names_of_brokers_come_from_options_or_folders() -> None:
    def names(**options: str) -> Iterator[str]:
        return (store.broker_name for store in log_options(options).stores)

    assert [*names(path="/data/broker-a/store, /data/broker-b")] == ["broker-a", "broker-b"]
    assert [*names(path="/data/a/store,/data/b/store", brokerName="x, y")] == ["x", "y"]
