"""The checkpoint file."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from cometmq.store.checkpoint import Checkpoint
from cometmq.testing.simulation.disk import CrashMode, SimulatedDisk, crashes

PATH = Path("/store/checkpoint")


def test_five_numbers_stand_at_the_beginning_of_4096_bytes() -> None:
    """B5"""
    disk = SimulatedDisk()
    checkpoint = Checkpoint(disk, PATH)
    checkpoint.physic_msg_timestamp = 1
    checkpoint.logics_msg_timestamp = 2
    checkpoint.index_msg_timestamp = 3
    checkpoint.master_flushed_offset = 4
    checkpoint.confirm_phy_offset = 5
    checkpoint.sync()

    assert disk.read(PATH) == struct.pack(">5q", 1, 2, 3, 4, 5) + bytes(4096 - 40)
    again = Checkpoint(disk, PATH)
    assert (again.physic_msg_timestamp, again.logics_msg_timestamp, again.index_msg_timestamp) == (1, 2, 3)
    assert (again.master_flushed_offset, again.confirm_phy_offset) == (4, 5)


def test_a_new_checkpoint_knows_nothing() -> None:
    """B5"""
    checkpoint = Checkpoint(SimulatedDisk(), PATH)

    assert checkpoint.min_timestamp == 0


@pytest.mark.parametrize(
    ("physic", "logics", "index", "expected"),
    [(9000, 8000, 7000, 5000), (8000, 9000, 4000, 5000), (2000, 9000, 9000, 0)],
)
def test_a_recovery_begins_three_seconds_before_the_older_of_log_and_queues(
    physic: int, logics: int, index: int, expected: int
) -> None:
    """B5"""
    checkpoint = Checkpoint(SimulatedDisk(), PATH)
    checkpoint.physic_msg_timestamp = physic
    checkpoint.logics_msg_timestamp = logics
    checkpoint.index_msg_timestamp = index

    assert checkpoint.min_timestamp == expected


def test_an_empty_file_is_replaced_and_a_short_one_made_way_for() -> None:
    """B5: the first is what a crash leaves; the second is not, and stays under another name."""
    disk = SimulatedDisk()
    disk.create(PATH, 0).close()
    assert Checkpoint(disk, PATH).min_timestamp == 0
    disk.remove(PATH)
    disk.create(PATH, 40).close()

    assert Checkpoint(disk, PATH).min_timestamp == 0
    assert {entry.name: entry.size for entry in disk.entries(PATH.parent)} == {
        PATH.name: 4096,
        f"{PATH.name}.unreadable": 40,
    }


def test_after_every_crash_a_finished_sync_counts() -> None:
    """B4"""
    finished: list[int] = []

    def work(disk: SimulatedDisk) -> None:
        finished.clear()
        checkpoint = Checkpoint(disk, PATH)
        for moment in range(1000, 1005):
            checkpoint.physic_msg_timestamp = moment
            checkpoint.sync()
            finished.append(moment)

    def disk_for(point: int | None) -> SimulatedDisk:
        return SimulatedDisk(point or 0, stop_at=point)

    for _, mode, after in crashes(work, disk_for, [CrashMode.DROP, CrashMode.KEEP, CrashMode.TORN]):
        last = finished[-1] if finished else 0
        assert Checkpoint(after, PATH).physic_msg_timestamp in (last, last + 1, 1000), mode
