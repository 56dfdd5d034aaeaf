"""What tasks of an archive write: which messages into which file, and what is told of it (D3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cometmq.model.errors import SettingsError, StateError
from cometmq.spark.columns import ARROW_SCHEMA
from cometmq.spark.pipelines.archive import files as archive_files
from cometmq.spark.pipelines.archive.files import FILE_SCHEMA, write_files
from cometmq.spark.pipelines.archive.publish import escaped, local_folder
from cometmq.spark.pipelines.archive.source import NOTICE_SCHEMA, UNFINISHED, FilesPlan, Notice, zone_of

MIDNIGHT = datetime(2026, 2, 1, tzinfo=UTC)

Row = tuple[str, int, int, timedelta]
"""A topic, a queue, an offset, and how long after midnight it was stored."""


def batch(*rows: Row) -> pa.RecordBatch:
    nothing = dict.fromkeys(ARROW_SCHEMA.names)
    return pa.RecordBatch.from_pylist(
        [
            nothing
            | {"topic": topic, "brokerName": "b", "queueId": queue, "queueOffset": offset}
            | {"body": b"%d" % offset, "storeTimestamp": MIDNIGHT + after}
            for topic, queue, offset, after in rows
        ],
        ARROW_SCHEMA,
    )


def written(
    folder: Path, batches: Sequence[pa.RecordBatch], *, zone: str = "Z", compression: str = "snappy"
) -> list[Notice]:
    plan = FilesPlan(str(folder), zone, compression)
    rows = [row for each in write_files(iter(batches), plan, folder) for row in each.to_pylist()]
    return [Notice(*(row[name] for name in NOTICE_SCHEMA.names)) for row in rows]


def offsets(folder: Path, notice: Notice) -> list[int]:
    found: list[int] = pq.read_table(folder / (notice.name + UNFINISHED))["queueOffset"].to_pylist()
    return found


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


@pytest.mark.parametrize(
    ("zone", "days"),
    [
        ("Z", [("2026-01-31", [0, 1]), ("2026-02-01", [2, 3])]),
        ("+00:01", [("2026-01-31", [0]), ("2026-02-01", [1, 2, 3])]),
        ("America/New_York", [("2026-01-31", [0, 1, 2, 3])]),
        ("Asia/Kolkata", [("2026-02-01", [0, 1, 2, 3])]),
    ],
)
def test_a_file_has_messages_of_one_day_of_the_sessions_time_zone(
    tmp_path: Path, zone: str, days: list[tuple[str, list[int]]]
) -> None:
    """D3"""
    times = (minutes(-2), minutes(-0.5), minutes(0), minutes(1))
    rows = [("T", 0, offset, after) for offset, after in enumerate(times)]
    notices = written(tmp_path, [batch(*rows)], zone=zone)
    assert [(notice.day, offsets(tmp_path, notice)) for notice in notices] == days


def test_a_file_has_messages_of_one_topic_and_its_notice_says_what_is_in_it(tmp_path: Path) -> None:
    """D3"""
    first = batch(("T", 0, 5, minutes(1)), ("T", 1, 7, minutes(3)), ("%DLQ%g", 0, 9, minutes(2)))
    second = batch(("T", 1, 8, minutes(0)), ("T", 0, 6, minutes(2)))
    of_other, of_topic = sorted(written(tmp_path, [first, second]), key=lambda notice: notice.topic)
    start_ms = int(MIDNIGHT.timestamp() * 1000)
    assert (of_topic.topic, of_topic.rows, offsets(tmp_path, of_topic)) == ("T", 4, [5, 7, 8, 6])
    assert (of_topic.first, of_topic.last) == (start_ms, start_ms + 180_000)
    assert sorted(of_topic.first_offsets) == [("b", 0, 5), ("b", 1, 7)]
    assert (of_other.topic, of_other.rows, of_other.first_offsets) == ("%DLQ%g", 1, [("b", 0, 9)])


@pytest.mark.parametrize(
    ("compression", "codec"),
    [("snappy", "SNAPPY"), ("zstd", "ZSTD"), ("lz4_raw", "LZ4"), ("gzip", "GZIP"), ("none", "UNCOMPRESSED")],
)
def test_files_are_compressed_as_asked(tmp_path: Path, compression: str, codec: str) -> None:
    (notice,) = written(tmp_path, [batch(("T", 0, 0, minutes(0)))], compression=compression)
    file = pq.ParquetFile(tmp_path / (notice.name + UNFINISHED))
    assert file.metadata.row_group(0).column(0).compression == codec
    assert file.schema_arrow == FILE_SCHEMA


def test_a_task_holds_few_messages_and_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day that comes again after its file was ended gets another file."""
    monkeypatch.setattr(archive_files, "OPEN_FILES", 2)
    monkeypatch.setattr(archive_files, "HELD_BYTES", 0)
    days = [0, 1, 1, 2, 0]
    notices = written(
        tmp_path, [batch(("T", 0, offset, timedelta(days=day))) for offset, day in enumerate(days)]
    )
    found = [(notice.day[-1], offsets(tmp_path, notice)) for notice in notices]
    assert found == [("1", [0]), ("2", [1, 2]), ("3", [3]), ("1", [4])]
    grown = pq.ParquetFile(tmp_path / (notices[1].name + UNFINISHED))
    assert grown.num_row_groups == 2


def test_a_task_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D3: neither those that were done nor those that were not."""
    monkeypatch.setattr(archive_files, "OPEN_FILES", 1)
    monkeypatch.setattr(archive_files, "HELD_BYTES", 0)
    seen: list[int] = []

    def lost() -> Iterator[pa.RecordBatch]:
        yield batch(("T", 0, 0, minutes(0)))
        yield batch(("U", 0, 0, minutes(0)))
        seen.append(len(list(tmp_path.iterdir())))
        raise StateError("the broker is gone")

    plan = FilesPlan(str(tmp_path), "Z", "snappy")
    with pytest.raises(StateError, match="the broker is gone"):
        list(write_files(lost(), plan, tmp_path))
    assert seen == [2]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_a_worker_does_not_have_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="one folder that the driver and all workers see"):
        written(tmp_path / "elsewhere", [batch(("T", 0, 0, minutes(0)))])


def test_a_time_zone_that_only_java_knows_is_refused() -> None:
    assert zone_of("-03:30").utcoffset(None) == timedelta(hours=-3, minutes=-30)
    with pytest.raises(SettingsError, match=r"^Python does not know the time zone Mars/Olympus; install"):
        zone_of("Mars/Olympus")


def test_only_folders_of_mounted_file_systems_are_written_by_tasks() -> None:
    """Everything else is Spark's to write to."""
    assert local_folder("file:/data/my archive") == Path("/data/my archive")
    for address in ("hdfs://host:8020/archive", "s3a://bucket/archive", "files:/archive"):
        assert local_folder(address) is None


def test_names_of_folders_are_escaped() -> None:
    assert escaped("%RETRY%a|b_c-D1") == "%25RETRY%25a|b_c-D1"
    assert escaped("a=b/c") == "a%3Db%2Fc"
