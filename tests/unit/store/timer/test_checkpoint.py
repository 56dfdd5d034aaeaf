"""The checkpoint of the timers: seven numbers that are on the disk together."""

from __future__ import annotations

from pathlib import Path

import pytest

from cometmq.model.errors import StoreError
from cometmq.model.topic import DataVersion
from cometmq.store.timer.checkpoint import TimerCheckpoint, TimerProgress
from cometmq.testing.simulation.disk import CrashMode, SimulatedDisk, crashes

PATH = Path("/store/config/timercheck")


def progress(number: int) -> TimerProgress:
    return TimerProgress(number, number, number, number, DataVersion(number, number, number))


def test_what_is_saved_is_loaded_again_and_on_the_disk() -> None:
    """B5"""
    disk = SimulatedDisk()
    checkpoint = TimerCheckpoint(disk, PATH)
    assert checkpoint.load() == TimerProgress()
    saved = TimerProgress(1_700_000_000_000, 884, 17, 18, DataVersion(1, 2, 3))
    checkpoint.save(saved)
    checkpoint.close()
    content = disk.read(PATH)
    assert content is not None
    assert (len(content), content[:56]) == (4096, saved.pack())
    assert TimerCheckpoint(disk.crash(CrashMode.DROP), PATH).load() == saved


def test_the_numbers_stand_in_apaches_order() -> None:
    text = TimerProgress(1, 2, 3, 4, DataVersion(state_version=5, timestamp=6, counter=7)).pack()
    assert text == b"".join(number.to_bytes(8, "big") for number in range(1, 8))
    assert TimerProgress.unpack(text) == TimerProgress(1, 2, 3, 4, DataVersion(5, 6, 7))
    assert TimerProgress.unpack(text[:32]) == TimerProgress(1, 2, 3, 4)


def test_a_crash_at_any_point_leaves_one_saved_state_whole() -> None:
    """B4"""
    saved: dict[int, int] = {}

    def workload(disk: SimulatedDisk) -> None:
        checkpoint = TimerCheckpoint(disk, PATH)
        checkpoint.load()
        for number in range(1, 4):
            checkpoint.save(progress(number))
            saved[disk.seed] = number

    for disk, mode, after in crashes(workload, lambda point: SimulatedDisk(point or 0, stop_at=point)):
        found = TimerCheckpoint(after, PATH).load()
        last = saved.get(disk.seed, 0)
        assert found in (progress(last), progress(last + 1)), f"{mode} at {disk.last_point}"


def test_a_file_that_is_too_short_is_refused_and_one_that_is_not_open_too() -> None:
    disk = SimulatedDisk()
    disk.create(PATH, 40).close()
    with pytest.raises(StoreError, match="/store/config/timercheck has 40 bytes, expected 4096"):
        TimerCheckpoint(disk, PATH).load()
    with pytest.raises(StoreError, match="not open"):
        TimerCheckpoint(disk, PATH).save(TimerProgress())
