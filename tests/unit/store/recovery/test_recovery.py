"""What a start makes of a store: left in order, killed, or changed by somebody."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from cometmq.model.errors import StoreError
from cometmq.store.queue.files import UNIT_SIZE
from cometmq.store.read.reader import GetStatus, MessageReader
from cometmq.store.status import PutStatus
from cometmq.testing.clock import VirtualClock
from cometmq.testing.simulation.disk import CrashMode, SimulatedDisk
from cometmq.wire.record.codec import decode_record
from cometmq.wire.record.layout import peek_queue_offset
from tests.unit.store.log_kit import ROOT, START_MS
from tests.unit.store.store_kit import LOG_FILE_SIZE, Engine, a_message, bodies_in, messages_in, small

LARGE = 20_000
EVER = 2**63 - 1


def a_store_of(disk: SimulatedDisk, messages: int, *, step_ms: int = 1000, size: int = LARGE) -> VirtualClock:
    """Put messages, three to a log file, and stop in order."""
    clock = VirtualClock(START_MS)
    engine = Engine(disk, clock=clock)
    for number in range(messages):
        body = (b"%d-" % number).ljust(size, b"b")
        assert (
            engine.put(a_message(body, properties_block=b"KEYS\x01k%d\x02" % number)).queue_offset == number
        )
        clock.advance(step_ms)
    assert engine.close()
    return clock


def numbers_in(engine: Engine) -> list[int]:
    return [int(body.partition(b"-")[0]) for body in bodies_in(engine.files)]


def remove_all(disk: SimulatedDisk, folder: Path) -> None:
    for entry in disk.entries(folder):
        if entry.is_folder:
            remove_all(disk, folder / entry.name)
        disk.remove(folder / entry.name)


def as_if_killed(disk: SimulatedDisk) -> None:
    disk.replace(ROOT / "abort", b"1")


def changed(disk: SimulatedDisk, path: Path, at: int, data: bytes) -> None:
    file = disk.open(path)
    file.reserve(0, file.size)
    file.buffer[at : at + len(data)] = data
    file.wrote(at, at + len(data))
    file.close()


@pytest.mark.parametrize("messages", [0, 1, 3, 4, 10])
def test_a_store_left_in_order_is_found_as_it_was(messages: int) -> None:
    """B5: and only its last record is looked at."""
    disk = SimulatedDisk()
    a_store_of(disk, messages)
    engine = Engine(disk)

    assert engine.recovered.stopped_orderly
    assert engine.recovered.records == min(messages, 1)
    assert numbers_in(engine) == list(range(messages))
    assert engine.put(a_message(b"%d-next" % messages)).queue_offset == messages


def test_a_store_left_in_order_is_not_written_to_when_it_is_opened_and_closed() -> None:
    """B5: of log, queues and index no byte is even written again."""
    disk = SimulatedDisk()
    a_store_of(disk, 10)
    points: list[str] = []
    disk.on_point(points.append)
    engine = Engine(disk)
    engine.close()

    assert [point for point in points if point.startswith(("wrote", "remove"))] == [
        point for point in points if "/abort" in point and point.startswith(("wrote", "remove"))
    ]


def test_after_a_kill_only_what_came_behind_the_checkpoint_is_looked_at() -> None:
    """B5: the newest file that began three seconds or more before it is the first."""
    disk = SimulatedDisk()
    a_store_of(disk, 14)
    as_if_killed(disk)
    engine = Engine(disk)

    assert not engine.recovered.stopped_orderly
    assert engine.recovered.start == 3 * LOG_FILE_SIZE
    assert engine.recovered.records == 5
    assert numbers_in(engine) == list(range(14))


def test_without_a_checkpoint_everything_is_looked_at() -> None:
    """B5"""
    disk = SimulatedDisk()
    a_store_of(disk, 10)
    disk.remove(ROOT / "checkpoint")
    as_if_killed(disk)
    engine = Engine(disk)

    assert (engine.recovered.start, engine.recovered.records) == (0, 10)
    assert numbers_in(engine) == list(range(10))


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("what", ["consumequeue", "index", "both"])
def test_queues_and_index_are_made_anew_from_the_log(what: str, is_killed: bool) -> None:
    """B5, B10: removing them is how an operator repairs them."""
    disk = SimulatedDisk()
    a_store_of(disk, 10)
    for folder in ("consumequeue", "index") if what == "both" else (what,):
        remove_all(disk, ROOT / folder)
    if is_killed:
        disk.remove(ROOT / "checkpoint")
        as_if_killed(disk)
    engine = Engine(disk)

    assert numbers_in(engine) == list(range(10))
    if what != "index" or is_killed:
        for number in range(10):
            assert len(engine.files.index.find("orders", f"k{number}", 9, 0, EVER).physical_offsets) == 1
    assert engine.put(a_message(b"10-")).queue_offset == 10


def served(engine: Engine) -> list[int]:
    """What a consumer gets, which passes over what is lost."""
    files = engine.files
    reader = MessageReader(files.log, files.queues.find, small(), 1 << 40)
    numbers, offset = [], 0
    while (result := reader.get("orders", 0, offset, 32)).status is not GetStatus.OFFSET_OVERFLOW_ONE:
        numbers += [int(bytes(decode_record(each).body).partition(b"-")[0]) for each in result.records]
        assert result.next_offset > offset
        offset = result.next_offset
    return numbers


@pytest.mark.parametrize("is_killed", [False, True])
def test_without_a_log_nothing_is_opened_unless_what_is_left_is_enough(is_killed: bool) -> None:
    """B5: queues and keys would refer to places that other messages get, and offsets go on."""
    disk = SimulatedDisk()
    a_store_of(disk, 10)
    remove_all(disk, ROOT / "commitlog")
    if is_killed:
        as_if_killed(disk)
    with pytest.raises(StoreError, match=r"it has no commit log, .* start with --recover-what-is-left"):
        Engine(disk)
    engine = Engine(disk, small(recover_what_is_left=True))

    assert numbers_in(engine) == []
    assert engine.files.index.find("orders", "k1", 9, 0, EVER).physical_offsets == []
    assert engine.put(a_message(b"10-")).queue_offset == 10
    assert numbers_in(engine) == [10]


@pytest.mark.parametrize("is_killed", [False, True])
def test_where_the_end_of_the_log_is_missing_the_store_is_refused(is_killed: bool) -> None:
    """B5: unless what is left is enough; then queues and index have no more than that, and offsets go on."""
    disk = SimulatedDisk()
    a_store_of(disk, 11)
    disk.remove(ROOT / "commitlog" / f"{3 * LOG_FILE_SIZE:020}")
    if is_killed:
        as_if_killed(disk)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"its commit log|has those up to .* --recover-what-is-left"):
            Engine(disk)
    engine = Engine(disk, small(recover_what_is_left=True))

    assert served(engine) == list(range(9))
    assert engine.put(a_message(b"9-", properties_block=b"KEYS\x01new\x02")).queue_offset == 11
    assert served(engine) == list(range(10))
    assert len(engine.files.index.find("orders", "new", 9, 0, EVER).physical_offsets) == 1
    assert len(engine.files.index.find("orders", "k8", 9, 0, EVER).physical_offsets) == 1
    assert engine.files.index.find("orders", "k10", 9, 0, EVER).physical_offsets == []


def test_after_a_kill_a_record_with_a_wrong_checksum_ends_the_log() -> None:
    """B5: half of it may have been on the disk."""
    disk = SimulatedDisk()
    a_store_of(disk, 10)
    as_if_killed(disk)
    changed(disk, ROOT / "commitlog" / f"{2 * LOG_FILE_SIZE:020}", 30_000, b"?")
    disk.remove(ROOT / "checkpoint")
    disk.remove(ROOT / "queueEnds")
    engine = Engine(disk)

    assert numbers_in(engine) == list(range(7))
    assert engine.put(a_message(b"7-")).queue_offset == 7
    assert engine.close()
    assert numbers_in(Engine(disk)) == list(range(8))


def test_a_log_that_goes_on_behind_the_last_queued_record_is_dispatched() -> None:
    """B5: also when the last messages have no place in a queue."""
    disk = SimulatedDisk()
    engine = Engine(disk)
    engine.put(a_message(b"0-"))
    engine.put(a_message(b"prepared", sys_flag=4, properties_block=b"KEYS\x01p\x02"))
    assert engine.close()
    engine = Engine(disk)

    assert engine.recovered.records == 2
    assert engine.put(a_message(b"1-")).physical_offset > engine.recovered.start
    assert numbers_in(engine) == [0, 1]
    assert len(engine.files.index.find("orders", "p", 9, 0, EVER).physical_offsets) == 1


def test_units_out_of_place_stay_where_they_are() -> None:
    """B5: a queue of Apache's can be so, for good; its messages must not go."""
    disk = SimulatedDisk()
    a_store_of(disk, 14)
    path = ROOT / "consumequeue" / "orders" / "0" / f"{0:020}"
    units = disk.read(path)
    assert units is not None
    changed(disk, path, 0, units[UNIT_SIZE : 14 * UNIT_SIZE] + bytes(UNIT_SIZE))
    disk.remove(ROOT / "queueEnds")
    as_if_killed(disk)
    engine = Engine(disk)

    assert engine.recovered.start > 0
    log, queue = engine.files.log, engine.files.queues.get("orders", 0)
    offsets = [
        peek_queue_offset(record, 0) for unit in queue.units(0, 99) if (record := log.record_at(unit[0]))
    ]
    assert offsets == list(range(1, 14))


@pytest.mark.parametrize("lost", [slice(0, 14), slice(5, 14), slice(5, 6)])
def test_units_that_should_have_been_on_the_disk_are_made_anew(lost: slice) -> None:
    """B5: Apache's checkpoint can say more about the queues than is true."""
    disk = SimulatedDisk()
    a_store_of(disk, 14)
    path = ROOT / "consumequeue" / "orders" / "0" / f"{0:020}"
    changed(disk, path, lost.start * UNIT_SIZE, bytes((lost.stop - lost.start) * UNIT_SIZE))
    as_if_killed(disk)
    engine = Engine(disk)

    assert engine.recovered.start > 0
    assert numbers_in(engine) == list(range(14))


def test_a_file_of_another_size_stops_the_start_with_a_sentence() -> None:
    """B4: and leaves the directory to others."""
    disk = SimulatedDisk()
    a_store_of(disk, 4)
    with pytest.raises(StoreError, match=r"commitlog/0+65536, with 65536 bytes, .* mappedFileSizeCommitLog"):
        Engine(disk, small(mapped_file_size_commit_log=2 * LOG_FILE_SIZE))

    assert numbers_in(Engine(disk)) == [0, 1, 2, 3]


@pytest.mark.parametrize(("operation", "name"), [("open", "checkpoint"), ("replace", "abort")])
def test_a_disk_that_fails_at_the_start_is_named(operation: Literal["open", "replace"], name: str) -> None:
    """B4: and the directory is free again."""
    disk = SimulatedDisk()
    a_store_of(disk, 4)
    disk.fail(operation, ROOT / name)
    with pytest.raises(StoreError, match=rf"/store cannot be opened: .*{name}"):
        Engine(disk)
    disk.heal()

    assert numbers_in(Engine(disk)) == [0, 1, 2, 3]


def test_a_store_without_room_can_be_read() -> None:
    """B5: it was full when it stopped."""
    disk = SimulatedDisk()
    a_store_of(disk, 4)
    disk.fail("reserve", ROOT / "commitlog" / f"{LOG_FILE_SIZE:020}")
    engine = Engine(disk)

    assert numbers_in(engine) == [0, 1, 2, 3]
    assert engine.put(a_message(b"4-")).status is PutStatus.CREATE_MAPPED_FILE_FAILED
    disk.heal()
    assert engine.put(a_message(b"4-")).queue_offset == 4


def test_what_a_killed_process_left_in_memory_is_on_the_disk_after_the_start() -> None:
    """B5: a power failure after the recovery takes nothing that was recovered."""
    disk = SimulatedDisk()
    engine = Engine(disk)
    for number in range(10):
        engine.put(a_message((b"%d-" % number).ljust(LARGE, b"b")))
    killed = disk.crash(CrashMode.KEEP)
    assert numbers_in(Engine(killed)) == list(range(10))

    engine = Engine(killed.crash(CrashMode.DROP))
    assert numbers_in(engine) == list(range(10))
    assert len(messages_in(engine.files)["orders", 0]) == 10


@pytest.mark.parametrize(
    "settings",
    [
        {"enable_consume_queue_ext": True},
        {"enabled_append_prop_crc": True, "force_verify_prop_crc": True},
        {"store_path_commit_log": "/one,/two"},
        {"message_index_enable": False},
        {"duplication_enable": True},
    ],
    ids=lambda settings: next(iter(settings)),
)
@pytest.mark.parametrize("mode", CrashMode)
def test_a_store_with_other_settings_is_recovered(mode: CrashMode, settings: dict[str, object]) -> None:
    """B5"""
    disk, config = SimulatedDisk(), small(ROOT, **settings)
    engine = Engine(disk, config)
    for number in range(10):
        engine.put(a_message((b"%d-" % number).ljust(LARGE, b"b"), properties_block=b"KEYS\x01k\x02"))
    engine.sync_log()
    after = disk.crash(mode)
    engine = Engine(after, config)

    assert numbers_in(engine) == list(range(10))
    assert engine.put(a_message(b"10-")).queue_offset == 10
    assert engine.close()
    assert numbers_in(Engine(after, config)) == list(range(11))


def test_missing_units_are_made_anew_however_late_they_are_missed() -> None:
    """B5, B10: after messages of other queues were dispatched; all keys are found then, too."""
    disk, clock = SimulatedDisk(), VirtualClock(START_MS)
    engine = Engine(disk, clock=clock)
    for number in range(14):
        sys_flag = 4 if number == 12 else 0  # the prepared one stands between the two queues
        body = (b"%d-" % number).ljust(LARGE, b"b")
        block = b"KEYS\x01k%d\x02" % number
        queue_id = 1 if number in (1, 4, 7, 13) else 0
        engine.put(a_message(body, queue_id=queue_id, sys_flag=sys_flag, properties_block=block))
        clock.advance(1000)
    assert engine.close()
    changed(disk, ROOT / "consumequeue" / "orders" / "1" / f"{0:020}", UNIT_SIZE, bytes(3 * UNIT_SIZE))
    as_if_killed(disk)
    engine = Engine(disk)

    assert engine.recovered.start == 3 * LOG_FILE_SIZE
    assert [int(body.partition(b"-")[0]) for body in bodies_in(engine.files, queue_id=1)] == [1, 4, 7, 13]
    for number in range(2, 14):
        assert len(engine.files.index.find("orders", f"k{number}", 9, 0, EVER).physical_offsets) == 1, number


def test_a_long_rest_of_an_earlier_log_is_cleared() -> None:
    """B5: or a record that ends before it would bring it back to life."""
    disk = SimulatedDisk()
    engine = Engine(disk, small(mapped_file_size_commit_log=4 * 1024 * 1024))
    end = engine.put(a_message(b"the last")).end_offset
    path = ROOT / "commitlog" / f"{0:020}"
    changed(disk, path, end + 100, b"something")
    changed(disk, path, 3 * 1024 * 1024 - 3, b"across a border")
    engine = Engine(disk.crash(CrashMode.KEEP), small(mapped_file_size_commit_log=4 * 1024 * 1024))

    assert not any(engine.files.log.files.files[0].view[end:])
    assert bodies_in(engine.files) == [b"the last"]


def test_a_file_that_begins_with_a_part_of_a_record_is_not_where_a_recovery_begins() -> None:
    """B5: the time that was about to be written there may seem to be long ago."""
    disk, clock = SimulatedDisk(), VirtualClock(START_MS)
    config = small(flush_disk_type="SYNC_FLUSH")
    engine = Engine(disk, config, clock)
    engine.put(a_message(b"0-".ljust(LARGE, b"b")))
    engine.sync_log()
    engine.files.sync_derived(engine.files.dispatcher.last_store_time_ms, thorough=True)
    for number in range(1, 4):
        clock.advance(60_000)
        engine.put(a_message((b"%d-" % number).ljust(LARGE, b"b")))
    killed = disk.crash(CrashMode.KEEP)
    # Three bytes of the store time, and everything behind it in the fixed part.
    changed(killed, ROOT / "commitlog" / f"{LOG_FILE_SIZE:020}", 56 + 5, bytes(88 - 61))
    engine = Engine(killed, config)

    assert engine.recovered.start == 0
    assert numbers_in(engine) == [0, 1, 2]
    assert engine.put(a_message(b"3-")).queue_offset == 3
