"""Reading the commit log, walking it, cutting it off at its end and at its beginning."""

from __future__ import annotations

from pathlib import Path

import pytest

from cometmq.ports.disk import SystemDisk
from cometmq.store.log.commit_log import CommitLog
from cometmq.store.status import PutStatus
from cometmq.testing.clock import VirtualClock
from cometmq.testing.simulation.disk import CrashMode, SimulatedDisk
from cometmq.wire.record.batch import BatchItem
from cometmq.wire.record.codec import decode_record
from cometmq.wire.record.layout import MAGIC_V1
from cometmq.wire.record.walk import WalkEnd
from tests.unit.store.log_kit import FILE_SIZE, ROOT, START_MS, a_log, batch_of, config, message, message_of


def filled(disk: SimulatedDisk | SystemDisk, root: Path = ROOT) -> CommitLog:
    """A log of three files with four records of 1000 bytes in each full one, a second apart."""
    clock = VirtualClock(START_MS)
    log = a_log(disk, clock=clock, settings=config(root))
    for number in range(10):
        assert log.append(message_of(1000, queue_offset=number)) is PutStatus.PUT_OK
        clock.advance(1000)
    return log


def offsets(log: CommitLog, start: int = 0, limit: int | None = None) -> list[int]:
    return [record.physical_offset for record in log.walk(start, limit, check_crc=True)]


ALL = [0, 1000, 2000, 3000, 4096, 5096, 6096, 7096, 8192, 9192]


def test_a_record_is_read_by_its_place_without_a_copy() -> None:
    """B8"""
    log = filled(SimulatedDisk())

    view = log.view(5096, 1000)
    assert view is not None
    assert decode_record(view, check_crc=True).queue_offset == 5
    log.files.files[1].buffer[1000 + 88] ^= 1
    assert view[88] == log.files.files[1].buffer[1088]


def test_what_is_not_there_is_not_handed_out() -> None:
    log = filled(SimulatedDisk())

    assert log.view(10_192, 1) is None
    assert log.view(9192, 1001) is None
    assert log.view(-1000, 1000) is None
    assert log.view(100_000, 10) is None
    log.detach_first()
    assert log.view(3000, 1000) is None


@pytest.mark.parametrize("offset", [1, 999, 4000, 4090, 10_191, 10_192, 50_000, -1])
def test_an_offset_that_no_record_begins_at_gives_none(offset: int) -> None:
    """B10"""
    assert filled(SimulatedDisk()).record_at(offset) is None


def test_a_record_is_read_by_its_offset_alone() -> None:
    """B10"""
    log = filled(SimulatedDisk())

    assert [len(log.record_at(offset) or b"") for offset in ALL] == [1000] * 10


def test_a_size_that_reaches_beyond_what_is_written_is_not_believed() -> None:
    log = filled(SimulatedDisk())
    log.files.files[2].buffer[1000:1004] = (1001).to_bytes(4, "big")

    assert log.record_at(9192) is None


def test_every_file_knows_when_its_first_record_was_stored() -> None:
    """B5"""
    log = filled(SimulatedDisk())
    log.files.add(log.files.create(3 * FILE_SIZE))

    times = [log.store_time(mapped.start) for mapped in log.files.files]

    assert times == [START_MS, START_MS + 4000, START_MS + 8000, None]
    assert log.files.files[0].modified_ms == START_MS + 4000


def test_a_walk_goes_from_file_to_file_to_its_limit() -> None:
    """B5"""
    log = filled(SimulatedDisk())

    assert offsets(log) == ALL
    assert offsets(log, 3000) == ALL[3:]
    walk = log.walk(1000, 6096)
    assert [record.queue_offset for record in walk] == [1, 2, 3, 4, 5]
    assert (walk.end, walk.position, walk.error) == (WalkEnd.LIMIT, 6096, None)


def test_a_record_that_reaches_beyond_the_limit_is_left_for_the_next_walk() -> None:
    walk = filled(SimulatedDisk()).walk(0, 1500)

    assert [record.queue_offset for record in walk] == [0]
    assert (walk.end, walk.position) == (WalkEnd.MALFORMED, 1000)


def test_a_walk_from_behind_the_end_finds_nothing() -> None:
    log = filled(SimulatedDisk())
    for start, limit in ((10_192, None), (50_000, None), (9192, 5000), (9192, 9000)):
        walk = log.walk(start, limit)
        assert list(walk) == []
        assert (walk.end, walk.position) == (WalkEnd.LIMIT, start)


def test_a_walk_ends_at_a_filler_without_a_next_file() -> None:
    """B5"""
    log = filled(SimulatedDisk())
    log.files.remove(log.files.files[2])
    walk = log.walk(4096)

    assert [record.queue_offset for record in walk] == [4, 5, 6, 7]
    assert (walk.end, walk.position) == (WalkEnd.FILLER, 8096)


def test_a_walk_steps_over_a_missing_file() -> None:
    log = filled(SimulatedDisk())
    log.files.remove(log.files.files[1])

    assert offsets(log) == ALL[:4] + ALL[8:]


def test_a_walk_ends_where_a_body_is_not_what_its_checksum_says() -> None:
    """B5"""
    log = filled(SimulatedDisk())
    log.files.files[1].buffer[1500] ^= 0xFF
    walk = log.walk(0, check_crc=True)

    assert [record.physical_offset for record in walk] == ALL[:5]
    assert (walk.end, walk.position) == (WalkEnd.MALFORMED, 5096)
    assert "checksum" in str(walk.error)


def test_a_record_of_another_place_is_not_believed() -> None:
    """B5"""
    log = filled(SimulatedDisk())
    log.files.files[0].buffer[1000:2000] = log.files.files[0].buffer[2000:3000]
    walk = log.walk(0, check_crc=True)

    assert [record.physical_offset for record in walk] == [0]
    assert (walk.end, walk.position) == (WalkEnd.MALFORMED, 1000)
    assert "one of 2000" in str(walk.error)


def test_with_checksums_of_records_every_byte_counts_and_none_may_be_without() -> None:
    """B5"""
    log = a_log(SimulatedDisk(), settings=config(enabled_append_prop_crc=True))
    for _ in range(3):
        log.append(message(properties_block=b"KEYS\x01abc\x02"))
    sealed = log.max_offset // 3
    assert len(list(log.walk(0, verify_record_crc=True))) == 3

    key_at = bytes(log.files.files[0].buffer).find(b"abc", sealed)
    log.files.files[0].buffer[key_at] ^= 1
    walk = log.walk(0, verify_record_crc=True)
    assert len(list(walk)) == 1
    assert (walk.end, walk.position) == (WalkEnd.MALFORMED, sealed)

    plain = filled(SimulatedDisk())
    assert list(plain.walk(0, verify_record_crc=True)) == []


def test_the_log_is_cut_off_and_goes_on_from_there() -> None:
    """B5"""
    disk = SimulatedDisk()
    log = filled(disk)
    log.sync()

    log.truncate(5096)

    assert (log.max_offset, log.flushed_offset) == (5096, 5096)
    assert [entry.name for entry in disk.entries(ROOT / "commitlog")] == [f"{0:020}", f"{FILE_SIZE:020}"]
    record = message_of(500)
    assert log.append(record) is PutStatus.PUT_OK
    assert record.physical_offset == 5096
    assert offsets(log, limit=log.max_offset) == [*ALL[:5], 5096]


def test_what_was_cut_off_does_not_come_back_to_life() -> None:
    """B5: a record that ends where a lost one began would make that one part of the log again."""
    disk = SimulatedDisk()
    log = filled(disk)
    log.sync()
    log.truncate(1000)

    assert log.clear_after_end() > 0
    assert log.clear_after_end() == 0
    log.append(message_of(1000, queue_offset=99))
    log.sync()

    for mode in CrashMode:
        found = a_log(disk.crash(mode))
        assert [record.queue_offset for record in found.walk(0, check_crc=True)] == [0, 99]


def test_nothing_is_cleared_in_a_log_without_files() -> None:
    assert a_log(SimulatedDisk()).clear_after_end() == 0


def test_the_log_begins_later_when_its_first_file_is_removed(tmp_path: Path) -> None:
    """B5"""
    log = filled(SystemDisk(), tmp_path)
    view = log.view(0, 1000)
    assert view is not None

    mapped = log.detach_first()
    assert mapped is not None
    log.erase(mapped)

    assert log.min_offset == FILE_SIZE
    assert offsets(log, log.min_offset) == ALL[4:]
    assert decode_record(view, check_crc=True).queue_offset == 0  # whoever still reads it can
    assert sorted(path.name for path in (tmp_path / "commitlog").iterdir())[0] == f"{FILE_SIZE:020}"


def test_the_last_file_is_never_removed() -> None:
    log = filled(SimulatedDisk())
    removed = [log.detach_first() for _ in range(4)]

    assert [mapped is not None for mapped in removed] == [True, True, False, False]
    assert (log.min_offset, log.max_offset) == (8192, 10_192)


def test_a_loaded_log_goes_on_where_recovery_says_that_it_ends(tmp_path: Path) -> None:
    """B5"""
    filled(SystemDisk(), tmp_path).close()
    log = a_log(SystemDisk(), settings=config(tmp_path))
    walk = log.walk(0, check_crc=True)
    assert sum(1 for _ in walk) == 10
    log.truncate(walk.position)
    log.prepare_to_append()

    assert log.append_batch(batch_of([BatchItem(b"more")])) is PutStatus.PUT_OK
    assert offsets(log) == [*ALL, 10_192]
    assert log.files.files[0].buffer[4:8] == MAGIC_V1.to_bytes(4, "big")


def test_consumers_get_what_is_flushed_in_a_synchronous_log_and_all_of_it_otherwise() -> None:
    """B5"""
    asynchronous = a_log(SimulatedDisk())
    synchronous = a_log(SimulatedDisk(), settings=config(flush_disk_type="SYNC_FLUSH"))
    for log in (asynchronous, synchronous):
        log.append(message())

    assert (asynchronous.confirm_offset, synchronous.confirm_offset) == (asynchronous.max_offset, 0)
    synchronous.sync()
    assert synchronous.confirm_offset == synchronous.max_offset
    synchronous.confirmed_offset = 7
    assert synchronous.confirm_offset == 7


def test_a_flushed_store_time_is_never_ahead_of_what_is_on_the_disk() -> None:
    """B5"""
    disk, clock = SimulatedDisk(), VirtualClock(START_MS)
    log = a_log(disk, clock=clock)
    log.append(message())

    def append_meanwhile(point: str) -> None:
        if point.startswith("sync begins"):
            disk.on_point(None)
            clock.advance(1000)
            log.append(message())

    disk.on_point(append_meanwhile)
    log.sync()

    assert (log.flushed_timestamp_ms, log.store_timestamp_ms) == (START_MS, START_MS + 1000)
    log.sync()
    assert log.flushed_timestamp_ms == START_MS + 1000
