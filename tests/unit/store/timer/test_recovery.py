"""Log and wheel agree after every crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from cometmq.store.timer.log import MAGIC_DEFAULT, MAGIC_DELETE, RECORD_SIZE, TimerLog, recover_timers
from cometmq.store.timer.wheel import Slot, TimerWheel
from cometmq.testing.simulation.disk import CrashMode, SimulatedDisk, crashes

ROOT = Path("/store")
FILE_SIZE = 400
SLOTS = 200
NOW = 1_700_000_000_000
TIMERS = [(number * 7 % 5 * 1000, number % 6 == 5) for number in range(24)]
"""When each is due after now, and whether it takes another one back."""


class Timers:
    """A log and a wheel, as a service uses them."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.log = TimerLog(disk, ROOT / "timerlog", FILE_SIZE)
        self.wheel = TimerWheel(disk, ROOT / "timerwheel", slots_per_round=SLOTS)
        self.log.load()
        self.wheel.load()

    def set(self, number: int) -> None:
        after_ms, takes_back = TIMERS[number]
        due_ms = NOW + after_ms
        magic = MAGIC_DEFAULT | (MAGIC_DELETE if takes_back else 0)
        position = self.log.append(self.wheel.last(due_ms), magic, NOW, after_ms, number * 100, 100, 0)
        self.wheel.add(due_ms, position, -1 if takes_back else 1)

    def flush(self) -> None:
        changes = self.wheel.take_changes()
        self.log.sync()
        self.wheel.write_back(changes)

    def found(self) -> dict[int, list[int]]:
        """By moment: the numbers of its timers, the newest first, as the chains have them."""
        return {
            after_ms: [
                record.commit_log_offset // 100 for record in self.log.walk(self.wheel.last(NOW + after_ms))
            ]
            for after_ms, _ in TIMERS
        }


def expected(count: int) -> dict[int, list[int]]:
    """The same for the first so many timers."""
    return {
        after_ms: [number for number in reversed(range(count)) if TIMERS[number][0] == after_ms]
        for after_ms, _ in TIMERS
    }


def nums(count: int) -> dict[int, int]:
    return {
        after_ms: sum(-1 if TIMERS[number][1] else 1 for number in numbers)
        for after_ms, numbers in expected(count).items()
    }


def check_all(timers: Timers, count: int) -> None:
    assert timers.found() == expected(count)
    for after_ms, num in nums(count).items():
        slot = timers.wheel.get(NOW + after_ms)
        assert (slot.num if slot else 0) == num


@pytest.mark.parametrize("start", [0, FILE_SIZE + 5])
def test_a_wheel_that_is_behind_learns_the_records_it_does_not_know(start: int) -> None:
    """B5"""
    disk = SimulatedDisk()
    timers = Timers(disk)
    for number in range(12):
        timers.set(number)
    timers.flush()
    for number in range(12, 24):
        timers.set(number)
    timers.log.sync()

    after = Timers(disk.crash(CrashMode.DROP))
    assert recover_timers(after.log, after.wheel, start) == timers.log.end
    check_all(after, 24)


def test_a_wheel_that_is_ahead_forgets_the_records_that_are_lost() -> None:
    """B5: Apache may write its wheel before its log."""
    disk = SimulatedDisk()
    timers = Timers(disk)
    for number in range(12):
        timers.set(number)
    timers.log.sync()
    for number in range(12, 24):
        timers.set(number)
    timers.wheel.write_back(timers.wheel.take_changes())

    after = Timers(disk.crash(CrashMode.DROP))
    recover_timers(after.log, after.wheel, FILE_SIZE)
    check_all(after, 12)


def test_a_wheel_without_its_log_is_empty_and_a_log_without_its_wheel_makes_it() -> None:
    """B5"""
    disk = SimulatedDisk()
    timers = Timers(disk)
    for number in range(24):
        timers.set(number)
    timers.flush()
    timers.log.close()
    timers.wheel.close()

    without_log = disk.crash(CrashMode.KEEP)
    for entry in without_log.entries(ROOT / "timerlog"):
        without_log.remove(ROOT / "timerlog" / entry.name)
    after = Timers(without_log)
    assert recover_timers(after.log, after.wheel, 0) == 0
    assert after.wheel.get(NOW) == Slot(-1, -1, 0)
    assert after.found() == expected(0)

    disk.remove(ROOT / "timerwheel")
    after = Timers(disk)
    recover_timers(after.log, after.wheel, 0)
    check_all(after, 24)


def test_after_a_crash_at_any_point_log_and_wheel_agree_and_go_on() -> None:
    """B4, B5: everything that was flushed is there, in its chain, and counted."""
    flushed: dict[int, int] = {}

    def workload(disk: SimulatedDisk) -> None:
        timers = Timers(disk)
        for number in range(20):
            timers.set(number)
            if number % 5 == 4:
                timers.flush()
                flushed[disk.seed] = number + 1

    for disk, mode, after in crashes(
        workload, lambda point: SimulatedDisk(point or 0, stop_at=point), CrashMode
    ):
        timers = Timers(after)
        end = recover_timers(timers.log, timers.wheel, 0)
        count = end // FILE_SIZE * 7 + end % FILE_SIZE // RECORD_SIZE
        where = f"{mode} at {disk.last_point}"
        assert count >= flushed.get(disk.seed, 0), where
        check_all(timers, count)
        for number in range(count, 24):
            timers.set(number)
        timers.flush()
        again = Timers(after.crash(CrashMode.DROP))
        recover_timers(again.log, again.wheel, end)
        check_all(again, 24)
