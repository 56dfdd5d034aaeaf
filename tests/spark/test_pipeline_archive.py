"""Topics as Parquet files: complete, each message once, and with manifests that say what is where (D3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from cometmq import Message
from cometmq.model.errors import RouteNotFoundError, SettingsError, StateError
from cometmq.spark.pipelines.archive import ArchiveJob, archive, batches_of
from cometmq.spark.pipelines.files import Files
from cometmq.spark.pipelines.streams import Progress
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
