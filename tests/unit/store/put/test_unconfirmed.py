"""Messages that are put now and dispatched later: what is noted of them, and what becomes of it."""

from __future__ import annotations

import errno

import pytest

from cometmq.model.names import DELAY_TOPIC
from cometmq.model.sysflag import TransactionType
from cometmq.store.dispatch.dispatcher import Dispatcher
from cometmq.store.log.batch import MessageBatch
from cometmq.store.put.unconfirmed import UnconfirmedMessages
from cometmq.store.status import PutStatus, Trouble
from cometmq.testing.simulation.disk import SimulatedDisk
from cometmq.wire.java_hash import tags_code
from cometmq.wire.record.batch import BatchItem
from tests.unit.store.log_kit import START_MS
from tests.unit.store.store_kit import Engine, a_message, bodies_in, messages_in, small

EVER = 2**63 - 1
LARGE = 20_000


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def engine(disk: SimulatedDisk) -> Engine:
    """A store that shows consumers what is on the disk."""
    return Engine(disk, small(flush_disk_type="SYNC_FLUSH"))


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The limits up to which messages were looked for in the log."""
    limits: list[int] = []
    catch_up = Dispatcher.catch_up

    def counted(self: Dispatcher, limit: int) -> bool:
        limits.append(limit)
        return catch_up(self, limit)

    monkeypatch.setattr(Dispatcher, "catch_up", counted)
    return limits


def keys_found(engine: Engine, *keys: str) -> list[int]:
    return [len(engine.files.index.find("orders", key, 9, 0, EVER).physical_offsets) for key in keys]


def test_what_is_flushed_is_shown_without_looking_for_it_in_the_log(engine: Engine, walks: list[int]) -> None:
    """B5: messages and batches."""
    engine.put(a_message(b"one", properties_block=b"KEYS\x01k1\x02TAGS\x01t\x02"))
    items = [BatchItem(b"two", b"KEYS\x01k2\x02"), BatchItem(b"three", b"TAGS\x01t\x02")]
    engine.put_batch(MessageBatch(a_message(b""), items, 100))
    engine.put(a_message(b"another one", queue_id=1))
    engine.put(a_message(b"four"))
    assert bodies_in(engine.files) == []
    engine.sync_log()

    assert bodies_in(engine.files) == [b"one", b"two", b"three", b"four"]
    codes = [unit[2] for unit in engine.files.queues.get("orders", 0).units(0, 9)]
    assert codes == [tags_code("t"), 0, tags_code("t"), 0]
    assert keys_found(engine, "k1", "k2") == [1, 1]
    assert bodies_in(engine.files, queue_id=1) == [b"another one"]
    assert walks == []


@pytest.mark.parametrize("closes_group", [True, False])
def test_only_what_is_flushed_is_shown(engine: Engine, walks: list[int], closes_group: bool) -> None:
    """B5: if a group was closed when the flush began, without reading it in the log."""
    engine.put(a_message(b"on the disk"))
    engine.files.log.sync()
    if closes_group:
        engine.writer.unconfirmed.close_group()
    engine.put(a_message(b"in memory"))
    engine.writer.show_confirmed()

    assert bodies_in(engine.files) == [b"on the disk"]
    engine.sync_log()
    assert bodies_in(engine.files) == [b"on the disk", b"in memory"]
    assert (walks == []) is closes_group


def test_a_message_waits_for_those_that_are_noted_with_it_if_they_are_flushed_soon(
    engine: Engine, walks: list[int]
) -> None:
    """B5: what came between the beginning of a flush and its end is shown after the next one."""
    engine.put(a_message(b"one"))
    engine.files.log.sync()
    engine.put(a_message(b"two"))
    assert not engine.writer.show_confirmed(more_comes=True)
    assert bodies_in(engine.files) == []
    engine.files.log.sync()
    assert engine.writer.show_confirmed(more_comes=True)

    assert bodies_in(engine.files) == [b"one", b"two"]
    assert walks == []


def test_what_is_no_plain_message_is_read_in_the_log(engine: Engine, walks: list[int]) -> None:
    """B6: parts of transactions and delayed messages, among others and in their order."""
    engine.put(a_message(b"one"))
    engine.put(a_message(b"half", sys_flag=TransactionType.PREPARED))
    engine.put(a_message(b"two", sys_flag=TransactionType.COMMIT))
    engine.put(a_message(b"later", topic=DELAY_TOPIC, properties_block=b"DELAY\x012\x02"))
    engine.put(a_message(b"three"))
    engine.sync_log()

    assert bodies_in(engine.files) == [b"one", b"two", b"three"]
    assert [unit[2] for unit in engine.files.queues.get(DELAY_TOPIC, 0).units(0, 9)] == [START_MS + 5000]
    assert walks != []


def test_messages_of_a_topic_that_was_deleted_meanwhile_are_found_in_its_new_queue(engine: Engine) -> None:
    """B4: they were put before it was deleted, and flushed afterwards."""
    engine.put(a_message(b"one"))
    engine.files.queues.destroy("orders", engine.files.queues.detach_topic("orders"))
    engine.sync_log()

    assert bodies_in(engine.files) == [b"one"]


def test_who_puts_a_message_may_use_its_record_and_its_buffers_again(engine: Engine) -> None:
    """B4: before the message is on the disk."""
    heard = []
    engine.files.dispatcher.arrivals.append(lambda *arrival: heard.append((*arrival[:5], bytes(arrival[5]))))
    buffer = bytearray(b"TAGS\x01first\x02KEYS\x01k1\x02")
    record = a_message(b"first", properties_block=memoryview(buffer))
    engine.put(record)
    batch = MessageBatch(a_message(b"", queue_id=1), [BatchItem(b"item", memoryview(buffer))], 100)
    engine.put_batch(batch)
    was = bytes(buffer)
    buffer[:] = b"X" * len(buffer)
    record.topic, record.queue_id, record.body, record.properties_block = "bills", 7, b"second", b""
    batch.head.topic, batch.items, batch.sizes = "bills", [], []
    engine.put(record)
    engine.sync_log()

    assert {
        place: [bytes(each.body) for each in found] for place, found in messages_in(engine.files).items()
    } == {
        ("orders", 0): [b"first"],
        ("orders", 1): [b"item"],
        ("bills", 7): [b"second"],
    }
    assert heard == [
        ("orders", 0, 0, tags_code("first"), START_MS, was),
        ("orders", 1, 0, tags_code("first"), START_MS, was),
        ("bills", 7, 0, 0, START_MS, b""),
    ]


def test_a_log_that_goes_on_in_the_next_file_is_shown_whole(engine: Engine) -> None:
    """B4: there is a filler between the messages."""
    bodies = [(b"%d-" % number).ljust(LARGE, b"b") for number in range(10)]
    for number, body in enumerate(bodies):
        engine.put(a_message(body))
        if number % 4 == 3:
            engine.sync_log()
    engine.sync_log()

    assert len(engine.files.log.files.files) == 4
    assert bodies_in(engine.files) == bodies


def test_what_was_not_noted_is_found_in_the_log(engine: Engine, walks: list[int]) -> None:
    """B4: notes have a limit."""
    engine.writer.unconfirmed = UnconfirmedMessages(engine.files.log, engine.files.dispatcher, limit=3)  # type: ignore[misc]
    for number in range(10):
        engine.put(a_message(b"%d" % number))
        if number == 5:
            engine.files.log.sync()
    engine.writer.show_confirmed()
    assert bodies_in(engine.files) == [b"%d" % number for number in range(6)]
    engine.put(a_message(b"10"))
    engine.sync_log()

    assert bodies_in(engine.files) == [b"%d" % number for number in range(11)]
    assert len(walks) >= 2


def test_bytes_of_another_log_between_messages_are_found_in_the_log(
    engine: Engine, disk: SimulatedDisk
) -> None:
    """B11: a broker that becomes master goes on behind what its master sent."""
    other = Engine(SimulatedDisk())
    engine.put(a_message(b"one"))
    other.put(a_message(b"one"))
    sent = other.put(a_message(b"two"))
    data = bytes(other.files.log.files.files[0].view[sent.physical_offset : sent.end_offset])
    engine.files.log.append_data(data)
    engine.files.queues.get("orders", 0).next_offset += 1
    engine.put(a_message(b"three"))
    engine.sync_log()

    assert bodies_in(engine.files) == [b"one", b"two", b"three"]


def test_what_was_cut_off_the_log_is_not_shown(engine: Engine) -> None:
    """B11: others have taken its place."""
    first = engine.put(a_message(b"stays"))
    engine.put(a_message(b"goes"))
    engine.files.log.truncate(first.end_offset)
    engine.files.queues.get("orders", 0).next_offset = 1
    engine.put(a_message(b"another one", properties_block=b"KEYS\x01new\x02"))
    engine.sync_log()

    assert bodies_in(engine.files) == [b"stays", b"another one"]
    assert keys_found(engine, "new") == [1]


@pytest.mark.parametrize("operation", ["create", "reserve"])
def test_what_could_not_be_dispatched_when_it_was_flushed_is_dispatched_later(
    engine: Engine, disk: SimulatedDisk, operation: str
) -> None:
    """B5"""
    engine.put(a_message(b"one"))
    engine.put(a_message(b"two", queue_id=1))
    disk.fail(operation, number=errno.ENOSPC)  # type: ignore[arg-type]
    engine.sync_log()

    assert engine.flags.troubles == Trouble.QUEUE_ERROR
    assert engine.put(a_message(b"refused")).status is PutStatus.SERVICE_NOT_AVAILABLE
    disk.heal()
    engine.writer.show_confirmed()
    assert engine.put(a_message(b"three")).status is PutStatus.PUT_OK
    engine.sync_log()
    assert bodies_in(engine.files) == [b"one", b"three"]
    assert bodies_in(engine.files, queue_id=1) == [b"two"]
