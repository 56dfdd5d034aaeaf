"""Verifying stores: nothing is found where nothing is wrong, and everything that can be told where it is."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from cometmq.model.errors import StoreError
from cometmq.ports.disk import SystemDisk
from cometmq.store.tools.dump import dump_topic
from cometmq.store.tools.findings import Finding
from cometmq.store.tools.verify import verify_store
from cometmq.wire.record.walk import RecordWalk
from tests.unit.store.log_kit import config
from tests.unit.store.small_store import LOG_FILE_SIZE, SmallStore, a_closed_store
from tests.unit.store.store_vectors import DATA, unpack_clean_store

DISK = SystemDisk()
ROUNDS = 60
VECTOR_DELAYS = "1s 2s 3s 4s 5s 6s 7s 8s 9s 10s 20m 30m 1h 2h"


def findings_in(root: Path) -> list[Finding]:
    return verify_store(DISK, root).findings


def content_of(root: Path) -> dict[Path, tuple[bytes, int]]:
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in root.rglob("*") if path.is_file()}


def flip(path: Path, place: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes((byte ^ 1 << bit,)))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_closed_store(tmp_path_factory.mktemp("small") / "store")


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose records have a checksum of their own."""
    return a_closed_store(tmp_path_factory.mktemp("sealed") / "store", enabled_append_prop_crc=True)


def test_nothing_is_found_in_the_store_of_apache(tmp_path: Path) -> None:
    """B4"""
    root = unpack_clean_store(tmp_path, "")
    before = content_of(root)
    result = verify_store(DISK, root)

    assert result.findings == []
    assert (result.records, result.queues, result.index_entries) == (153, 53, 228)
    assert result.stopped_in_order
    assert content_of(root) == before


def test_the_delays_of_a_configuration_are_compared_with_the_queues(tmp_path: Path) -> None:
    root = unpack_clean_store(tmp_path, "")
    right = verify_store(DISK, root, config(root, message_delay_level=VECTOR_DELAYS))
    wrong = verify_store(DISK, root, config(root))

    assert right.findings == []
    assert wrong.findings
    assert all("SCHEDULE_TOPIC_XXXX" in str(finding.file) for finding in wrong.findings)


def test_a_crashed_store_is_told_from_one_that_was_stopped(tmp_path: Path) -> None:
    """B5"""
    shutil.unpack_archive(DATA / "store-crashed.tar.gz", tmp_path, filter="data")
    result = verify_store(DISK, tmp_path / "store")

    assert not result.stopped_in_order
    assert result.records == 453


def test_nothing_is_found_in_stores_of_many_files(small: Path, sealed: Path) -> None:
    """B4"""
    for root in (small, sealed):
        result = verify_store(DISK, root)
        assert result.findings == []
        assert result.records == 90
        assert len(list((root / "commitlog").iterdir())) > 3
        assert len(list((root / "index").iterdir())) > 3
        assert len(list((root / "consumequeue" / "orders" / "0").iterdir())) > 1


def test_queues_of_a_topic_that_was_deleted_and_made_anew_are_right(tmp_path: Path) -> None:
    store = SmallStore(tmp_path)
    store.fill(12)
    store.queues.destroy("orders", store.queues.detach_topic("orders"))
    store.fill(6)
    store.close()

    assert findings_in(tmp_path) == []


def test_a_store_whose_first_log_files_are_expired_is_right(tmp_path: Path) -> None:
    a_closed_store(tmp_path)
    (tmp_path / "commitlog" / f"{0:020}").unlink()
    (tmp_path / "commitlog" / f"{LOG_FILE_SIZE:020}").unlink()

    assert findings_in(tmp_path) == []


def test_a_folder_that_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a store"):
        verify_store(DISK, tmp_path)
    with pytest.raises(StoreError, match="is not a store"):
        verify_store(DISK, tmp_path / "missing")


@pytest.mark.parametrize("seed", range(4))
def test_every_flipped_bit_of_a_sealed_log_is_found(sealed: Path, tmp_path: Path, seed: int) -> None:
    """B5: records with a checksum of their own hide nothing."""
    chance = random.Random(seed)
    files = sorted((sealed / "commitlog").iterdir())
    for _ in range(ROUNDS // 4):
        root = Path(shutil.copytree(sealed, tmp_path / "store"))
        damaged = root / "commitlog" / chance.choice(files).name
        place, bit = chance.randrange(LOG_FILE_SIZE), chance.randrange(8)
        flip(damaged, place, bit)

        assert findings_in(root), (damaged.name, place, bit)
        shutil.rmtree(root)


@pytest.mark.parametrize("seed", range(4))
def test_every_flipped_bit_of_queues_and_index_is_found(small: Path, tmp_path: Path, seed: int) -> None:
    """B5, B10"""
    chance = random.Random(seed)
    files = [
        path for kind in ("consumequeue", "index") for path in (small / kind).rglob("*") if path.is_file()
    ]
    for _ in range(ROUNDS // 4):
        root = Path(shutil.copytree(small, tmp_path / "store"))
        damaged = root / chance.choice(files).relative_to(small)
        place, bit = chance.randrange(damaged.stat().st_size), chance.randrange(8)
        flip(damaged, place, bit)

        assert findings_in(root), (damaged.relative_to(root), place, bit)
        shutil.rmtree(root)


def test_a_flipped_bit_in_what_checksums_or_lengths_cover_is_found_and_not_dumped(
    small: Path, tmp_path: Path
) -> None:
    """B5: without a checksum of the record, that of the body and what queues and index say have to do."""
    chance = random.Random(7)
    log = (small / "commitlog" / f"{0:020}").read_bytes()
    starts = [record.physical_offset for record in RecordWalk(log)]
    covered = [*range(16), *range(20, 36), *range(84, 88 + 40)]  # head to queue id, offsets, body
    for _ in range(ROUNDS):
        root = Path(shutil.copytree(small, tmp_path / "store"))
        start, place = chance.choice(starts), chance.choice(covered)
        flip(root / "commitlog" / f"{0:020}", start + place, chance.randrange(8))

        assert findings_in(root), (start, place)
        shown = [each for topic in ("orders", "payments") for each in dump_topic(DISK, root, topic)]
        assert [each["commitLogOffset"] for each in shown if "error" in each] == [start]
        shutil.rmtree(root)


@pytest.mark.parametrize("kind", ["commitlog", "consumequeue", "index"])
def test_every_file_that_was_cut_off_is_found(small: Path, tmp_path: Path, kind: str) -> None:
    """B5"""
    chance = random.Random(kind)
    for path in sorted((small / kind).rglob("*")):
        if path.is_file():
            root = Path(shutil.copytree(small, tmp_path / "store"))
            damaged = root / path.relative_to(small)
            size = chance.randrange(1, damaged.stat().st_size)
            with damaged.open("r+b") as file:
                file.truncate(size)

            found = findings_in(root)
            assert damaged in {finding.file for finding in found}, (path.name, size)
            shutil.rmtree(root)


def test_a_missing_file_is_found_wherever_it_was(small: Path, tmp_path: Path) -> None:
    for name in (
        f"commitlog/{LOG_FILE_SIZE:020}",
        f"consumequeue/orders/1/{0:020}",
        f"consumequeue/orders/1/{200:020}",
        "checkpoint",
    ):
        root = Path(shutil.copytree(small, tmp_path / "store"))
        (root / name).unlink()
        assert findings_in(root), name
        shutil.rmtree(root)


def test_a_finding_says_where_what_was_expected_and_what_is_there(small: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(small, tmp_path / "store"))
    queue_file = root / "consumequeue" / "orders" / "0" / f"{0:020}"
    flip(queue_file, 3 * 20 + 11, 0)
    (finding,) = findings_in(root)

    assert (finding.file, finding.offset) == (queue_file, 3 * 20)
    assert finding.expected.startswith("a unit of ")
    assert str(finding).startswith(f"{queue_file} at 60: expected a unit of ")


def test_one_damaged_record_does_not_hide_those_behind_it(small: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(small, tmp_path / "store"))
    flip(root / "commitlog" / f"{0:020}", 0, 6)
    result = verify_store(DISK, root)

    assert result.records == 89


def test_a_checkpoint_that_is_too_new_is_found(small: Path, tmp_path: Path) -> None:
    """B5: a recovery would begin behind records that it has to look at."""
    for place in (0, 8, 16, 24, 32, 100):
        root = Path(shutil.copytree(small, tmp_path / "store"))
        flip(root / "checkpoint", place, 6)
        assert [(each.file.name, each.offset) for each in findings_in(root)] == [("checkpoint", place)]
        shutil.rmtree(root)


def test_files_that_do_not_belong_are_named(small: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(small, tmp_path / "store"))
    strays = {
        root / "commitlog" / "notes.txt",
        root / "index" / "x",
        root / "consumequeue" / "orders" / "0" / "1",
        root / "consumequeue" / "orders" / "first" / "1",
    }
    for stray in strays:
        stray.parent.mkdir(exist_ok=True)
        stray.write_bytes(b"")
    found = {finding.file for finding in findings_in(root)}

    assert found == {path.parent if path.parent.name == "first" else path for path in strays}


def test_damaged_timers_are_found(tmp_path: Path) -> None:
    """B5: in the timer log and the wheel of Apache."""
    root = unpack_clean_store(tmp_path, "")
    timer_log, wheel = root / "timerlog" / f"{0:020}", root / "timerwheel"
    slot = next(place for place, byte in enumerate(wheel.read_bytes()) if byte) // 32 * 32
    for damaged, place in (
        *((timer_log, field) for field in (3, 52 + 4, 52 + 12, 52 + 28, 52 + 36, 52 + 44, 102_000)),
        *((wheel, slot + field) for field in (7, 8, 16)),
        (wheel, (slot + 64_000) % 38_707_200 + 7),
    ):
        flip(damaged, place, 7)
        assert findings_in(root)[0].file == damaged, place
        flip(damaged, place, 7)
    # Apache's broker takes one off for each cancellation, also where there was nothing to cancel.
    flip(wheel, slot + 24, 7)
    assert findings_in(root) == []


def test_a_table_that_cannot_be_read_is_found(small: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(small, tmp_path / "store"))
    table = root / "config" / "consumerOffset.json"
    table.parent.mkdir()
    table.write_bytes(b'{"offsetTable":{"a@b":{0:')

    assert [finding.file for finding in findings_in(root)] == [table]


def test_very_many_findings_are_counted_but_not_kept(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, mapped_file_size_consume_queue=40_000)
    for _ in range(1200):
        store.put(body=b"x")
    store.close()
    queue_file = tmp_path / "consumequeue" / "orders" / "0" / f"{0:020}"
    data = bytearray(queue_file.read_bytes())
    data[19 : 1200 * 20 : 20] = b"\x01" * 1200
    queue_file.write_bytes(data)
    result = verify_store(DISK, tmp_path)

    assert (result.total_findings, len(result.findings)) == (1200, 1000)


def test_progress_reaches_the_end(small: Path) -> None:
    steps: list[tuple[int, int]] = []
    verify_store(DISK, small, progress=lambda done, total: steps.append((done, total)))
    assert steps[-1][0] == steps[-1][1] > 0
