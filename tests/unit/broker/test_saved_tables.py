"""Keeping tables on the disk, and what happens when the disk is full (B4)."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cometmq.broker.saved_tables import Periodic, SavedTable
from cometmq.model.errors import StoreError
from cometmq.ports.disk import SystemDisk
from cometmq.store.tables.files import ConfigFile
from cometmq.store.tables.tables import DelayOffsetTable
from tests.waiting import eventually


class SlowDisk(SystemDisk):
    """A disk that waits for the test, and fails if told so."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.go_on.set()
        self.failure: OSError | None = None
        self.saves = 0

    def replace(self, path: Path, data: bytes) -> None:
        self.go_on.wait(10)
        if self.failure is not None:
            raise self.failure
        super().replace(path, data)
        self.saves += 1


class Kit:
    """A table of one number and its file."""

    def __init__(self, folder: Path, worker: ThreadPoolExecutor) -> None:
        self.disk = SlowDisk()
        self.number = 0
        self.file = ConfigFile(self.disk, folder, DelayOffsetTable)
        self.table = SavedTable(self.file, self.snapshot, worker)

    def snapshot(self) -> DelayOffsetTable:
        return DelayOffsetTable(None, {1: self.number})

    def change(self) -> None:
        self.number += 1
        self.table.changed()

    @property
    def on_disk(self) -> int | None:
        found = self.file.load()
        return None if found is None else found.offset_table[1]


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    with ThreadPoolExecutor(1) as worker:
        yield Kit(tmp_path, worker)


async def test_a_change_is_on_the_disk_when_its_save_is_over(kit: Kit) -> None:
    """B4."""
    kit.change()
    await kit.table.saved()
    assert kit.on_disk == 1
    await kit.table.saved()
    assert kit.disk.saves == 1


async def test_changes_that_come_during_a_save_share_the_next_one(kit: Kit) -> None:
    """B4: and whoever waits gets a save that covers the own change."""
    kit.disk.go_on.clear()
    kit.change()
    first = asyncio.ensure_future(kit.table.saved())
    await asyncio.sleep(0)
    for _ in range(100):
        kit.change()
    last = asyncio.ensure_future(kit.table.saved())
    await asyncio.sleep(0)
    kit.disk.go_on.set()
    await first
    assert not last.done()
    await last
    assert kit.on_disk == 101
    assert kit.disk.saves == 2


async def test_a_save_that_fails_is_told_and_tried_again(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """B4: until it succeeds; the change is in force meanwhile."""
    monkeypatch.setattr("cometmq.broker.saved_tables.RETRY_S", 0.01)
    kit.disk.failure = OSError(errno.ENOSPC, "No space left on device")
    kit.change()
    with pytest.raises(StoreError, match=r"delayOffset\.json could not be saved: No space left on device"):
        await kit.table.saved()
    assert kit.table.is_dirty
    kit.disk.failure = None
    await eventually(lambda: not kit.table.is_dirty and kit.disk.saves > 0)
    assert kit.on_disk == 1


async def test_a_stop_saves_what_is_unsaved(kit: Kit) -> None:
    """B4: once, however it ends."""
    kit.disk.go_on.clear()
    kit.change()
    kit.change()
    asyncio.get_running_loop().call_later(0.01, kit.disk.go_on.set)
    await kit.table.stop()
    assert kit.on_disk == 2
    kit.disk.failure = OSError(errno.EIO, "broken")
    kit.change()
    await kit.table.stop()
    assert kit.on_disk == 2


async def test_something_periodic_goes_on_after_a_failure() -> None:
    """B4: and ends when it is stopped."""
    runs: list[int] = []
    enough = asyncio.Event()

    def work() -> None:
        runs.append(1)
        if len(runs) == 1:
            raise ValueError("once")
        if len(runs) == 3:
            enough.set()

    periodic = Periodic(0, 0.001, work, "testing")
    periodic.start()
    async with asyncio.timeout(5):
        await enough.wait()
    periodic.stop()
    assert periodic._timer is None
