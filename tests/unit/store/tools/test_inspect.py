"""What a store has, at a glance; sizes are seen, never configured."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cometmq.ports.disk import SystemDisk
from cometmq.store.index.file import IndexLayout
from cometmq.store.tools.inspect import inspect_store
from cometmq.store.tools.survey import survey_store
from tests.unit.store.log_kit import START_MS
from tests.unit.store.small_store import (
    ENTRIES,
    LOG_FILE_SIZE,
    SLOTS,
    UNITS_PER_FILE,
    SmallStore,
    a_closed_store,
)
from tests.unit.store.store_vectors import DATA, unpack_clean_store

DISK = SystemDisk()


def test_the_store_of_apache_is_seen_as_it_is(tmp_path: Path) -> None:
    """B4: with file sizes that nobody told."""
    root = unpack_clean_store(tmp_path, "")
    summary = inspect_store(DISK, root)
    queues = {(queue.topic, queue.queue_id): queue for queue in summary.queues}

    assert (summary.log.file_size, summary.queue_file_size) == (1048576, 60000)
    assert (summary.log.min_offset, summary.log.max_offset) == (0, 50281)
    assert len(queues) == 53
    assert queues["RMQ_SYS_TRANS_HALF_TOPIC", 0].max_offset == 10
    assert [index.entries for index in summary.index] == [228]
    assert summary.checkpoint is not None
    assert summary.checkpoint.physic_msg_timestamp == summary.log.last_store_time
    assert summary.stopped_in_order
    assert survey_store(DISK, root).index_layout == IndexLayout(500, 2000)


def test_an_unclean_stop_is_seen(tmp_path: Path) -> None:
    """B5"""
    shutil.unpack_archive(DATA / "store-crashed.tar.gz", tmp_path, filter="data")
    summary = inspect_store(DISK, tmp_path / "store")

    assert not summary.stopped_in_order
    assert summary.log.max_offset == 132861


def test_files_offsets_and_times_of_many_files(tmp_path: Path) -> None:
    a_closed_store(tmp_path)
    summary = inspect_store(DISK, tmp_path, in_use=True)
    queue = next(queue for queue in summary.queues if (queue.topic, queue.queue_id) == ("orders", 0))

    assert summary.in_use
    assert summary.log.files == len(list((tmp_path / "commitlog").iterdir()))
    assert (summary.log.file_size, summary.queue_file_size) == (LOG_FILE_SIZE, UNITS_PER_FILE * 20)
    assert (summary.log.first_store_time, summary.log.last_store_time) == (START_MS + 1, START_MS + 90)
    assert (queue.min_offset, queue.max_offset, queue.files) == (0, 20, 2)
    assert queue.first_store_time == START_MS + 1
    assert sum(index.entries for index in summary.index) == 3 * 60 + 30
    assert survey_store(DISK, tmp_path).index_layout == IndexLayout(SLOTS, ENTRIES)


def test_queues_begin_behind_expired_log_files(tmp_path: Path) -> None:
    a_closed_store(tmp_path)
    (tmp_path / "commitlog" / f"{0:020}").unlink()
    summary = inspect_store(DISK, tmp_path)

    assert summary.log.min_offset == LOG_FILE_SIZE
    assert summary.queues[0].min_offset > 0
    assert summary.queues[0].first_store_time is not None


def test_an_empty_store_is_shown_too(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    summary = inspect_store(DISK, tmp_path)

    assert (summary.log.files, summary.log.max_offset, summary.queues, summary.index) == (0, 0, [], [])
    assert summary.checkpoint is None


def test_a_queue_that_cannot_be_read_is_shown_with_the_reason(tmp_path: Path) -> None:
    a_closed_store(tmp_path)
    (tmp_path / "consumequeue" / "orders" / "0" / f"{0:020}").write_bytes(b"short")
    summary = inspect_store(DISK, tmp_path)

    assert [queue.queue_id for queue in summary.queues if queue.error] == [0]
    assert "has 5 bytes, expected 200" in str(summary.queues[0].error)


@pytest.mark.parametrize("keys", [1, 2, 29])
def test_the_shape_of_the_index_is_seen_from_any_number_of_entries(tmp_path: Path, keys: int) -> None:
    """B10"""
    store = SmallStore(tmp_path)
    for number in range(keys):
        store.put(KEYS=f"key{number}")
    store.close()

    assert survey_store(DISK, tmp_path).index_layout == IndexLayout(SLOTS, ENTRIES)
