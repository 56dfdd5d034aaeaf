"""Queues and index made again from the log."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cometmq.model.errors import StoreError
from cometmq.ports.disk import SystemDisk
from cometmq.ports.folders import SystemFolders
from cometmq.store.queue.consume_queues import ConsumeQueues
from cometmq.store.tools.rebuild import Rebuilt, rebuild_store
from cometmq.store.tools.verify import verify_store
from cometmq.testing.clock import VirtualClock
from tests.unit.store.log_kit import config
from tests.unit.store.small_store import LOG_FILE_SIZE, UNITS_PER_FILE, SmallStore, a_closed_store
from tests.unit.store.store_vectors import unpack_clean_store

DISK = SystemDisk()
VECTOR_DELAYS = "1s 2s 3s 4s 5s 6s 7s 8s 9s 10s 20m 30m 1h 2h"


def rebuild(root: Path, **options: object) -> Rebuilt:
    return rebuild_store(DISK, SystemFolders(), VirtualClock(), root, **options)  # type: ignore[arg-type]


def files_below(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def index_contents(root: Path) -> list[bytes]:
    """The index files in their order; their names are the times at which they were made."""
    return [path.read_bytes() for path in sorted((root / "index").iterdir())]


def test_queues_and_index_of_apache_are_made_again_byte_for_byte(tmp_path: Path) -> None:
    """B4, B10: delays and file sizes are taken from what is there."""
    root = unpack_clean_store(tmp_path, "")
    before, index = files_below(root), index_contents(root)
    rebuilt = rebuild(root)
    after = files_below(root)

    assert rebuilt == Rebuilt(str(root), 153, 53, 150, ["VecAuto", "VecAutoB"])
    assert index_contents(root) == index
    after.pop(Path("lock"))
    assert {path: after[path] for path in after if path.parts[0] != "index"} == {
        path: before[path] for path in before if path.parts[0] != "index"
    }


@pytest.mark.parametrize("lost", ["consumequeue", "index"])
def test_what_was_lost_comes_back(tmp_path: Path, lost: str) -> None:
    """B5"""
    root = unpack_clean_store(tmp_path, "")
    queues, index = files_below(root / "consumequeue"), index_contents(root)
    shutil.rmtree(root / lost)
    rebuild(root, config=config(root, message_delay_level=VECTOR_DELAYS, **SIZES))

    assert files_below(root / "consumequeue") == queues
    assert index_contents(root) == index


SIZES: dict[str, object] = {
    "mapped_file_size_commit_log": 1048576,
    "mapped_file_size_consume_queue": 60000,
    "max_hash_slot_num": 500,
    "max_index_num": 2000,
}


def test_stores_of_many_files_are_made_again_byte_for_byte(tmp_path: Path) -> None:
    """B4"""
    a_closed_store(tmp_path)
    queues, index = files_below(tmp_path / "consumequeue"), index_contents(tmp_path)
    rebuild(tmp_path)

    assert files_below(tmp_path / "consumequeue") == queues
    assert index_contents(tmp_path) == index
    assert verify_store(DISK, tmp_path).findings == []
    assert {path.name for path in tmp_path.iterdir()} == {
        *("checkpoint", "commitlog", "consumequeue", "index", "lock")
    }


def test_damaged_queues_and_index_files_are_right_afterwards(tmp_path: Path) -> None:
    """B5"""
    a_closed_store(tmp_path)
    queue = tmp_path / "consumequeue" / "orders" / "0" / f"{0:020}"
    queue.write_bytes(b"\xff" * queue.stat().st_size)
    index = sorted((tmp_path / "index").iterdir())[1]
    index.write_bytes(b"\xff" * index.stat().st_size)
    assert verify_store(DISK, tmp_path).findings
    rebuild(tmp_path)

    assert verify_store(DISK, tmp_path).findings == []


def test_a_queue_goes_on_where_it_was_when_all_its_messages_are_expired(tmp_path: Path) -> None:
    store = SmallStore(tmp_path)
    for _ in range(13):
        store.put("rare", 2)
    store.fill(60)
    store.close()
    (tmp_path / "commitlog" / f"{0:020}").unlink()
    rebuild(tmp_path)
    queues = ConsumeQueues(DISK, tmp_path / "consumequeue", UNITS_PER_FILE * 20)
    queues.load()
    rare, orders = queues.get("rare", 2), queues.get("orders", 0)

    assert (rare.min_offset, rare.next_offset) == (13, 13)
    assert 0 < orders.min_offset < orders.next_offset == 20
    queues.close()
    assert verify_store(DISK, tmp_path).findings == []


def test_a_topic_that_was_deleted_and_made_anew_has_its_new_messages_only(tmp_path: Path) -> None:
    store = SmallStore(tmp_path)
    store.fill(24)
    store.queues.destroy("orders", store.queues.detach_topic("orders"))
    store.fill(6)
    store.close()
    queues = files_below(tmp_path / "consumequeue")
    rebuild(tmp_path)

    assert files_below(tmp_path / "consumequeue") == queues


def test_a_damaged_log_is_refused_and_everything_stays(tmp_path: Path) -> None:
    """B5: queues without the messages behind the damage would hide them for good."""
    a_closed_store(tmp_path)
    for log_file in (f"{0:020}", sorted(path.name for path in (tmp_path / "commitlog").iterdir())[-1]):
        damaged = tmp_path / "commitlog" / log_file
        right = damaged.read_bytes()
        damaged.write_bytes(right[:4] + b"\0" + right[5:])
        before = files_below(tmp_path / "consumequeue")
        with pytest.raises(StoreError, match="is damaged"):
            rebuild(tmp_path)

        assert files_below(tmp_path / "consumequeue") == before
        damaged.write_bytes(right)
    rebuild(tmp_path)
    assert verify_store(DISK, tmp_path).findings == []


def test_a_log_with_a_missing_file_is_refused(tmp_path: Path) -> None:
    a_closed_store(tmp_path)
    (tmp_path / "commitlog" / f"{LOG_FILE_SIZE:020}").unlink()
    with pytest.raises(StoreError, match=f"no bytes from {LOG_FILE_SIZE} to {2 * LOG_FILE_SIZE}"):
        rebuild(tmp_path)


def test_a_store_in_use_is_refused(tmp_path: Path) -> None:
    a_closed_store(tmp_path, 3)
    before = files_below(tmp_path)

    class Held(SystemDisk):
        def lock(self, path: Path) -> None:
            """Another process has it."""

    with pytest.raises(StoreError, match="held by another process"):
        rebuild_store(Held(), SystemFolders(), VirtualClock(), tmp_path)
    assert files_below(tmp_path) == before


def test_the_old_queues_stay_until_the_new_ones_are_complete(tmp_path: Path) -> None:
    """B5: also when the rebuild is stopped in the middle, and the next one cleans up."""
    a_closed_store(tmp_path)
    before = files_below(tmp_path / "consumequeue")

    class StopError(Exception):
        pass

    class StoppedFolders(SystemFolders):
        def move(self, source: Path, target: Path) -> None:
            raise StopError

    with pytest.raises(StopError):
        rebuild_store(DISK, StoppedFolders(), VirtualClock(), tmp_path)
    assert files_below(tmp_path / "consumequeue") == before
    rebuild(tmp_path)
    assert files_below(tmp_path / "consumequeue") == before
    assert not list(tmp_path.glob("*.re*"))


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    a_closed_store(tmp_path)
    steps: list[tuple[int, int]] = []
    rebuild(tmp_path, progress=lambda done, total: steps.append((done, total)))

    assert steps[-1][0] == steps[-1][1] > 0
