"""The index of keys: starts, crashes, retention and full disks."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from cometmq.model.errors import StoreError
from cometmq.ports.disk import SystemDisk
from cometmq.store.index.index import Index
from cometmq.testing.clock import VirtualClock
from cometmq.testing.simulation.disk import CrashMode, SimulatedDisk, crashes
from tests.unit.store.index.index_kit import ENTRIES, FOLDER, SLOTS, START_MS, an_index, files, found, put


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def test_what_is_dispatched_again_is_not_indexed_again(disk: SimulatedDisk) -> None:
    """B5: nor is anything that lies before the last record."""
    index = an_index(disk)
    put(index, "orders", None, "a", 0, START_MS)
    put(index, "orders", "u", "a b", 500, START_MS)
    before = files(disk, index)
    index = an_index(disk)
    for physical_offset, keys in ((0, "a"), (300, "c"), (500, "a b")):
        put(index, "orders", "u" if physical_offset else None, keys, physical_offset, START_MS)

    assert files(disk, index) == before


def test_the_keys_that_a_kill_left_out_are_added(disk: SimulatedDisk) -> None:
    """B5"""
    index = an_index(disk)
    put(index, "orders", "u", "a", 500, START_MS)
    put(index, "orders", "u", "a b", 500, START_MS)

    assert [found(index, key) for key in ("u", "a", "b")] == [[500]] * 3


def test_the_index_is_found_again_and_goes_on(disk: SimulatedDisk) -> None:
    """B5"""
    index = an_index(disk)
    for number in range(30):
        put(index, "orders", None, f"k{number}", 100 * number, START_MS + number)
    index.close()
    index = an_index(disk)
    assert index.end_offset == 2900
    put(index, "orders", None, "k30", 3000, START_MS + 30)

    assert [found(index, f"k{number}") for number in range(31)] == [[100 * n] for n in range(31)]
    assert len(files(disk, index)) == 2


def test_what_a_start_finds_is_synced_once_more(disk: SimulatedDisk) -> None:
    """B5: after a kill it may be in the system's memory only."""
    index = an_index(disk)
    put(index, "orders", None, "a", 500, START_MS)
    index.write()
    an_index(disk).sync()

    assert found(an_index(disk.crash(CrashMode.DROP)), "a") == [500]


def test_after_an_unclean_stop_the_last_record_of_the_last_file_is_put_again(disk: SimulatedDisk) -> None:
    """B5: it may be torn; full files that the checkpoint knows stay as they are."""
    index = an_index(disk)
    for number in range(50):
        put(index, "orders", None, f"k{number}", 100 * number, START_MS + number)
    index.write()
    before = files(disk, index)
    safe_until_ms = index.sync(only_full=True)
    assert safe_until_ms == START_MS + 37
    index = Index(disk, VirtualClock(), FOLDER, SLOTS, ENTRIES)
    index.load(stopped_cleanly=False, safe_until_ms=safe_until_ms)
    index.mend(5000, time_of)

    assert index.end_offset == 4800
    for number in range(50):
        put(index, "orders", None, f"k{number}", 100 * number, START_MS + number)
    assert [found(index, f"k{number}") for number in range(50)] == [[100 * n] for n in range(50)]
    assert files(disk, index) == before


def test_entries_of_records_behind_a_limit_are_forgotten_with_all_that_leads_to_them(
    disk: SimulatedDisk,
) -> None:
    """B5: as if they had never been put."""
    index = an_index(disk)
    for number in range(30):
        put(index, "orders", "u", f"k{number}", 100 * number, START_MS + 1000 * number)
    index.close()
    index = an_index(disk)
    index.mend(1200, time_of_seconds)
    again = SimulatedDisk()
    shorter = an_index(again)
    for number in range(12):
        put(shorter, "orders", "u", f"k{number}", 100 * number, START_MS + 1000 * number)

    assert files(disk, index) == files(again, shorter)


@pytest.mark.parametrize("damage", [b"\0" * 20, b"\xff" * 20, b"\0" * 4])
def test_a_torn_entry_and_all_behind_it_are_forgotten(disk: SimulatedDisk, damage: bytes) -> None:
    """B5"""
    index = an_index(disk)
    for number in range(50):
        put(index, "orders", None, f"k{number}", 100 * number, START_MS + number)
    index.close()
    index = Index(disk, VirtualClock(), FOLDER, SLOTS, ENTRIES)
    path = FOLDER / disk.entries(FOLDER)[1].name
    file = disk.open(path)
    at = 40 + SLOTS * 4 + 9 * 20
    file.buffer[at : at + len(damage)] = damage
    file.wrote(at, at + len(damage))
    file.close()
    index.load(stopped_cleanly=False, safe_until_ms=0)
    index.mend(5000, time_of)

    assert index.end_offset == 100 * (ENTRIES - 1 + 6)
    for number in range(50):
        put(index, "orders", None, f"k{number}", 100 * number, START_MS + number)
    assert [found(index, f"k{number}") for number in range(50)] == [[100 * n] for n in range(50)]


def time_of(offset: int) -> int:
    return START_MS + offset // 100


def time_of_seconds(offset: int) -> int:
    return START_MS + offset * 10


def test_a_sync_says_nothing_of_files_that_are_not_full(disk: SimulatedDisk) -> None:
    """B5"""
    index = an_index(disk)
    assert index.sync() == 0
    put(index, "orders", None, "a", 500, START_MS)

    assert index.sync() == 0
    assert index.sync(only_full=True) == 0


def test_what_is_put_while_a_sync_is_under_way_is_left_to_the_next_one(disk: SimulatedDisk) -> None:
    """B5"""
    index = an_index(disk)
    for number in range(ENTRIES - 2):
        put(index, "orders", None, f"k{number}", 100 * number, START_MS)

    def put_the_last(point: str) -> None:
        if point.startswith("sync begins"):
            disk.on_point(None)
            put(index, "orders", None, "last", 5000, START_MS)
            index.write()

    disk.on_point(put_the_last)
    assert index.sync() == 0
    assert index.sync(only_full=True) == START_MS
    assert found(an_index(disk.crash(CrashMode.DROP)), "last") == [5000]


def test_a_file_that_is_full_of_expired_messages_goes_but_never_the_last(disk: SimulatedDisk) -> None:
    """B5"""
    index = an_index(disk)
    for number in range(50):
        put(index, "orders", None, f"k{number}", 100 * number, START_MS + number)
    index.write()
    assert index.detach_expired(1800) == []
    index.erase(index.detach_expired(1801))
    assert len(files(disk, index)) == 2
    index.erase(index.detach_expired(10**9))
    assert len(files(disk, index)) == 1
    assert found(index, "k49") == [4900]
    index.cut_to(0)
    assert files(disk, index) == []


def test_files_of_another_size_are_refused_and_other_files_left_alone(
    disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """B10"""
    disk.create(FOLDER / "notes.txt", 10).close()
    an_index(disk)
    assert "notes.txt is not an index file" in caplog.text
    disk.create(FOLDER / "20260704050607089", 1000).close()

    with pytest.raises(StoreError, match="20260704050607089 has 1000 bytes, expected 468 for 7 slots"):
        an_index(disk)


def test_a_full_disk_is_an_error_and_the_message_can_be_indexed_later(disk: SimulatedDisk) -> None:
    """B4"""
    index = an_index(disk)
    disk.fail("reserve", number=errno.ENOSPC)
    put(index, "orders", "u", "a", 500, START_MS)
    with pytest.raises(OSError, match=r"."):
        index.write()
    assert found(index, "u") == []
    disk.heal()

    assert [found(index, key) for key in ("u", "a")] == [[500]] * 2


def test_on_a_full_disk_only_so_much_is_kept_to_be_written_later(disk: SimulatedDisk) -> None:
    """B4: a message that is refused can be indexed later, too."""
    index = an_index(disk, entries=1000)
    disk.fail("create", number=errno.ENOSPC)
    taken = 0
    with pytest.raises(OSError, match=r"."):  # noqa: PT012
        while taken < 1000:
            put(index, "orders", f"u{taken}", None, 100 * taken, START_MS)
            taken += 1
    disk.heal()
    for number in range(taken + 1):
        put(index, "orders", f"u{number}", None, 100 * number, START_MS)

    assert 0 < taken < 500
    assert [found(index, f"u{number}") for number in range(taken + 1)] == [
        [100 * number] for number in range(taken + 1)
    ]


def test_what_was_put_before_is_not_put_again_before_it_is_written(disk: SimulatedDisk) -> None:
    """B5"""
    index = an_index(disk, entries=1000)
    for _ in range(2):
        for number in range(10):
            put(index, "orders", f"u{number}", "a", 100 * number, START_MS)

    assert found(index, "a") == [100 * number for number in reversed(range(10))]


def test_after_every_crash_the_log_makes_the_index_whole_again() -> None:
    """B4: with the time that the last finished sync gave, every message is found, once."""
    safe = [0]

    def work(disk: SimulatedDisk) -> None:
        safe[0] = 0
        index = an_index(disk)
        for number in range(45):
            put(index, "orders", f"u{number}", "a", 100 * number, START_MS + number)
            if number % 5 == 4:
                index.write()
            if number % 8 == 7:
                safe[0] = index.sync(only_full=True)

    def disk_for(point: int | None) -> SimulatedDisk:
        return SimulatedDisk(point or 0, stop_at=point)

    for _, mode, after in crashes(work, disk_for, list(CrashMode), step=3):
        index = Index(after, VirtualClock(), FOLDER, SLOTS, ENTRIES)
        index.load(stopped_cleanly=False, safe_until_ms=safe[0])
        index.mend(4500, time_of)
        for number in range(45):
            put(index, "orders", f"u{number}", "a", 100 * number, START_MS + number)
        assert [found(index, f"u{number}") for number in range(45)] == [[100 * n] for n in range(45)], mode
        assert found(index, "a") == [100 * number for number in reversed(range(45))], mode


def test_an_index_on_a_real_disk_is_found_again(tmp_path: Path) -> None:
    """B10: with the sizes that a store has by default."""
    folder = tmp_path / "index"
    index = Index(SystemDisk(), VirtualClock(), folder, 5_000_000, 20_000_000)
    for number in range(1000):
        put(index, "orders", f"{number:032X}", None, 100 * number, START_MS + number)
    index.sync()
    index.close()
    index = Index(SystemDisk(), VirtualClock(), folder, 5_000_000, 20_000_000)
    index.load(stopped_cleanly=True, safe_until_ms=0)

    assert [found(index, f"{number:032X}") for number in range(1000)] == [[100 * n] for n in range(1000)]
    index.close()
