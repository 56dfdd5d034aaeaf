"""Waiting messages are counted anew once a day, while timers go on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cometmq.broker.monitor.counters import TopicCounts, Traffic
from cometmq.broker.settings import Settings
from cometmq.broker.timers.enqueue import TimerEnqueuer
from cometmq.broker.timers.files import TimerFiles
from cometmq.broker.timers.recount import TimerRecount
from cometmq.broker.topics.topics import Topics
from cometmq.store.config import StoreConfig
from cometmq.testing.clock import VirtualClock
from cometmq.testing.simulation.disk import SimulatedDisk
from cometmq.wire.record.codec import Record
from tests.waiting import eventually

SLOT_MS = 1000
NO: Any = None
"""A part that these tests do not come to."""
NOON = datetime(2026, 11, 15, 12, 0, 0)
NOON_MS = int(NOON.timestamp() * 1000)


class Timers:
    """Timer files with messages in them, and numbers that are wrong."""

    def __init__(self, worker: ThreadPoolExecutor, **values: Any) -> None:
        self.clock = VirtualClock(NOON_MS)
        config = StoreConfig(store_path_root_dir="/store", mapped_file_size_timer_log=1 << 20, **values)
        topics = SimpleNamespace(table={"Orders": None, "Bills": None})
        settings = Settings(store=config)
        files = TimerFiles(SimulatedDisk(), self.clock, config)
        files.open(10**9)
        self.counts = TopicCounts(self.clock)
        self.enqueuer = TimerEnqueuer(settings, self.clock, NO, Traffic(), NO, NO, files, self.counts, NO)
        self.enqueuer.write_time_ms = NOON_MS
        self.recount = TimerRecount(
            settings, self.clock, worker, cast(Topics, topics), files, self.counts, SLOT_MS
        )

    def set(self, topic: str, delay_slots: int, *, is_cancellation: bool = False) -> None:
        message = Record("rmq_sys_wheel_timer", b"", total_size=100, physical_offset=7)
        due_ms = NOON_MS + delay_slots * SLOT_MS
        self.enqueuer.set(message, due_ms, topic, is_cancellation=is_cancellation)

    def begin(self) -> None:
        self.recount.begin(NOON_MS, self.enqueuer.latest_ms)

    async def ended(self) -> None:
        await eventually(lambda: not self.recount.is_running)

    @property
    def numbers(self) -> dict[str, int]:
        return {topic: metric.count for topic, metric in self.counts.counts.items()}


@pytest.fixture
def worker() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


async def test_wrong_numbers_are_put_right(worker: ThreadPoolExecutor) -> None:
    """B6: also that of a topic of which nothing waits any more."""
    timers = Timers(worker)
    for number in range(600):
        timers.set("Orders", number % 5)
    timers.set("Bills", 3)
    timers.set("Orders", 4, is_cancellation=True)
    for topic, wrong in (("Orders", 50), ("Bills", -7), ("Gone", 9)):
        timers.counts.add(topic, wrong)
    timers.begin()
    await timers.ended()
    assert timers.numbers == {"Orders": 599, "Bills": 1, "Gone": 0}


async def test_what_changes_meanwhile_is_counted_once(worker: ThreadPoolExecutor) -> None:
    """B6."""
    timers = Timers(worker)
    for number in range(600):
        timers.set("Orders", number % 5)
    timers.counts.add("Orders", 50)
    timers.begin()
    await asyncio.sleep(0)
    timers.set("Orders", 4)  # set after it began
    timers.counts.add("Orders", -120)  # a slot was delivered after it began
    await timers.ended()
    assert timers.numbers == {"Orders": 600 + 1 - 120}


async def test_it_is_due_once_a_day_at_its_hour(worker: ThreadPoolExecutor) -> None:
    """B6: not on the day of a start, because that day's numbers are as good as they will be."""
    timers = Timers(worker)
    due_at: list[datetime] = []
    for hour in range(72):
        now = NOON + timedelta(hours=hour)
        timers.clock.set_wall_clock(int(now.timestamp() * 1000))
        if timers.recount.is_due:
            due_at.append(now)
            timers.begin()
            assert not timers.recount.is_due
            await timers.ended()
    assert due_at == [datetime(2026, 11, 16, 5), datetime(2026, 11, 17, 5), datetime(2026, 11, 18, 5)]


async def test_it_is_never_due_where_the_settings_say_so(worker: ThreadPoolExecutor) -> None:
    timers = Timers(worker, timer_enable_check_metrics=False)
    for hour in range(48):
        timers.clock.set_wall_clock(NOON_MS + hour * 3_600_000)
        assert not timers.recount.is_due


async def test_a_stop_ends_it(worker: ThreadPoolExecutor) -> None:
    timers = Timers(worker)
    for number in range(100):
        timers.set("Orders", number % 5)
    timers.counts.add("Orders", 3)
    timers.begin()
    await timers.recount.stop()
    assert timers.numbers == {"Orders": 103}
