"""Who may use a store directory, and what tells whether it was left in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from cometmq.model.errors import StoreError
from cometmq.ports.disk import SystemDisk
from cometmq.store.directory import StoreDirectory
from cometmq.store.status import RunningFlags, Trouble
from cometmq.testing.simulation.disk import CrashMode, SimulatedDisk
from tests.unit.store.log_kit import ROOT


def test_a_directory_has_one_user_at_a_time() -> None:
    """B4: the second one is told what holds it, and what to do."""
    disk = SimulatedDisk()
    first, second = StoreDirectory(disk, ROOT), StoreDirectory(disk, ROOT)
    first.enter()

    with pytest.raises(StoreError, match="/store/lock is held by another process"):
        second.enter()
    first.leave(in_order=True)
    assert second.enter()


def test_a_directory_left_in_order_is_found_in_order(tmp_path: Path) -> None:
    """B5"""
    directory = StoreDirectory(SystemDisk(), tmp_path / "store")

    assert directory.enter()
    assert (tmp_path / "store" / "abort").read_bytes().isdigit()
    directory.leave(in_order=True)
    assert not (tmp_path / "store" / "abort").exists()
    assert directory.enter()
    directory.leave(in_order=False)
    assert (tmp_path / "store" / "abort").exists()
    assert not directory.enter()
    directory.leave(in_order=True)


@pytest.mark.parametrize("mode", CrashMode)
def test_a_crash_is_noticed_from_the_moment_the_directory_is_entered(mode: CrashMode) -> None:
    """B5: the mark is on the disk before anything else is changed."""
    disk = SimulatedDisk()
    StoreDirectory(disk, ROOT).enter()

    assert not StoreDirectory(disk.crash(mode), ROOT).enter()


@pytest.mark.parametrize("mode", CrashMode)
def test_the_end_of_a_directory_in_order_is_on_the_disk(mode: CrashMode) -> None:
    """B5"""
    disk = SimulatedDisk()
    directory = StoreDirectory(disk, ROOT)
    directory.enter()
    directory.leave(in_order=True)

    assert StoreDirectory(disk.crash(mode), ROOT).enter()


def test_a_directory_that_cannot_be_entered_is_not_locked() -> None:
    """B4"""
    disk = SimulatedDisk()
    disk.fail("replace", times=1)
    with pytest.raises(OSError, match="abort"):
        StoreDirectory(disk, ROOT).enter()

    assert StoreDirectory(disk, ROOT).enter()


@pytest.mark.parametrize("trouble", Trouble)
def test_every_trouble_but_one_speaks_against_writing(trouble: Trouble) -> None:
    """B5"""
    flags, changes = RunningFlags(), []
    flags.on_change = lambda: changes.append(flags.troubles)
    assert flags.is_readable
    assert flags.is_writable

    assert flags.set(trouble)
    assert not flags.set(trouble)
    assert flags.is_readable == (trouble is not Trouble.NOT_READABLE)
    assert flags.is_writable == (trouble is Trouble.NOT_READABLE)
    assert flags.set(trouble, on=False)
    assert changes == [trouble, Trouble(0)]
