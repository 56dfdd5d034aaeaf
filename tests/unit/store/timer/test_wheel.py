"""The timer wheel: slots for two rounds of moments, kept in memory and written back."""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.model.errors import StoreError
from cometmq.ports.disk import Disk, SystemDisk
from cometmq.store.timer.wheel import SLOT_SIZE, SLOTS_PER_ROUND, Slot, TimerWheel
from cometmq.testing.simulation.disk import CrashMode, SimulatedDisk, crashes

PATH = Path("/store/timerwheel")
SLOTS = 500
NOW = 1_700_000_000_000


def open_wheel(disk: Disk, path: Path = PATH, *, precision_ms: int = 1000) -> TimerWheel:
    wheel = TimerWheel(disk, path, precision_ms, SLOTS)
    wheel.load()
    return wheel


def flush(wheel: TimerWheel) -> None:
    wheel.write_back(wheel.take_changes())


def test_the_file_has_apaches_size_and_bytes(tmp_path: Path) -> None:
    """B6"""
    wheel = TimerWheel(SystemDisk(), tmp_path / "timerwheel")
    wheel.load()
    assert (tmp_path / "timerwheel").stat().st_size == 38_707_200
    assert (tmp_path / "timerwheel").stat().st_blocks * 512 < 1024 * 1024
    wheel.put(NOW + 999, 52, 104, 2)
    flush(wheel)
    wheel.close()
    with (tmp_path / "timerwheel").open("rb") as file:
        file.seek(NOW // 1000 % (2 * SLOTS_PER_ROUND) * SLOT_SIZE)
        assert file.read(SLOT_SIZE) == struct.pack(">qqqii", NOW // 1000, 52, 104, 2, 0)


def test_a_slot_belongs_to_one_moment_of_the_precision() -> None:
    wheel = open_wheel(SimulatedDisk())
    assert wheel.get(NOW) is None
    assert wheel.last(NOW) == -1
    wheel.add(NOW, 0)
    wheel.add(NOW + 999, 52)
    wheel.add(NOW + 500, 104, -1)
    assert wheel.get(NOW) == wheel.get(NOW + 999) == Slot(first=0, last=104, num=1)
    assert wheel.last(NOW) == 104
    assert wheel.get(NOW - 1) is wheel.get(NOW + 1000) is None


def test_a_moment_two_rounds_later_takes_the_slot_over() -> None:
    wheel = open_wheel(SimulatedDisk())
    later = NOW + 2 * SLOTS * 1000
    wheel.add(NOW, 52)
    assert wheel.get(later) is None
    wheel.add(later, 104)
    assert wheel.get(NOW) is None
    assert wheel.last(NOW) == -1
    assert wheel.get(later) == Slot(104, 104, 1)


def test_a_finer_precision_has_slots_of_its_own() -> None:
    wheel = open_wheel(SimulatedDisk(), precision_ms=100)
    wheel.add(NOW, 0)
    wheel.add(NOW + 100, 52)
    assert wheel.get(NOW + 99) == Slot(0, 0, 1)
    assert wheel.get(NOW + 199) == Slot(52, 52, 1)


def test_timers_are_counted_from_one_moment_to_another() -> None:
    wheel = open_wheel(SimulatedDisk())
    for second in range(100):
        for _ in range(second % 3):
            wheel.add(NOW + second * 1000, second)
    assert wheel.count(NOW) == 99
    assert wheel.count(NOW + 50_000) == sum(second % 3 for second in range(50, 100))
    assert wheel.count(NOW + 10_000, NOW + 20_000) == sum(second % 3 for second in range(10, 20))
    flush(wheel)
    assert wheel.count(NOW) == 99
    assert wheel.count(NOW + 100_000) == 0


def test_what_was_written_back_is_there_after_a_restart_and_nothing_else() -> None:
    """B5"""
    disk = SimulatedDisk()
    wheel = open_wheel(disk)
    wheel.add(NOW, 52)
    flush(wheel)
    wheel.add(NOW + 1000, 104)
    wheel.close()
    again = open_wheel(disk)
    assert again.get(NOW) == Slot(52, 52, 1)
    assert again.get(NOW + 1000) is None
    assert again.count(NOW) == 1


def test_changes_made_while_others_are_written_back_come_with_the_next_ones() -> None:
    disk = SimulatedDisk()
    wheel = open_wheel(disk)
    wheel.add(NOW, 52)
    changes = wheel.take_changes()
    wheel.add(NOW, 104)
    wheel.write_back(changes)
    assert open_wheel(disk).get(NOW) == Slot(52, 52, 1)
    flush(wheel)
    assert open_wheel(disk).get(NOW) == Slot(52, 104, 2)
    assert wheel.take_changes() == []


@pytest.mark.parametrize("operation", ["reserve", "sync"])
def test_what_could_not_be_written_back_is_written_the_next_time(operation: str) -> None:
    """B5: a failed sync counts as not written, although the system forgets it."""
    disk = SimulatedDisk()
    wheel = open_wheel(disk)
    wheel.add(NOW, 52)
    disk.fail("reserve" if operation == "reserve" else "sync", number=errno.ENOSPC, times=1)
    with pytest.raises(OSError, match="No space left"):
        flush(wheel)
    flush(wheel)
    assert open_wheel(disk.crash(CrashMode.DROP)).get(NOW) == Slot(52, 52, 1)


def test_many_timers_of_few_moments_are_few_changes() -> None:
    wheel = open_wheel(SimulatedDisk())
    for position in range(10_000):
        wheel.add(NOW + position % 64 * 1000, position)
    changes = wheel.take_changes()
    assert sum(len(block) for _, block in changes) <= 2 * 4096
    assert wheel.count(NOW) == 10_000


def test_a_file_of_another_size_and_an_empty_one_are_made_anew() -> None:
    disk = SimulatedDisk()
    disk.create(PATH, 2 * SLOTS * SLOT_SIZE + SLOT_SIZE).close()
    open_wheel(disk).close()
    assert {entry.name: entry.size for entry in disk.entries(PATH.parent)} == {
        PATH.name: 2 * SLOTS * SLOT_SIZE,
        f"{PATH.name}.unreadable": 2 * SLOTS * SLOT_SIZE + SLOT_SIZE,
    }
    disk.remove(PATH)
    disk.create(PATH, 0).close()
    open_wheel(disk)
    assert disk.entries(PATH.parent)[0].size == 2 * SLOTS * SLOT_SIZE
    with pytest.raises(StoreError, match="not open"):
        TimerWheel(disk, PATH).write_back([])


def test_a_record_that_is_seen_again_changes_nothing_and_a_new_one_is_added() -> None:
    """B5"""
    wheel = open_wheel(SimulatedDisk())
    wheel.add(NOW, 52)
    wheel.add(NOW, 104)
    wheel.revise(NOW, 52)
    wheel.revise(NOW, 104)
    assert wheel.get(NOW) == Slot(52, 104, 2)
    wheel.revise(NOW, 156)
    wheel.revise(NOW, 208, -1)
    assert wheel.get(NOW) == Slot(52, 208, 2)
    wheel.revise(NOW + 1000, 260)
    assert wheel.get(NOW + 1000) == Slot(260, 260, 1)
    wheel.revise(NOW - 2 * SLOTS * 1000, 0)
    assert wheel.get(NOW) == Slot(52, 208, 2)


def test_slots_that_point_behind_the_end_of_the_log_are_emptied() -> None:
    """B5: the answer says from where on the log has to be read again."""
    wheel = open_wheel(SimulatedDisk())
    wheel.put(NOW, 0, 52, 2)
    wheel.put(NOW + 1000, 104, 1040, 3)
    wheel.put(NOW + 2000, 156, 2080, 3)
    assert wheel.cut(3000) is None
    assert wheel.cut(1040) == 104
    assert wheel.get(NOW) == Slot(0, 52, 2)
    assert wheel.get(NOW + 1000) == wheel.get(NOW + 2000) == Slot(-1, -1, 0)
    wheel.revise(NOW + 1000, 104)
    wheel.add(NOW + 2000, 156)
    assert wheel.get(NOW + 1000) == Slot(104, 104, 1)
    assert wheel.get(NOW + 2000) == Slot(156, 156, 1)


def test_a_crash_at_any_point_leaves_every_slot_as_some_flush_had_it() -> None:
    """B4, B5: a slot lies in one sector."""
    versions: dict[int, list[Slot | None]] = {second: [None] for second in range(0, 600, 97)}

    def workload(disk: SimulatedDisk) -> None:
        wheel = open_wheel(disk)
        for number in range(3):
            for second in versions:
                wheel.put(NOW + second * 1000, number, number + 1, number + 2)
                versions[second].append(Slot(number, number + 1, number + 2))
            flush(wheel)
            flushed[disk.seed] = number
        wheel.close()

    flushed: dict[int, int] = {}
    for disk, mode, after in crashes(workload, lambda point: SimulatedDisk(point or 0, stop_at=point)):
        wheel = open_wheel(after)
        for second, known in versions.items():
            slot = wheel.get(NOW + second * 1000)
            where = f"{mode} at {disk.last_point}"
            assert slot in known, where
            assert (slot.first if slot else -1) >= flushed.get(disk.seed, -1), where


@given(st.lists(st.tuples(st.integers(0, 2 * SLOTS - 1), st.booleans()), max_size=60))
def test_the_wheel_holds_what_was_added_over_any_number_of_flushes(steps: list[tuple[int, bool]]) -> None:
    disk = SimulatedDisk()
    wheel = open_wheel(disk)
    expected: dict[int, list[int]] = {}
    for position, (second, flushes) in enumerate(steps):
        wheel.add(NOW + second * 1000, position)
        expected.setdefault(second, []).append(position)
        if flushes:
            flush(wheel)
    flush(wheel)
    wheel.close()
    again = open_wheel(disk)
    for second in range(2 * SLOTS):
        positions = expected.get(second)
        slot = again.get(NOW + second * 1000)
        assert slot == (Slot(positions[0], positions[-1], len(positions)) if positions else None)
    assert again.count(NOW) == len(steps)
