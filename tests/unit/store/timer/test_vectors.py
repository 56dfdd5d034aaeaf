"""The timer files that Apache RocketMQ 5.3.3 wrote: read whole, and written again byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from cometmq.model.topic import DataVersion
from cometmq.ports.disk import SystemDisk
from cometmq.store.timer.checkpoint import TimerCheckpoint, TimerProgress
from cometmq.store.timer.log import MAGIC_DEFAULT, RECORD_SIZE, TimerLog, TimerRecord, recover_timers
from cometmq.store.timer.wheel import Slot, TimerWheel
from cometmq.wire.java_hash import java_hash
from cometmq.wire.record.codec import decode_record
from tests.unit.store.store_vectors import unpack_clean_store

FILE_SIZE = 102_400
END = 884
SLOTS = {
    1794730291: Slot(0, 0, 1),
    1794730292: Slot(52, 52, 1),
    1794730348: Slot(364, 364, 1),
    1794730398: Slot(104, 260, 4),
    1794730399: Slot(312, 624, 6),
    1794730413: Slot(676, 676, 1),
    1794730414: Slot(728, 728, 1),
    1794730620: Slot(780, 780, 1),
    1794730621: Slot(832, 832, 1),
}
"""By second, as the wheel has them."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return unpack_clean_store(tmp_path, "timerlog", "timerwheel", "commitlog", "config/timercheck")


def open_timers(store: Path) -> tuple[TimerLog, TimerWheel]:
    log, wheel = (
        TimerLog(SystemDisk(), store / "timerlog", FILE_SIZE),
        TimerWheel(SystemDisk(), store / "timerwheel"),
    )
    log.load()
    wheel.load()
    return log, wheel


def all_records(log: TimerLog) -> list[TimerRecord]:
    return [record for position, _, _ in log.scan(0) if (record := log.read(position)) is not None]


def test_every_slot_of_apaches_wheel_is_read(store: Path) -> None:
    """B6"""
    _, wheel = open_timers(store)
    assert {second: wheel.get(second * 1000) for second in SLOTS} == SLOTS
    assert wheel.count(0, 1 << 60) == sum(slot.num for slot in SLOTS.values()) == 17
    assert wheel.count(1794730400_000) == 4


def test_every_record_is_in_the_chain_of_its_slot(store: Path) -> None:
    """B6"""
    log, wheel = open_timers(store)
    assert [record.position for record in all_records(log)] == list(range(0, END, RECORD_SIZE))
    chained = []
    for second, slot in SLOTS.items():
        chain = list(log.walk(slot.last))
        assert (chain[-1].position, len(chain)) == (slot.first, slot.num)
        assert {record.due_ms for record in chain} == {second * 1000}
        chained += [record.position for record in chain]
    assert sorted(chained) == list(range(0, END, RECORD_SIZE))
    log.close()
    wheel.close()


def test_every_record_points_at_a_message_for_the_topic_whose_hash_it_has(store: Path) -> None:
    """B6"""
    log, _ = open_timers(store)
    commit_log = (store / "commitlog" / "00000000000000000000").read_bytes()
    for record in all_records(log):
        message = decode_record(commit_log, record.commit_log_offset)
        properties = message.properties()
        assert message.topic == "rmq_sys_wheel_timer"
        assert message.total_size == record.message_size
        assert java_hash(properties["REAL_TOPIC"]) == record.topic_hash
        assert record.due_ms <= int(properties["TIMER_OUT_MS"]) < record.due_ms + 1000
        assert record.magic == MAGIC_DEFAULT


def test_the_same_timers_give_the_same_files(store: Path, tmp_path: Path) -> None:
    """B6"""
    log, _ = open_timers(store)
    again, wheel = open_timers(tmp_path / "again")
    for record in all_records(log):
        previous = wheel.last(record.due_ms)
        position = again.append(
            previous,
            record.magic,
            record.write_time_ms,
            record.delay_ms,
            record.commit_log_offset,
            record.message_size,
            record.topic_hash,
        )
        wheel.add(record.due_ms, position)
    again.sync()
    wheel.write_back(wheel.take_changes())
    for name in ("timerlog/00000000000000000000", "timerwheel"):
        assert (tmp_path / "again" / name).read_bytes() == (store / name).read_bytes()


def test_recovery_finds_nothing_to_change(store: Path) -> None:
    """B5"""
    before = {path: path.read_bytes() for path in (store / "timerwheel", store / "timerlog" / f"{0:020}")}
    log, wheel = open_timers(store)
    assert recover_timers(log, wheel, 0) == END
    assert wheel.take_changes() == []
    assert {path: path.read_bytes() for path in before} == before


def test_the_checkpoint_says_where_the_log_ends(store: Path) -> None:
    """B5"""
    path = store / "config" / "timercheck"
    before = path.read_bytes()
    checkpoint = TimerCheckpoint(SystemDisk(), path)
    progress = checkpoint.load()
    assert progress == TimerProgress(0x1A1DE4D10F8, END, 17, 17, DataVersion(0, 0x1A1DE4D1183, 636))
    checkpoint.save(progress)
    checkpoint.close()
    assert path.read_bytes() == before
