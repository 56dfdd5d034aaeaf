"""Topics as Parquet files: complete, each message once, and with manifests that say what is where (D3)."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row

from cometmq import Message
from cometmq.model.errors import RouteNotFoundError, SettingsError, StateError
from cometmq.spark.pipelines.archive import job as archives
from cometmq.spark.pipelines.archive.job import ArchiveJob, archive, batches_of, read_archive
from cometmq.spark.pipelines.archive.publish import TaskFiles
from cometmq.spark.pipelines.archive.source import UNFINISHED, temporary_folder
from cometmq.spark.pipelines.run.files import Files
from cometmq.spark.pipelines.run.streams import Progress
from tests.spark.live_kit import Live, numbers


def job(live: Live, topic: str, folder: Path, **settings: object) -> ArchiveJob:
    given = {"namesrv_addr": live.rocketmq.namesrv, "topics": (topic,), "output": str(folder), **settings}
    return ArchiveJob(**given)  # type: ignore[arg-type]


def archived(live: Live, folder: Path) -> list[int]:
    return numbers(live.spark.read.parquet(str(folder)))


def test_an_archive_has_every_message_with_all_columns_and_its_offsets(live: Live, tmp_path: Path) -> None:
    """D3: by topic, day and batch."""
    topic = live.topic(queues=2)
    live.send_numbers(topic, range(95))
    live.send(*(Message(topic, b"%d" % number, tags="x", properties={"a": "é"}) for number in range(95, 100)))
    seen: list[int] = []

    done = archive(
        live.spark, job(live, topic, tmp_path, batch_rows=60), lambda progress: seen.append(progress.rows)
    )

    assert (done.rows, done.batches, done.waiting) == (100, 2, 0)
    assert seen[-1] == 100
    assert archived(live, tmp_path) == list(range(100))
    rows = live.spark.read.parquet(str(tmp_path)).where("tags = 'x'").collect()
    assert [row.properties["a"] for row in rows] == ["é"] * 5
    assert {row.topic for row in rows} == {topic}
    batches = batches_of(Files(live.spark), str(tmp_path))
    assert [batch.rows for batch in batches] == [60, 40]
    for queue in ("0", "1"):
        spans = [batch.offsets[topic]["embedded"][queue] for batch in batches]
        assert spans[0][0] == 0
        assert spans[0][1] == spans[1][0], "one batch begins where the other ends"
    assert sum(batches[1].offsets[topic]["embedded"][queue][1] for queue in ("0", "1")) == 100
    assert batches[0].first_store_timestamp is not None


def test_a_run_that_failed_within_a_batch_leaves_each_message_once(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D3: the files of the batch were there, its manifest was not."""
    topic = live.topic(queues=2)
    live.send_numbers(topic, range(50))

    def full(*_: object) -> None:
        raise StateError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(Files, "write", full)
        with pytest.raises(StateError, match=r"^the disk is full$"):
            archive(live.spark, job(live, topic, tmp_path))
    assert archived(live, tmp_path) == list(range(50))
    live.send_numbers(topic, range(50, 70))

    done = archive(live.spark, job(live, topic, tmp_path))

    assert done.rows == 70
    assert archived(live, tmp_path) == list(range(70))


def test_an_interrupted_archive_goes_on_where_it_stopped(live: Live, tmp_path: Path) -> None:
    """D3"""
    topic = live.topic(queues=2)
    live.send_numbers(topic, range(50))

    def interrupt(progress: Progress) -> None:
        if progress.rows and not progress.interrupted:
            raise KeyboardInterrupt

    first = archive(live.spark, job(live, topic, tmp_path, follow=True, every_s=0.1), interrupt)
    live.send_numbers(topic, range(50, 60))
    second = archive(live.spark, job(live, topic, tmp_path))

    assert (first.interrupted, first.rows) == (True, 50)
    assert (second.interrupted, second.rows) == (False, 10)
    assert archived(live, tmp_path) == list(range(60))


def test_what_cannot_be_archived_is_one_sentence(live: Live, tmp_path: Path) -> None:
    with pytest.raises(RouteNotFoundError, match="topic nowhere has no queue that can be read"):
        archive(live.spark, job(live, "nowhere", tmp_path))
    with pytest.raises(SettingsError, match="name the topics to read, or give a topicPattern"):
        archive(live.spark, ArchiveJob(namesrv_addr="127.0.0.1:1", output=str(tmp_path)))
    with pytest.raises(SettingsError, match="compression is 'rar'"):
        archive(live.spark, job(live, "T", tmp_path, compression="rar"))


def test_a_batch_that_failed_between_its_files_is_done_again_in_full(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D3: one topic was at its place, the other was not; each name of a topic is found again."""
    plain = live.topic(queues=2)
    odd = f"%DLQ%{plain}|x"
    live.rocketmq.call(live.rocketmq.create_topic(odd, queues=1))
    live.send_numbers(plain, range(30))
    live.send_numbers(odd, range(30, 50))
    both = job(live, plain, tmp_path, topics=(plain, odd))
    rename, moved = Path.rename, list[Path]()

    def fails_at_the_second(path: Path, target: Path) -> Path:
        if path.name.endswith(UNFINISHED):
            if moved:
                raise OSError(28, "No space left on device", str(target))
            moved.append(target)
        return rename(path, target)

    with monkeypatch.context() as broken:
        broken.setattr(Path, "rename", fails_at_the_second)
        with pytest.raises(StateError, match=r"cannot be written: No space left on device$"):
            archive(live.spark, both)
    assert 0 < len(archived(live, tmp_path)) < 50
    done = archive(live.spark, both)

    assert done.rows == 50
    assert not moved[0].exists(), "what the first try had moved is replaced"
    found = read_archive(live.spark, str(tmp_path))
    assert numbers(found.where(found.topic == plain)) == list(range(30))
    assert numbers(found.where(found.topic == odd)) == list(range(30, 50))
    assert [batch.rows for batch in batches_of(Files(live.spark), str(tmp_path))] == [50]
    assert not (tmp_path / "_temporary").exists()


def test_only_files_that_tasks_report_get_to_their_places(live: Live, tmp_path: Path) -> None:
    """D3: an attempt that failed, or came second, has written files as well; other folders stay."""
    kept = tmp_path / "topic=T" / "day=2026-01-31" / "batch=3" / "part-kept.parquet"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"kept")
    replaced = tmp_path / "topic=T" / "day=2026-02-01" / "batch=3" / "part-of-an-earlier-try.parquet"
    replaced.parent.mkdir(parents=True)
    replaced.write_bytes(b"replaced")

    class Reported:
        def collect(self) -> list[Row]:
            for name in ("good", "failed"):
                (temporary_folder(tmp_path, 3) / f"{name}.parquet{UNFINISHED}").write_text(name)
            begins = '[["b",0,7]]'
            notice = Row("topic", "day", "name", "begins", "rows", "first", "last")
            return [notice("T", "2026-02-01", "good.parquet", begins, 2, 10, 20)]

    frame: DataFrame = Reported()  # type: ignore[assignment]
    written = TaskFiles(live.spark, tmp_path, "snappy").write(frame, 3)

    assert (written.rows, written.first, written.last) == (2, 10, 20)
    assert written.begins == {"T": {"b": {"0": 7}}}
    assert sorted(tmp_path.rglob("*.*")) == sorted([kept, replaced.with_name("good.parquet")])


def test_tasks_write_what_spark_writes_and_go_on_where_it_stopped(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D3: an archive can have files of both."""
    topic, mixed, whole = live.topic(queues=2), tmp_path / "mixed", tmp_path / "whole"
    live.send_numbers(topic, range(40))
    live.send(
        *(Message(topic, b"%d" % n, tags="x", keys=["k", "l"], properties={"a": "é"}) for n in (40, 41))
    )
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(archives, "local_folder", lambda _: None)
        by_spark = archive(live.spark, job(live, topic, mixed))
    types = live.spark.read.parquet(str(mixed)).dtypes
    live.send_numbers(topic, range(42, 60))
    by_tasks = archive(live.spark, job(live, topic, mixed, compression="lz4_raw"))
    archive(live.spark, job(live, topic, whole, compression="zstd"))

    assert (by_spark.rows, by_tasks.rows) == (42, 18)
    assert live.spark.read.parquet(str(whole)).dtypes == types
    rows = [rows_of(live, folder) for folder in (mixed, whole)]
    assert len(rows[0]) == 60
    assert rows[0] == rows[1]
    spans = [batch.offsets[topic]["embedded"] for batch in batches_of(Files(live.spark), str(mixed))]
    assert [spans[1][queue][0] for queue in ("0", "1")] == [spans[0][queue][1] for queue in ("0", "1")]


def rows_of(live: Live, folder: Path) -> list[Row]:
    return read_archive(live.spark, str(folder)).drop("batch").orderBy("queueId", "queueOffset").collect()
