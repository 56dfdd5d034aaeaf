"""The timer log: records of 52 bytes in chains, files that end with a filler, and an end that is found."""

from __future__ import annotations

import errno
import struct
from pathlib import Path
from typing import Final

import pytest

from cometmq.model.errors import StoreError
from cometmq.ports.disk import Disk, DiskUsage, SystemDisk
from cometmq.store.timer.log import (
    MAGIC_DEFAULT,
    MAGIC_DELETE,
    MAGIC_ROLL,
    NO_POSITION,
    RECORD_SIZE,
    TimerLog,
    TimerRecord,
)
from cometmq.testing.simulation.disk import CrashMode, Rules, SimulatedDisk, crashes
from cometmq.testing.simulation.machine import Operation

FOLDER = Path("/store/timerlog")
FILE_SIZE = 400
RECORDS_A_FILE = 7
NOW = 1_700_000_000_000
OPERATIONS_THAT_NEED_ROOM: Final[tuple[Operation, ...]] = ("create", "reserve")


def open_log(disk: Disk, folder: Path = FOLDER, *, file_size: int = FILE_SIZE) -> TimerLog:
    log = TimerLog(disk, folder, file_size)
    log.load()
    return log


def reopen(disk: Disk, folder: Path = FOLDER) -> TimerLog:
    """The log after a restart, its end found."""
    log = open_log(disk, folder)
    scan = log.scan(0)
    list(scan)
    log.truncate(scan.end)
    return log


def append(log: TimerLog, number: int, *, previous: int = NO_POSITION, magic: int = MAGIC_DEFAULT) -> int:
    return log.append(previous, magic, NOW, number * 1000, number * 200, 200, -number)


def delays(log: TimerLog) -> list[int]:
    return [(due_ms - NOW) // 1000 for _, due_ms, _ in log.scan(0)]


def test_a_record_has_apaches_bytes(tmp_path: Path) -> None:
    """B4"""
    log = open_log(SystemDisk(), tmp_path, file_size=102_400)
    assert log.append(-1, 1, NOW, 3000, 7224, 334, 0x7158026F) == 0
    assert log.append(0, MAGIC_ROLL | MAGIC_DEFAULT, NOW, 4000, 2**40, 345, -5) == 52
    log.sync()
    log.close()
    data = (tmp_path / "00000000000000000000").read_bytes()
    assert data[:104] == struct.pack(
        ">iqiqiqiiqiqiqiqiiq",
        *(52, -1, 1, NOW, 3000, 7224, 334, 0x7158026F, 0),
        *(52, 0, 3, NOW, 4000, 2**40, 345, -5, 0),
    )
    assert data[104:] == bytes(102_400 - 104)


def test_a_full_file_ends_with_a_filler_and_the_log_goes_on_in_the_next() -> None:
    """B4"""
    disk = SimulatedDisk()
    log = open_log(disk)
    positions = [append(log, number) for number in range(2 * RECORDS_A_FILE + 1)]
    expected = [number * RECORD_SIZE for number in range(RECORDS_A_FILE)]
    assert positions == [*expected, *(FILE_SIZE + at for at in expected), 2 * FILE_SIZE]
    assert log.end == 2 * FILE_SIZE + RECORD_SIZE

    first = disk.read(FOLDER / "00000000000000000000")
    assert first is not None
    rest = FILE_SIZE - RECORDS_A_FILE * RECORD_SIZE
    assert first[-rest:] == struct.pack(">iqI", rest, 0, 0xCBD43194) + bytes(rest - 16)
    assert delays(log) == list(range(2 * RECORDS_A_FILE + 1))


@pytest.mark.parametrize("file_size", [52 + 16, 2 * 52 + 15, 2 * 52 + 16, 3 * 52 + 15])
def test_a_record_leaves_room_for_the_filler(file_size: int) -> None:
    log = open_log(SimulatedDisk(), file_size=file_size)
    positions = [append(log, number) for number in range(10)]
    assert all(position % file_size + 52 + 16 <= file_size for position in positions)
    assert delays(log) == list(range(10))
    with pytest.raises(StoreError, match="holds no record"):
        TimerLog(SimulatedDisk(), FOLDER, 67)


def test_a_record_is_read_at_its_position_and_nowhere_else() -> None:
    log = open_log(SimulatedDisk())
    append(log, 1)
    position = append(log, 2, previous=0, magic=MAGIC_DELETE)
    record = log.read(position)
    assert record == TimerRecord(position, 0, MAGIC_DELETE, NOW, 2000, 400, 200, -2)
    assert record.due_ms == NOW + 2000
    for nowhere in (-1, 4, log.end, log.end + 8, FILE_SIZE, 10 * FILE_SIZE):
        assert log.read(nowhere) is None


def test_a_chain_is_walked_from_the_last_record_to_the_first() -> None:
    """B6: the timers of one moment, over the ends of files."""
    log = open_log(SimulatedDisk())
    chains: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for number in range(30):
        chain = chains[number % 3]
        chain.append(append(log, number, previous=chain[-1] if chain else NO_POSITION))
    for chain in chains.values():
        assert [record.position for record in log.walk(chain[-1])] == chain[::-1]
    assert list(log.walk(NO_POSITION)) == []


def test_a_broken_chain_is_an_error_and_not_a_shorter_one() -> None:
    log = open_log(SimulatedDisk())
    append(log, 1)
    second = append(log, 2, previous=7)
    with pytest.raises(StoreError, match="begins at 52 is broken at 7"):
        list(log.walk(second))
    with pytest.raises(StoreError, match="broken at 1000"):
        list(log.walk(1000))
    circle = append(log, 3, previous=2 * RECORD_SIZE)
    with pytest.raises(StoreError, match="broken"):
        list(log.walk(circle))


def test_files_whose_messages_are_gone_are_removed_but_never_the_last() -> None:
    """B5: retention."""
    disk = SimulatedDisk()
    log = open_log(disk)
    chain = [NO_POSITION]
    for number in range(3 * RECORDS_A_FILE):
        chain.append(append(log, number, previous=chain[-1]))
    last_of_first_file = (RECORDS_A_FILE - 1) * 200
    assert log.detach_expired(last_of_first_file) == []
    expired = log.detach_expired(last_of_first_file + 1)
    assert [mapped.start for mapped in expired] == [0]
    log.erase(expired)
    assert log.min_position == FILE_SIZE
    assert [record.position for record in log.walk(chain[-1])] == chain[:RECORDS_A_FILE:-1]
    log.erase(log.detach_expired(1 << 60))
    assert [entry.name for entry in disk.entries(FOLDER)] == [f"{2 * FILE_SIZE:020}"]

    log.close()
    after = reopen(disk)
    assert (after.min_position, after.end) == (2 * FILE_SIZE, 2 * FILE_SIZE + RECORDS_A_FILE * RECORD_SIZE)
    after.truncate(2 * FILE_SIZE)
    assert append(after, 99) == 2 * FILE_SIZE


def test_a_restart_finds_the_end_also_in_the_middle_and_behind_a_filler() -> None:
    """B5"""
    for count in (0, 1, RECORDS_A_FILE - 1, RECORDS_A_FILE, RECORDS_A_FILE + 1, 3 * RECORDS_A_FILE):
        disk = SimulatedDisk()
        log = open_log(disk)
        for number in range(count):
            append(log, number)
        log.close()
        after = reopen(disk)
        assert (after.end, delays(after)) == (log_end(count), list(range(count)))
        append(after, 1000)
        assert delays(after) == [*range(count), 1000]


def log_end(count: int) -> int:
    """Where a log ends that so many records were appended to; a full file waits for the next record."""
    files, rest = divmod(count, RECORDS_A_FILE)
    if files and not rest:
        files, rest = files - 1, RECORDS_A_FILE
    return files * FILE_SIZE + rest * RECORD_SIZE


def test_a_scan_begins_with_the_file_that_its_start_lies_in() -> None:
    log = open_log(SimulatedDisk())
    for number in range(3 * RECORDS_A_FILE):
        append(log, number)
    for start, first in ((0, 0), (FILE_SIZE - 1, 0), (FILE_SIZE, 7), (2 * FILE_SIZE + 5, 14), (10**9, 14)):
        assert next(position for position, _, _ in log.scan(start)) == log_position(first)


def log_position(number: int) -> int:
    return number // RECORDS_A_FILE * FILE_SIZE + number % RECORDS_A_FILE * RECORD_SIZE


@pytest.mark.parametrize(
    ("at", "what"),
    [
        (0, struct.pack(">i", 51)),
        (12, struct.pack(">i", 16)),
        (36, struct.pack(">i", 0)),
        (0, bytes(RECORD_SIZE)),
        (0, b"\xff" * RECORD_SIZE),
    ],
)
def test_the_log_is_cut_at_the_first_bad_record(at: int, what: bytes) -> None:
    """B5: and what lay behind it never comes back."""
    disk = SimulatedDisk()
    log = open_log(disk)
    for number in range(3 * RECORDS_A_FILE):
        append(log, number)
    log.sync()
    log.close()
    bad = log_position(9)
    file = disk.open(FOLDER / f"{FILE_SIZE:020}")
    file.buffer[bad - FILE_SIZE + at : bad - FILE_SIZE + at + len(what)] = what
    file.wrote(bad - FILE_SIZE + at, bad - FILE_SIZE + at + len(what))
    file.sync()
    file.close()

    after = reopen(disk)
    assert (after.end, delays(after)) == (bad, list(range(9)))
    append(after, 100)
    for mode in CrashMode:
        found = delays(reopen(disk.crash(mode)))
        assert found in ([*range(9)], [*range(9), 100]), mode


def test_a_full_disk_refuses_a_record_and_changes_nothing() -> None:
    """B4: also where a new file is due; when there is room again, the log goes on."""
    disk = SimulatedDisk()
    log = open_log(disk)
    refused = 0
    for number in range(3 * RECORDS_A_FILE):
        for operation in OPERATIONS_THAT_NEED_ROOM:
            disk.fail(operation, number=errno.ENOSPC)
            try:
                append(log, number)
                break
            except OSError:
                refused += 1
            finally:
                disk.heal()
            assert delays(log) == list(range(number))
        else:
            append(log, number)
    assert refused == 3 * len(OPERATIONS_THAT_NEED_ROOM)
    log.close()
    assert delays(reopen(disk)) == list(range(3 * RECORDS_A_FILE))


def test_the_log_is_cut_on_a_full_disk_too() -> None:
    """B5: erasing takes no room."""
    disk = SimulatedDisk(rules=Rules(capacity=64 * 1024))
    log = open_log(disk, file_size=1024 * 1024)
    for number in range(1000):
        append(log, number)
    log.sync()
    assert disk.usage(FOLDER) == DiskUsage(64 * 1024, 64 * 1024, 0)
    log.truncate(100 * RECORD_SIZE)
    assert delays(log) == list(range(100))
    assert append(log, 100) == 100 * RECORD_SIZE


def test_what_was_synced_survives_a_crash_at_any_point() -> None:
    """B4, B5: a crash leaves the records in order, at least all that were synced, and never half of one."""
    synced: dict[int, int] = {}

    def workload(disk: SimulatedDisk) -> None:
        log = open_log(disk)
        for number in range(2 * RECORDS_A_FILE + 3):
            append(log, number)
            if number % 4 == 3:
                log.sync()
                synced[disk.seed] = number + 1
        log.close()

    for disk, mode, after in crashes(
        workload, lambda point: SimulatedDisk(point or 0, stop_at=point), CrashMode
    ):
        log = reopen(after)
        found = delays(log)
        where = f"{mode} at {disk.last_point}"
        assert found == list(range(len(found))), where
        assert len(found) >= synced.get(disk.seed, 0), where
        append(log, len(found))
        log.sync()
        again = delays(reopen(after.crash(CrashMode.DROP)))
        assert again == list(range(len(found) + 1)), where


def test_records_of_a_former_life_do_not_come_back_after_a_second_crash() -> None:
    """B5: a log that was cut short and written again holds what was written last, whatever is lost."""

    def first_life() -> SimulatedDisk:
        disk = SimulatedDisk()
        log = open_log(disk)
        for number in range(3 * RECORDS_A_FILE):
            append(log, number)
        log.sync()
        return disk.crash(CrashMode.DROP)

    def make(point: int | None) -> SimulatedDisk:
        disk = first_life().crash(CrashMode.KEEP)
        disk.stop_at(point)
        return disk

    def second_life(disk: SimulatedDisk) -> None:
        log = open_log(disk)
        log.truncate(2 * RECORD_SIZE)
        for number in range(100, 100 + RECORDS_A_FILE):
            append(log, number)

    old, new = list(range(3 * RECORDS_A_FILE)), [0, 1, *range(100, 100 + RECORDS_A_FILE)]
    seen = set()
    for disk, mode, after in crashes(second_life, make, CrashMode):
        found = delays(reopen(after))
        assert found in (old[: len(found)], new[: len(found)]), f"{mode} at {disk.last_point}"
        seen.add(tuple(found))
    assert {tuple(old), tuple(new)} <= seen


def test_a_file_that_was_cut_off_does_not_come_back_under_the_name_of_a_new_one() -> None:
    """B5: not even if the system wrote the files before it on its own."""
    disk = SimulatedDisk()
    log = open_log(disk)
    for number in range(2 * RECORDS_A_FILE):
        append(log, number)
    log.sync()
    log.truncate(2 * RECORD_SIZE)
    for number in range(100, 100 + RECORDS_A_FILE):
        append(log, number)
    disk.open(FOLDER / f"{0:020}").sync()
    assert delays(reopen(disk.crash(CrashMode.DROP))) == [0, 1, 100, 101, 102, 103, 104]


def test_what_a_killed_process_left_is_on_the_disk_after_the_next_sync() -> None:
    """B5: until then it is in the system's memory only."""
    disk = SimulatedDisk()
    log = open_log(disk)
    for number in range(RECORDS_A_FILE + 2):
        append(log, number)
    after_kill = disk.crash(CrashMode.KEEP)
    log = reopen(after_kill)
    assert log.sync() == log.end
    assert delays(reopen(after_kill.crash(CrashMode.DROP))) == list(range(RECORDS_A_FILE + 2))
