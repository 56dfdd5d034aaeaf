"""Where in the wheel a message is set, and how that survives a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.monitor.counters import TopicCounts, Traffic
from cometmq.broker.settings import Settings
from cometmq.broker.timers.enqueue import TimerEnqueuer
from cometmq.broker.timers.files import TimerFiles
from cometmq.store.config import StoreConfig
from cometmq.store.timer.checkpoint import TimerProgress
from cometmq.store.timer.log import MAGIC_DEFAULT, MAGIC_DELETE, MAGIC_ROLL, TimerRecord
from cometmq.testing.clock import VirtualClock
from cometmq.testing.simulation.disk import CrashMode, SimulatedDisk
from cometmq.wire.record.codec import Record

NOW_MS = 1_700_000_000_000
SLOT_MS = 1000
NO: Any = None
"""A part that these tests do not come to."""
WINDOW = 30


class Wheel:
    """Timer files on a disk that can crash, and what fills them."""

    def __init__(self, disk: SimulatedDisk, message_end: int = 10**9, **settings: Any) -> None:
        clock = VirtualClock(NOW_MS)
        values = {"timer_roll_window_slot": WINDOW, "mapped_file_size_timer_log": 1024, **settings}
        config = StoreConfig(store_path_root_dir="/store", **values)
        self.files = TimerFiles(disk, clock, config)
        self.saved = self.files.open(message_end)
        self.counts = TopicCounts(clock)
        self.enqueuer = TimerEnqueuer(
            Settings(store=config), clock, NO, Traffic(), NO, NO, self.files, self.counts, NO
        )
        self.enqueuer.write_time_ms = NOW_MS

    def set(self, delay_slots: int, *, at: int = 7, is_cancellation: bool = False) -> TimerRecord:
        message = Record("rmq_sys_wheel_timer", b"", total_size=100, physical_offset=at)
        due_ms = NOW_MS + delay_slots * SLOT_MS
        self.enqueuer.set(message, due_ms, "Orders", is_cancellation=is_cancellation)
        timer = self.files.log.last()
        assert timer is not None
        return timer

    def chain(self, delay_slots: int) -> list[int]:
        """The positions of the timers of a slot, newest first."""
        slot = self.files.wheel.get(NOW_MS + delay_slots * SLOT_MS)
        return [] if slot is None else [timer.position for timer in self.files.log.walk(slot.last)]

    def save(self) -> None:
        self.files.save(self.files.wheel.take_changes(), TimerProgress(NOW_MS, self.files.log.end, 1, 1))


@pytest.mark.parametrize(
    ("delay_slots", "set_slots", "rolls"),
    [
        (0, 0, False),
        (WINDOW - 1, WINDOW - 1, False),
        (WINDOW, WINDOW // 2, True),
        (WINDOW + WINDOW // 3 - 1, WINDOW // 2, True),
        (WINDOW + WINDOW // 3, WINDOW, True),
        (5 * WINDOW, WINDOW, True),
    ],
)
def test_what_is_outside_the_window_is_set_for_a_moment_within(
    delay_slots: int, set_slots: int, rolls: bool
) -> None:
    """B6: half a window away if it is near its end, so that enough is left for the next round."""
    wheel = Wheel(SimulatedDisk())
    timer = wheel.set(delay_slots)
    assert timer.due_ms == NOW_MS + set_slots * SLOT_MS
    assert timer.magic == MAGIC_DEFAULT | (MAGIC_ROLL if rolls else 0)
    assert wheel.enqueuer.latest_ms == timer.due_ms
    assert wheel.counts.counts["Orders"].count == 1


@pytest.mark.parametrize("window", [1, 604_800])
def test_a_window_that_cannot_be_is_as_large_as_it_can_be(window: int) -> None:
    wheel = Wheel(SimulatedDisk(), timer_roll_window_slot=window)
    assert wheel.set(604_800 - 61).magic == MAGIC_DEFAULT
    assert wheel.set(604_800 - 60).magic == MAGIC_DEFAULT | MAGIC_ROLL


def test_a_cancellation_counts_against_its_slot_and_topic() -> None:
    """B6."""
    wheel = Wheel(SimulatedDisk())
    first = wheel.set(5)
    cancellation = wheel.set(5, is_cancellation=True)
    assert cancellation.magic == MAGIC_DEFAULT | MAGIC_DELETE
    assert wheel.chain(5) == [cancellation.position, first.position]
    slot = wheel.files.wheel.get(NOW_MS + 5 * SLOT_MS)
    assert slot is not None
    assert (slot.num, wheel.counts.total) == (0, 0)


@pytest.mark.parametrize("mode", [CrashMode.KEEP, CrashMode.DROP, CrashMode.REORDER, CrashMode.TORN])
def test_saved_timers_are_found_after_a_crash_and_others_only_whole(mode: CrashMode) -> None:
    """B4: in several files of the timer log; what is found is chained as it was set."""
    disk = SimulatedDisk(1)
    wheel = Wheel(disk)
    saved = [wheel.set(number % 3).position for number in range(30)]
    wheel.save()
    unsaved = [wheel.set(number % 3).position for number in range(30)]
    found = Wheel(disk.crash(mode))
    assert found.saved.last_timer_log_flush_pos <= found.files.log.end
    positions = [position for slots in range(3) for position in found.chain(slots)]
    assert set(saved) <= set(positions) <= {*saved, *unsaved}
    assert all(found.chain(slots) == sorted(found.chain(slots), reverse=True) for slots in range(3))
    if mode is CrashMode.KEEP:
        assert len(positions) == 60
        assert found.files.wheel.latest() == NOW_MS + 2 * SLOT_MS


def test_a_wheel_that_is_new_is_filled_from_the_whole_log() -> None:
    """B5: not only from where the checkpoint says."""
    disk = SimulatedDisk()
    wheel = Wheel(disk)
    for number in range(WINDOW):
        wheel.set(number)
    wheel.save()
    wheel.files.close()
    disk.remove(Path("/store/timerwheel"))
    again = Wheel(disk)
    assert all(len(again.chain(number)) == 1 for number in range(WINDOW))


def test_the_last_record_is_found_behind_the_end_of_a_full_file() -> None:
    """B5: a file of 1024 bytes has room for 19 records and a filler."""
    wheel = Wheel(SimulatedDisk())
    assert wheel.files.log.last() is None
    assert wheel.files.wheel.latest() == -1
    timers = [wheel.set(number % 3) for number in range(19)]
    assert wheel.files.log.last() == timers[-1]
    assert wheel.set(1).position == 1024


def test_a_timer_whose_message_was_lost_is_forgotten() -> None:
    """B4: its offset in the commit log will be that of another message."""
    disk = SimulatedDisk()
    wheel = Wheel(disk)
    kept = [wheel.set(1, at=number * 100).position for number in range(25)]
    wheel.set(1, at=2500)
    wheel.set(2, at=2600)
    found = Wheel(disk.crash(CrashMode.KEEP), message_end=2599)
    assert found.chain(1) == kept[::-1]
    assert found.chain(2) == []
    assert found.set(2, at=2500).previous == -1


@pytest.mark.parametrize(("before_ms", "after_ms"), [(1000, 200), (100, 1000)])
def test_timers_survive_a_change_of_the_length_of_slots(before_ms: int, after_ms: int) -> None:
    """B5: the wheel is made again from the timer log."""
    disk = SimulatedDisk()
    wheel = Wheel(disk, timer_precision_ms=before_ms)
    wheel.set(2)
    wheel.save()
    wheel.files.close()
    again = Wheel(disk, timer_precision_ms=after_ms)
    assert again.chain(2) == [0]
    assert again.files.wheel.latest() == NOW_MS + 2 * SLOT_MS
    again.save()
    again.files.close()
    assert Wheel(disk, timer_precision_ms=after_ms).chain(2) == [0]
