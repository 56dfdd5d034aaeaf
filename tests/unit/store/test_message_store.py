"""The whole store on an event loop: start, messages, flushing, upkeep, stop."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path

import pytest

from cometmq.model.errors import StoreError
from cometmq.ports.clock import SystemClock
from cometmq.ports.disk import SystemDisk
from cometmq.store.checkpoint import Checkpoint
from cometmq.store.config import StoreConfig
from cometmq.store.message_store import MessageStore
from cometmq.store.status import PutStatus, Trouble
from cometmq.testing.clock import VirtualClock
from cometmq.testing.simulation.disk import CrashMode, SimulatedDisk
from cometmq.wire.record.codec import decode_record
from tests.unit.store.log_kit import ROOT, START_MS, STORE_HOST, InPlace
from tests.unit.store.store_kit import (
    LOG_FILE_SIZE,
    Engine,
    a_message,
    bodies_in,
    put_safely,
    running,
    small,
)
from tests.waiting import eventually

SYNC: dict[str, object] = {"flush_disk_type": "SYNC_FLUSH"}
EVER = 2**63 - 1


def a_store(disk: SimulatedDisk, config: StoreConfig | None = None) -> MessageStore:
    return MessageStore(disk, VirtualClock(START_MS), config or small(), STORE_HOST)


async def test_messages_are_there_after_a_stop_and_a_start(tmp_path: Path) -> None:
    """B4"""
    for number in range(3):
        async with running(SystemDisk(), small(tmp_path), SystemClock()) as store:
            assert bodies_in(store.files) == [b"%d" % before for before in range(number)]
            assert store.put(a_message(b"%d" % number)).queue_offset == number


async def test_a_second_store_in_the_same_directory_is_refused() -> None:
    """B4"""
    disk = SimulatedDisk()
    async with running(disk) as store:
        with pytest.raises(StoreError, match="held by another process"):
            await a_store(disk).start()
        assert store.put(a_message()).status is PutStatus.PUT_OK


async def test_after_a_start_that_failed_the_directory_is_free_and_no_thread_is_left() -> None:
    """B4"""
    disk = SimulatedDisk()
    disk.fail("open")
    disk.fail("create", times=1)
    before = threading.active_count()
    with pytest.raises((StoreError, OSError)):
        await a_store(disk).start()
    disk.heal()

    assert threading.active_count() == before
    async with running(disk):
        pass


async def test_with_synchronous_flush_a_put_waits_for_the_disk() -> None:
    """B5: what was acknowledged is there after a crash at that moment."""
    disk = SimulatedDisk()
    async with running(disk, small(ROOT, **SYNC)) as store:
        result = await put_safely(store, a_message(b"safe"))
        assert result.status is PutStatus.PUT_OK
        after = disk.crash(CrashMode.DROP)
        assert store.put(a_message(b"in a hurry")).queue_offset == 1
        await eventually(lambda: bodies_in(store.files) == [b"safe", b"in a hurry"])

    assert bodies_in(Engine(after).files) == [b"safe"]


async def test_who_was_answered_finds_the_message_at_once() -> None:
    """B5, B8, B10: in its queue and by its keys, whoever else is waiting for the next flush."""
    async with running(SimulatedDisk(), small(ROOT, **SYNC)) as store:

        async def send(number: int) -> None:
            for each in range(20):
                key = f"{number}-{each}"
                result = await put_safely(
                    store,
                    a_message(key.encode(), queue_id=number, properties_block=f"KEYS\x01{key}\x02".encode()),
                )
                got = store.reader.get("orders", number, result.queue_offset, 1)
                assert [bytes(decode_record(view).body) for view in got.records] == [key.encode()]
                assert len(store.lookup.query("orders", key, 9, 0, EVER).records) == 1

        await asyncio.gather(*(send(number) for number in range(8)))


async def test_many_puts_share_a_flush() -> None:
    """B5: group commit."""
    disk = SimulatedDisk()
    syncs: list[str] = []
    async with running(disk, small(ROOT, flush_interval_consume_queue=100_000, **SYNC)) as store:
        disk.on_point(lambda point: syncs.append(point) if "sync ends" in point else None)
        results = await asyncio.gather(*(put_safely(store, a_message(b"%d" % each)) for each in range(100)))
        assert {result.status for result in results} == {PutStatus.PUT_OK}
        assert len(syncs) <= 3


async def test_a_log_that_cannot_be_synced_takes_no_more_messages_and_is_not_left_in_order() -> None:
    """B5: the kernel forgets what it could not write, so trying again would be a lie."""
    disk = SimulatedDisk()
    store = a_store(disk, small(ROOT, flush_interval_consume_queue=100_000, **SYNC))
    await store.start()
    await put_safely(store, a_message(b"safe"))
    disk.fail("sync", ROOT / "commitlog" / f"{0:020}", times=1)
    result = await put_safely(store, a_message(b"unsafe"))

    assert result.status is PutStatus.FLUSH_DISK_TIMEOUT
    assert result.queue_offset == 1
    assert store.flags.troubles == Trouble.NOT_WRITABLE
    assert store.put(a_message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert bodies_in(store.files) == [b"safe"]
    assert not await store.stop()
    assert disk.read(ROOT / "abort") is not None


async def test_upkeep_puts_queues_and_checkpoint_on_the_disk() -> None:
    """B5: so that a recovery has little to do."""
    disk = SimulatedDisk()
    async with running(disk, small(flush_interval_commit_log=5, flush_interval_consume_queue=5)) as store:
        store.put(a_message(b"one"))
        store.flusher.when_flushed(store.log.max_offset, lambda _: None)
        await eventually(lambda: store.files.checkpoint.logics_msg_timestamp == START_MS)
        await eventually(lambda: store.files.checkpoint.physic_msg_timestamp == START_MS)
        await store.keep_up(thorough=True)
        after = disk.crash(CrashMode.DROP)

    assert Checkpoint(after, ROOT / "checkpoint").min_timestamp == START_MS - 3000
    assert after.read(ROOT / "consumequeue" / "orders" / "0" / f"{0:020}") is not None
    assert bodies_in(Engine(after).files) == [b"one"]


async def test_the_checkpoint_never_says_more_than_is_on_the_disk() -> None:
    """B5: with many queues only those with enough to write are synced each time."""
    disk = SimulatedDisk()
    async with running(disk, small(flush_interval_consume_queue=100_000)) as store:
        for queue_id in range(70):
            store.put(a_message(queue_id=queue_id))
        await store.keep_up()
        assert store.files.checkpoint.logics_msg_timestamp == 0
        assert store.files.checkpoint.physic_msg_timestamp == 0
        await store.keep_up(thorough=True)
        assert store.files.checkpoint.logics_msg_timestamp == START_MS


async def test_what_could_not_be_queued_is_queued_when_there_is_room_again() -> None:
    """B5: by itself."""
    disk = SimulatedDisk()
    async with running(disk, small(flush_interval_consume_queue=5)) as store:
        disk.fail("create", number=errno.ENOSPC)
        store.put(a_message(b"late"))
        assert store.put(a_message()).status is PutStatus.SERVICE_NOT_AVAILABLE
        disk.heal()
        await eventually(lambda: store.flags.is_writable)
        assert bodies_in(store.files) == [b"late"]
        assert store.put(a_message()).status is PutStatus.PUT_OK


async def test_upkeep_that_fails_is_tried_again() -> None:
    """B5"""
    disk = SimulatedDisk()
    async with running(disk, small(flush_interval_consume_queue=5)) as store:
        disk.fail("sync", ROOT / "checkpoint", times=2)
        store.put(a_message())
        await store.flusher.wait_flushed(store.log.max_offset)
        await eventually(lambda: saved_moment(disk) == START_MS)


def saved_moment(disk: SimulatedDisk) -> int:
    """What the checkpoint would say after a crash."""
    return Checkpoint(disk.crash(CrashMode.DROP), ROOT / "checkpoint").physic_msg_timestamp


async def test_a_deleted_topic_begins_again_with_offset_0() -> None:
    """B7"""
    disk = SimulatedDisk()
    async with running(disk) as store:
        store.put(a_message(topic="bills"))
        store.put(a_message(topic="orders"))
        await store.delete_topics(["bills", "never there"])

        assert [entry.name for entry in disk.entries(ROOT / "consumequeue")] == ["orders"]
        assert store.put(a_message(topic="bills")).queue_offset == 0


async def test_a_topic_takes_nothing_while_it_is_being_deleted_and_begins_again_then() -> None:
    """B3, B7: whoever sends meanwhile is told to try again, and the store goes on."""
    async with running(SimulatedDisk()) as store:
        store.put(a_message(topic="bills"))
        queues = store.queues.detach_topic("bills")
        assert store.put(a_message(topic="bills")).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert store.queues.detach_topic("bills") == []
        store.queues.destroy("bills", queues)

        assert store.put(a_message(topic="bills")).queue_offset == 0
        assert store.put(a_message(topic="orders")).status is PutStatus.PUT_OK


async def test_a_topic_can_be_deleted_while_its_messages_are_on_their_way_to_the_disk() -> None:
    """B3, B7: what is flushed then has no queue any more."""
    async with running(SimulatedDisk(), small(flush_disk_type="SYNC_FLUSH")) as store:
        sent = [store.put(a_message(topic="bills")) for _ in range(3)]
        await store.delete_topics(["bills"])
        await store.flusher.wait_flushed(sent[-1].end_offset)

        assert (await put_safely(store, a_message(topic="bills"))).queue_offset == 0
        assert store.files.dispatcher.failure is None
        assert store.flags.is_writable


async def test_messages_of_a_topic_that_was_made_again_are_there_after_a_crash() -> None:
    """B3, B4: they are not hidden by those that the topic had before it was deleted."""
    disk = SimulatedDisk()
    async with running(disk, small(flush_disk_type="SYNC_FLUSH")) as store:
        for number in range(5):
            await put_safely(store, a_message(b"old %d" % number))
        await store.delete_topics(["orders"])
        for number in range(2):
            await put_safely(store, a_message(b"new %d" % number))
        crashed = disk.crash(CrashMode.DROP)
    async with running(crashed, small(flush_disk_type="SYNC_FLUSH")) as store:
        assert bodies_in(store.files) == [b"new 0", b"new 1"]


async def test_a_replica_gets_the_bytes_of_the_master_and_shows_its_messages() -> None:
    """B11: also when a message comes in two parts, and from file to file."""
    master_disk, slave_disk = SimulatedDisk(), SimulatedDisk()
    async with (
        running(master_disk) as master,
        running(slave_disk, small(broker_role="SLAVE")) as slave,
    ):
        for number in range(8):
            master.put(a_message((b"%d" % number).ljust(20_000, b".")))
        position = 0
        while position < master.log.max_offset:
            rest = LOG_FILE_SIZE - position % LOG_FILE_SIZE
            end = position + min(7001, rest, master.log.max_offset - position)
            data = master.log.view(position, end - position)
            assert data is not None
            assert slave.append_data(data) is PutStatus.PUT_OK
            position = end

        assert bodies_in(slave.files) == bodies_in(master.files)
        assert slave.log.max_offset == master.log.max_offset
    for name in (0, LOG_FILE_SIZE, 2 * LOG_FILE_SIZE):
        path = ROOT / "commitlog" / f"{name:020}"
        assert slave_disk.read(path) == master_disk.read(path)


async def test_a_store_that_rolls_leaves_no_unused_file(tmp_path: Path) -> None:
    """B4: the next file is made ahead, and removed when it was not needed."""
    async with running(SystemDisk(), small(tmp_path), SystemClock()) as store:
        for number in range(50):
            assert store.put(a_message(b"b" * 20_000)).queue_offset == number
    names = sorted(int(path.name) // LOG_FILE_SIZE for path in (tmp_path / "commitlog").iterdir())

    assert names == list(range(17))
    assert all(path.stat().st_size == LOG_FILE_SIZE for path in (tmp_path / "commitlog").iterdir())


async def test_a_store_runs_without_threads() -> None:
    """B4: everything in place, as a simulation wants it."""
    async with running(SimulatedDisk(), workers=lambda _: InPlace()) as store:
        store.put(a_message(b"one"))
        assert await store.flusher.wait_flushed(store.log.max_offset) is PutStatus.PUT_OK
        assert bodies_in(store.files) == [b"one"]


async def test_retention_runs_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """B5"""
    monkeypatch.setattr("cometmq.store.message_store.FIRST_RETENTION_S", 0)
    disk = SimulatedDisk()
    async with running(disk, small(clean_resource_interval=2, file_reserved_time=0)) as store:
        for _ in range(8):
            store.put(a_message(b"b" * 20_000))
        await store.flusher.wait_flushed(store.log.max_offset)
        store.delete_expired()
        await eventually(lambda: store.log.min_offset == 2 * LOG_FILE_SIZE)
        await eventually(lambda: store.queues.get("orders", 0).min_offset == 6)
