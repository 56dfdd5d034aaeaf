"""Queues and index made again by many workers: the same bytes as by one."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from cometmq.model.errors import StoreError
from cometmq.ports.disk import SystemDisk
from cometmq.ports.folders import SystemFolders
from cometmq.spark.rebuild import tasks as rebuild_tasks
from cometmq.spark.rebuild.dispatch import Dispatched, DispatchRules
from cometmq.spark.rebuild.rebuild import WORK_FOLDER, rebuild
from cometmq.store.tools.rebuild import Rebuilt, rebuild_store
from cometmq.store.tools.verify import verify_store
from cometmq.testing.clock import VirtualClock
from tests.unit.spark.stores_kit import VECTOR_SIZES, files_below, index_contents, unpacked
from tests.unit.store.log_kit import config
from tests.unit.store.small_store import LOG_FILE_SIZE, SmallStore, a_closed_store

DISK = SystemDisk()


class OneProcess:
    """As much of a Spark as a rebuild asks for, in this process."""

    def __init__(self, speculation: str = "false") -> None:
        self.conf = {"spark.speculation": speculation}
        self._rest: Iterator[Any] = iter(())

    @property
    def sparkContext(self) -> OneProcess:
        return self

    def parallelize(self, tasks: list[Any], count: int) -> OneProcess:
        assert count == len(tasks)
        self._rest = (pickle.loads(pickle.dumps(task)) for task in tasks)
        return self

    def map(self, work: Callable[[Any], Any]) -> OneProcess:
        self._rest = map(work, self._rest)
        return self

    def collect(self) -> list[Any]:
        return list(self._rest)


def made_again(root: Path, range_bytes: int = 5000, **options: Any) -> Rebuilt:
    return rebuild(cast(SparkSession, OneProcess()), root, range_bytes=range_bytes, **options)


@pytest.mark.parametrize("range_bytes", [3000, 20_000, 10**9])
def test_queues_and_index_of_apache_are_made_again_byte_for_byte(tmp_path: Path, range_bytes: int) -> None:
    """D2, B4, B10: delays and file sizes are taken from what is there."""
    root = unpacked("store-clean.tar.gz", tmp_path)
    before, index = files_below(root), index_contents(root)
    rebuilt = made_again(root, range_bytes)
    after = files_below(root)

    assert rebuilt == Rebuilt(str(root), 153, 53, 150, ["VecAuto", "VecAutoB"])
    assert index_contents(root) == index
    after.pop(Path("lock"))
    assert {path: after[path] for path in after if path.parts[0] != "index"} == {
        path: before[path] for path in before if path.parts[0] != "index"
    }


def test_what_was_lost_comes_back(tmp_path: Path) -> None:
    """D2: with the settings of the broker, where nothing is left to learn them from."""
    root = unpacked("store-clean.tar.gz", tmp_path)
    queues, index = files_below(root / "consumequeue"), index_contents(root)
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    made_again(root, config=config(root, **VECTOR_SIZES))

    assert files_below(root / "consumequeue") == queues
    assert index_contents(root) == index


def test_stores_of_many_files_are_made_again_byte_for_byte(tmp_path: Path) -> None:
    """D2"""
    a_closed_store(tmp_path)
    queues, index = files_below(tmp_path / "consumequeue"), index_contents(tmp_path)
    made_again(tmp_path, 1500)

    assert len(index) > 2
    assert files_below(tmp_path / "consumequeue") == queues
    assert index_contents(tmp_path) == index
    assert verify_store(DISK, tmp_path).findings == []
    assert {path.name for path in tmp_path.iterdir()} == {
        *("checkpoint", "commitlog", "consumequeue", "index", "lock")
    }


def same_by_one_and_by_many(root: Path, copy: Path) -> None:
    shutil.copytree(root, copy)
    expected = rebuild_store(DISK, SystemFolders(), VirtualClock(), copy)
    found = made_again(root, 1500)
    assert found == Rebuilt(str(root), *_rest(expected))
    assert files_below(root / "consumequeue") == files_below(copy / "consumequeue")
    assert index_contents(root) == index_contents(copy)


def _rest(rebuilt: Rebuilt) -> tuple[Any, ...]:
    return rebuilt.messages, rebuilt.queues, rebuilt.indexed, rebuilt.left_out_topics


def test_keys_tags_and_further_queues_are_dispatched_as_by_one(tmp_path: Path) -> None:
    """D2: what a message says of itself, common and odd."""
    store = SmallStore(tmp_path / "store")
    for number in range(30):
        store.put("orders", number % 3, UNIQ_KEY=f"AC{number:030X}", TAGS=f"t{number % 4}")
        store.put("orders", 1, KEYS=f"k{number} x  y", UNIQ_KEY=f"Id{number}")
        store.put("größe", 0, KEYS="schlüssel 键", TAGS="标")
        store.put("SCHEDULE_TOPIC_XXXX", 2, DELAY="3", REAL_TOPIC="orders")
        store.put("orders", 0, INNER_MULTI_DISPATCH="%LMQ%a,orders", INNER_MULTI_QUEUE_OFFSET=f"{number},x")
    store.close()
    same_by_one_and_by_many(tmp_path / "store", tmp_path / "copy")


def test_a_queue_goes_on_where_it_was_when_all_its_messages_are_expired(tmp_path: Path) -> None:
    store = SmallStore(tmp_path / "store")
    for _ in range(13):
        store.put("rare", 2)
    store.fill(60)
    store.close()
    (tmp_path / "store" / "commitlog" / f"{0:020}").unlink()
    same_by_one_and_by_many(tmp_path / "store", tmp_path / "copy")


def test_a_topic_that_was_deleted_and_made_anew_has_its_new_messages_only(tmp_path: Path) -> None:
    store = SmallStore(tmp_path / "store")
    store.fill(24)
    store.queues.destroy("orders", store.queues.detach_topic("orders"))
    store.fill(6)
    store.close()
    same_by_one_and_by_many(tmp_path / "store", tmp_path / "copy")


def test_a_damaged_log_is_refused_and_everything_stays(tmp_path: Path) -> None:
    """D2: queues without the messages behind the damage would hide them for good."""
    a_closed_store(tmp_path)
    for log_file in (f"{0:020}", sorted(path.name for path in (tmp_path / "commitlog").iterdir())[-1]):
        path = tmp_path / "commitlog" / log_file
        right = path.read_bytes()
        before = files_below(tmp_path)
        for at in (4, 90):
            path.write_bytes(right[:at] + b"\xfe" + right[at + 1 :])
            with pytest.raises(StoreError, match="is damaged"):
                made_again(tmp_path)
            path.write_bytes(right)
            after = files_below(tmp_path)
            after.pop(Path("lock"), None), before.pop(Path("lock"), None)
            assert after == before
    made_again(tmp_path)
    assert verify_store(DISK, tmp_path).findings == []


def test_a_log_with_a_missing_file_is_refused(tmp_path: Path) -> None:
    a_closed_store(tmp_path)
    (tmp_path / "commitlog" / f"{LOG_FILE_SIZE:020}").unlink()
    with pytest.raises(StoreError, match=f"no bytes from {LOG_FILE_SIZE} to {2 * LOG_FILE_SIZE}"):
        made_again(tmp_path)


def test_a_queue_with_a_gap_is_refused(tmp_path: Path) -> None:
    store = SmallStore(tmp_path)
    store.put("orders", 0)
    store.queues.get("orders", 0).max_offset += 5
    store.put("orders", 0)
    store.close()
    with pytest.raises(StoreError, match="has offset 6 in queue 0 of 'orders', expected 1"):
        made_again(tmp_path)


def test_speculation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"spark\.speculation is on"):
        rebuild(cast(SparkSession, OneProcess("true")), tmp_path)


def test_progress_is_told(tmp_path: Path) -> None:
    a_closed_store(tmp_path)
    told: list[float] = []
    made_again(tmp_path, progress=lambda done, total: told.append(done / total))
    assert told == sorted(told)
    assert told[-1] == 1


class Interrupted(OneProcess):
    """The same, interrupted before one of the first tasks."""

    def map(self, work: Callable[[Any], Any]) -> OneProcess:
        def work_a_while(task: Any) -> Any:
            if getattr(task, "number", 0) == DECODED_BEFORE:
                raise KeyboardInterrupt
            return work(task)

        return super().map(work_a_while)


DECODED_BEFORE = 4


def test_an_interrupted_rebuild_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D2: ranges that were decoded are not read again, unless the log is another."""
    root = unpacked("store-clean.tar.gz", tmp_path)
    before, index = files_below(root / "consumequeue"), index_contents(root)
    decoded = 0

    def counted(rules: DispatchRules) -> Dispatched:
        nonlocal decoded
        decoded += 1
        return Dispatched(rules)

    monkeypatch.setattr(rebuild_tasks, "Dispatched", counted)

    def interrupt() -> int:
        with pytest.raises(KeyboardInterrupt):
            rebuild(cast(SparkSession, Interrupted()), root, range_bytes=5000)
        assert files_below(root / "consumequeue") == before
        return decoded

    assert interrupt() == DECODED_BEFORE
    assert interrupt() == DECODED_BEFORE
    (log,) = (root / "commitlog").iterdir()
    log.touch()
    assert interrupt() == 2 * DECODED_BEFORE
    made_again(root)
    assert decoded - DECODED_BEFORE == len(range(0, len(log.read_bytes().rstrip(b"\0")), 5000))
    assert files_below(root / "consumequeue") == before
    assert index_contents(root) == index
    assert not (root / WORK_FOLDER).exists()
