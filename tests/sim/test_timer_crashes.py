"""The machine stops at points of a store's life with timed messages, and none that is safe is lost.

By default a sample of the points is tried; `TIMER_CRASH_STEP=1` tries all of them.
"""

from __future__ import annotations

import asyncio
import os
import random

import pytest

from cometmq.broker.monitor.counters import Traffic
from cometmq.broker.real_targets import RealTargets
from cometmq.broker.saved_tables import TableFiles
from cometmq.broker.set_aside import SetAside
from cometmq.broker.settings import Settings
from cometmq.broker.timers.service import TimerService
from cometmq.broker.topics.topics import Topics
from cometmq.ports.clock import SystemClock
from cometmq.store.config import StoreConfig
from cometmq.store.message_store import MessageStore
from cometmq.store.status import PutStatus
from cometmq.store.tables.files import CONFIG_FOLDER
from cometmq.testing.simulation.disk import CrashMode, SimulatedDisk
from cometmq.wire.record.codec import Record, decode_record
from tests.unit.store.log_kit import STORE_HOST, InPlace
from tests.waiting import eventually

STEP = int(os.environ.get("TIMER_CRASH_STEP", "60"))
SLOT_MS = 100
MESSAGES = 60
LONGEST_DELAY_MS = 1800
AT_ONCE = 16
"""Stores that are found again at the same time."""
CONFIG = StoreConfig(
    store_path_root_dir="/store",
    mapped_file_size_commit_log=64 * 1024,
    mapped_file_size_consume_queue=2000,
    mapped_file_size_timer_log=1024,
    max_hash_slot_num=100,
    max_index_num=400,
    flush_disk_type="SYNC_FLUSH",
    timer_precision_ms=SLOT_MS,
    timer_flush_interval_ms=20,
    timer_roll_window_slot=8,
)


class TimedStore:
    """A store and its timers; whatever blocks happens at once, so that the disk knows every state."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.clock = SystemClock()
        self.store = MessageStore(disk, self.clock, CONFIG, STORE_HOST, workers=lambda _: InPlace())
        settings, worker = Settings(store=CONFIG), InPlace()
        topics = Topics(settings, self.clock)
        files = TableFiles(disk, CONFIG.root / CONFIG_FOLDER, worker)
        self.timers = TimerService(
            settings,
            self.clock,
            disk,
            files,
            self.store,
            topics,
            Traffic(),
            RealTargets(settings, self.store, topics),
            SetAside(self.clock, files, self.store),
            worker,
        )

    async def start(self) -> None:
        await self.store.start()
        await self.timers.start()

    async def stop(self) -> None:
        await self.timers.stop()
        await self.store.stop()

    async def put(self, number: int, delay_ms: int) -> bytes:
        """Put a message for later; it is safe when this returns."""
        deliver_ms = self.clock.now_ms() + delay_ms
        message = Record("Orders", b"%d %d" % (number, deliver_ms), born_host=STORE_HOST)
        properties = {"UNIQ_KEY": f"K{number}", "TIMER_DELIVER_MS": str(deliver_ms)}
        self.timers.set(message, properties)
        result = self.store.put(message)
        assert result.status is await self.store.flusher.wait_flushed(result.end_offset) is PutStatus.PUT_OK
        return bytes(message.body)

    def delivered(self) -> list[Record]:
        found: list[Record] = []
        while records := self.store.reader.get("Orders", 0, len(found), 1000).records:
            found += [decode_record(bytes(view)) for view in records]
        return found


async def outlive(disk: SimulatedDisk, safe: set[bytes]) -> None:
    """A store on what is left of a disk delivers everything that was safe, and nothing before its time."""
    timed = TimedStore(disk)
    await timed.start()
    try:
        await eventually(
            lambda: {bytes(record.body) for record in timed.delivered()} >= safe,
            f"{len(safe)} messages are delivered",
            seconds=30.0,
        )
        for record in timed.delivered():
            _, deliver_ms = bytes(record.body).split()
            assert record.store_timestamp_ms >= int(deliver_ms)
    finally:
        await timed.stop()


@pytest.mark.parametrize("mode", [CrashMode.DROP, CrashMode.TORN, CrashMode.REORDER, CrashMode.KEEP])
async def test_no_safe_timer_is_lost_when_the_machine_stops(mode: CrashMode) -> None:
    """B4, B6: near ones, far ones that go round, and those that are being delivered."""
    chance = random.Random(mode.value)
    disk = SimulatedDisk(7)
    timed = TimedStore(disk)
    safe: set[bytes] = set()
    left: list[tuple[SimulatedDisk, set[bytes]]] = []

    def crash(_: str) -> None:
        if disk.points % STEP == 0:
            left.append((disk.crash(mode), set(safe)))

    await timed.start()
    disk.on_point(crash)
    for number in range(MESSAGES):
        safe.add(await timed.put(number, chance.randrange(1, LONGEST_DELAY_MS)))
        await asyncio.sleep(chance.random() * 0.03)  # so that something becomes due meanwhile
    await timed.stop()
    disk.on_point(None)
    assert len(left) >= 5
    for start in range(0, len(left), AT_ONCE):
        await asyncio.gather(*(outlive(*each) for each in left[start : start + AT_ONCE]))
    await outlive(disk, safe)
