"""What is deleted, when, and what happens when the disk is full."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

import pytest

from cometmq.store.config import StoreConfig
from cometmq.store.retention import Retention
from cometmq.store.status import PutStatus, Trouble
from cometmq.testing.clock import VirtualClock
from cometmq.testing.simulation.disk import CrashMode, Rules, SimulatedDisk
from tests.unit.store.log_kit import ROOT
from tests.unit.store.store_kit import LOG_FILE_SIZE, Engine, a_message, bodies_in, messages_in, small

T = TypeVar("T")

HOUR_MS = 3_600_000
NOON = datetime(2026, 11, 15, 12)
FOUR = datetime(2026, 11, 16, 4)
LARGE = 20_000
"""Three messages of this size are in a log file."""
EVER = 2**63 - 1


def ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


async def in_place(work: Callable[[], T]) -> T:
    return work()


class Cleaned:
    """A store on a disk of so many log files, and its retention."""

    def __init__(self, log_files: int | None = None, **changes: object) -> None:
        capacity = None if log_files is None else log_files * LOG_FILE_SIZE
        self.clock = VirtualClock(ms(NOON))
        self.disk = SimulatedDisk(rules=Rules(capacity=capacity), clock=self.clock)
        self.config: StoreConfig = small(ROOT, **changes)
        self.engine = Engine(self.disk, self.config, self.clock)
        self.retention = Retention(
            self.disk, self.clock, self.config, self.engine.files, self.engine.flags, in_place
        )

    def put(self, messages: int) -> list[PutStatus]:
        statuses = []
        for number in range(messages):
            block = b"KEYS\x01k%d\x02" % number
            statuses.append(self.engine.put(a_message(b"b" * LARGE, properties_block=block)).status)
        self.engine.files.log.sync()
        return statuses

    @property
    def log_starts(self) -> list[int]:
        return [int(entry.name) // LOG_FILE_SIZE for entry in self.disk.entries(ROOT / "commitlog")]


async def test_expired_files_go_at_the_hour_for_it() -> None:
    """B5: after `fileReservedTime`, at `deleteWhen`, the oldest first and never the last."""
    store = Cleaned(file_reserved_time=10)
    store.put(10)
    assert store.log_starts == [0, 1, 2, 3]
    store.clock.set_wall_clock(ms(FOUR) - 1)
    assert await store.retention.run() == 0
    store.clock.set_wall_clock(ms(FOUR))

    assert await store.retention.run() == 3
    assert store.log_starts == [3]
    assert await store.retention.run() == 0


async def test_files_that_are_not_expired_stay() -> None:
    """B5: counted from when a file was written last."""
    store = Cleaned(file_reserved_time=17)
    store.put(4)
    store.clock.set_wall_clock(ms(FOUR))

    assert await store.retention.run() == 0
    store.clock.advance(HOUR_MS - 1)
    assert await store.retention.run() == 0


async def test_expired_files_go_when_somebody_asks() -> None:
    """B5: whatever the hour is, for the next twenty runs."""
    store = Cleaned(file_reserved_time=1)
    store.put(10)
    store.clock.advance(HOUR_MS)
    assert await store.retention.run() == 0
    store.retention.ask()

    assert await store.retention.run() == 3
    store.put(3)
    store.clock.advance(HOUR_MS)
    assert [await store.retention.run() for _ in range(20)] == [1] + [0] * 19
    store.put(3)
    store.clock.advance(HOUR_MS)
    assert await store.retention.run() == 0


async def test_only_so_many_files_go_at_once() -> None:
    """B5: `deleteFileBatchMax`."""
    store = Cleaned(file_reserved_time=1, delete_file_batch_max=2)
    store.put(10)
    store.clock.advance(HOUR_MS)
    store.retention.ask()

    assert [await store.retention.run() for _ in range(3)] == [2, 1, 0]


async def test_queues_and_index_follow_the_log() -> None:
    """B5, B10: consumers find the smallest offset that is there, and no key of what is gone."""
    store = Cleaned(file_reserved_time=1)
    store.put(64)
    store.engine.files.index.write()
    queue = store.engine.files.queues.get("orders", 0)
    folder = ROOT / "consumequeue" / "orders" / "0"
    assert (len(store.disk.entries(folder)), len(store.disk.entries(ROOT / "index"))) == (4, 2)
    store.clock.advance(HOUR_MS)
    store.retention.ask()
    while await store.retention.run():
        pass

    assert (queue.min_offset, queue.max_offset) == (63, 64)
    assert len(messages_in(store.engine.files)["orders", 0]) == 1
    assert (len(store.disk.entries(folder)), len(store.disk.entries(ROOT / "index"))) == (1, 1)
    assert store.engine.put(a_message(b"next")).queue_offset == 64
    assert store.engine.close()
    again = Engine(store.disk, store.config, store.clock)
    assert again.files.queues.get("orders", 0).min_offset == 63
    assert bodies_in(again.files)[-1] == b"next"


async def test_what_is_not_on_the_disk_or_not_dispatched_is_never_deleted() -> None:
    """B5"""
    store = Cleaned(file_reserved_time=0, flush_disk_type="SYNC_FLUSH")
    store.retention.ask()
    for _ in range(4):
        store.engine.put(a_message(b"b" * LARGE))
    assert await store.retention.run() == 0
    store.engine.files.log.sync()
    assert await store.retention.run() == 0
    store.engine.writer.show_confirmed()

    assert await store.retention.run() == 1


async def test_who_reads_a_deleted_file_finishes_safely() -> None:
    """B5"""
    store = Cleaned(file_reserved_time=0)
    store.put(4)
    record = store.engine.files.log.record_at(0)
    assert record is not None
    before = bytes(record)
    store.retention.ask()
    assert await store.retention.run() == 1

    assert store.engine.files.log.record_at(0) is None
    assert bytes(record) == before


@pytest.mark.parametrize("mode", CrashMode)
async def test_deleted_files_do_not_come_back(mode: CrashMode) -> None:
    """B5: a crash after the deletion leaves no gap in the log."""
    store = Cleaned(file_reserved_time=0)
    store.put(10)
    store.retention.ask()
    await store.retention.run()
    engine = Engine(store.disk.crash(mode), store.config, store.clock)

    assert engine.files.log.files.gaps() == []
    assert engine.files.log.min_offset == 3 * LOG_FILE_SIZE
    assert len(messages_in(engine.files)["orders", 0]) == 1


async def test_expired_files_go_when_the_disk_is_rather_full() -> None:
    """B5: above `diskMaxUsedSpaceRatio`."""
    store = Cleaned(10, file_reserved_time=1)
    store.put(16)
    store.clock.advance(HOUR_MS)
    assert await store.retention.run() == 0
    store.put(6)
    store.clock.advance(HOUR_MS)

    assert await store.retention.run() == 7
    assert store.engine.flags.is_writable


async def test_files_go_although_they_are_not_expired_when_the_disk_is_very_full() -> None:
    """B5: above `diskSpaceCleanForciblyRatio`, unless `cleanFileForciblyEnable` forbids it."""
    for allowed in (True, False):
        store = Cleaned(10, clean_file_forcibly_enable=allowed)
        store.put(25)

        assert (await store.retention.run() > 0) == allowed
        assert store.log_starts[0] == (store.log_starts[-1] if allowed else 0)


async def test_above_the_last_threshold_nothing_is_taken_until_there_is_room() -> None:
    """B5: above `diskSpaceWarningLevelRatio`; reads go on."""
    store = Cleaned(10, clean_file_forcibly_enable=False)
    stored = store.put(28).count(PutStatus.PUT_OK)
    await store.retention.run()
    troubles = store.engine.flags.troubles

    assert troubles == Trouble.DISK_FULL | Trouble.QUEUE_DISK_FULL
    assert store.put(1) == [PutStatus.SERVICE_NOT_AVAILABLE]
    assert len(bodies_in(store.engine.files)) == stored
    store.clock.advance(100 * HOUR_MS)
    await store.retention.run()
    await store.retention.run()
    assert store.engine.flags.is_writable
    assert store.put(1) == [PutStatus.PUT_OK]


async def test_a_disk_without_room_for_a_file_refuses_and_recovers_by_itself() -> None:
    """B5: the answer says busy, reads go on, and it is over when there is room."""
    store = Cleaned(6, clean_file_forcibly_enable=False)
    statuses = store.put(40)
    stored = statuses.count(PutStatus.PUT_OK)

    assert set(statuses) == {PutStatus.PUT_OK, PutStatus.CREATE_MAPPED_FILE_FAILED}
    assert len(bodies_in(store.engine.files)) == stored
    assert store.engine.files.log.allocation_failure is not None
    store.clock.advance(100 * HOUR_MS)
    assert await store.retention.run() > 0
    await store.retention.run()
    assert store.put(1) == [PutStatus.PUT_OK]
    assert store.engine.files.log.allocation_failure is None
    assert store.engine.close()


async def test_a_file_that_cannot_be_removed_does_not_stop_the_store() -> None:
    """B5: it is found again at the next start."""
    store = Cleaned(file_reserved_time=0)
    store.put(10)
    store.disk.fail("remove", times=1)
    store.retention.ask()

    assert await store.retention.run() == 0
    assert await store.retention.run() == 2
    assert store.put(1) == [PutStatus.PUT_OK]
