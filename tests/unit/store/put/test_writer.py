"""Which messages a store takes, and what they get."""

from __future__ import annotations

import pytest

from cometmq.store.log.batch import MessageBatch
from cometmq.store.status import PutStatus, Trouble
from cometmq.testing.simulation.disk import SimulatedDisk
from cometmq.wire.record.batch import BatchItem
from cometmq.wire.record.codec import Record
from cometmq.wire.record.ids import decode_offset_id
from tests.unit.store.log_kit import START_MS
from tests.unit.store.store_kit import Engine, a_message, bodies_in, messages_in, small


def test_every_queue_counts_its_messages_without_gaps() -> None:
    """B4"""
    engine = Engine(SimulatedDisk())
    places = [("orders", 0), ("bills", 3), ("orders", 1), ("orders", 0), ("bills", 3), ("orders", 0)]
    offsets = [engine.put(a_message(b"x", *place)).queue_offset for place in places]

    assert offsets == [0, 0, 0, 1, 1, 2]
    assert {place: len(records) for place, records in messages_in(engine.files).items()} == {
        ("orders", 0): 3,
        ("orders", 1): 1,
        ("bills", 3): 2,
    }


def test_a_put_says_where_the_message_is() -> None:
    """B7"""
    engine = Engine(SimulatedDisk())
    engine.put(a_message(b"first"))
    record = a_message(b"second")
    result = engine.put(record)

    assert (result.status, result.queue_offset, result.store_timestamp_ms) == (PutStatus.PUT_OK, 1, START_MS)
    assert result.end_offset == result.physical_offset + record.total_size == engine.files.log.max_offset
    assert decode_offset_id(result.offset_ids).commit_log_offset == result.physical_offset
    assert (record.queue_offset, record.physical_offset) == (1, result.physical_offset)


def test_a_batch_is_as_many_messages_with_as_many_ids() -> None:
    """B6"""
    engine = Engine(SimulatedDisk())
    engine.put(a_message(b"before"))
    items = [BatchItem(b"one"), BatchItem(b"two"), BatchItem(b"three")]
    result = engine.put_batch(MessageBatch(a_message(b""), items, 100))
    behind = engine.put(a_message(b"behind"))
    ids = [decode_offset_id(text).commit_log_offset for text in result.offset_ids.split(",")]

    assert (result.queue_offset, behind.queue_offset) == (1, 4)
    assert bodies_in(engine.files) == [b"before", b"one", b"two", b"three", b"behind"]
    assert ids == [record.physical_offset for record in messages_in(engine.files)["orders", 0][1:4]]


ILLEGAL = {
    "a topic of 128 bytes": a_message(topic="t" * 128),
    "a retry topic of 256 bytes": a_message(topic="%RETRY%".ljust(256, "r")),
    "no topic": a_message(topic=""),
    "a topic that is a path": a_message(topic="../orders"),
    "a topic that is a folder": a_message(topic=".."),
    "a negative queue id": a_message(queue_id=-1),
    "a body that is too long": a_message(b"b" * 10_001),
    "a number without being a batch": a_message(properties_block=b"INNER_NUM\x012\x02"),
    "a batch in one record": a_message(sys_flag=0x80),
}


@pytest.mark.parametrize("what", ILLEGAL)
def test_what_cannot_be_stored_is_refused_and_changes_nothing(what: str) -> None:
    """B7"""
    engine = Engine(SimulatedDisk(), small(max_message_size=10_000))
    before = engine.put(a_message(b"before"))

    assert engine.put(ILLEGAL[what]).status is PutStatus.MESSAGE_ILLEGAL
    assert engine.files.log.max_offset == before.end_offset
    assert engine.files.queues.topics() == ["orders"]
    assert engine.put(a_message(b"behind")).queue_offset == 1


def test_properties_that_are_too_long_are_refused() -> None:
    """B7"""
    engine = Engine(SimulatedDisk())
    result = engine.put(a_message(properties_block=b"a\x01" + b"v" * 32766))

    assert result.status is PutStatus.PROPERTIES_SIZE_EXCEEDED


@pytest.mark.parametrize(
    "head",
    [
        a_message(b"", properties_block=b"DELAY\x013\x02"),
        a_message(b"", sys_flag=4),
        a_message(b"", sys_flag=0x80),
        a_message(b"", queue_id=-2),
        a_message(b"", topic="t" * 128),
    ],
    ids=["delayed", "of a transaction", "in one record", "of no queue", "of a long topic"],
)
def test_a_batch_that_is_not_plain_is_refused(head: Record) -> None:
    """B6"""
    engine = Engine(SimulatedDisk())

    assert engine.put_batch(MessageBatch(head, [BatchItem(b"x")], 100)).status is PutStatus.MESSAGE_ILLEGAL
    assert engine.files.log.max_offset == 0


def test_a_long_retry_topic_is_stored() -> None:
    """B7: groups have long names, too."""
    engine = Engine(SimulatedDisk())
    topic = "%RETRY%".ljust(200, "r")

    assert engine.put(a_message(b"again", topic)).status is PutStatus.PUT_OK
    assert bodies_in(engine.files, topic) == [b"again"]


@pytest.mark.parametrize("trouble", set(Trouble) - {Trouble.NOT_READABLE})
def test_nothing_is_taken_while_there_is_a_trouble(trouble: Trouble) -> None:
    """B5"""
    engine = Engine(SimulatedDisk())
    engine.flags.set(trouble)
    batch = MessageBatch(a_message(b""), [BatchItem(b"x")], 100)

    assert engine.put(a_message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert engine.put_batch(batch).status is PutStatus.SERVICE_NOT_AVAILABLE
    engine.flags.set(trouble, on=False)
    assert engine.put(a_message()).status is PutStatus.PUT_OK


def test_a_slave_takes_nothing_until_it_is_the_master() -> None:
    """B11"""
    engine = Engine(SimulatedDisk(), small(broker_role="SLAVE"))

    assert engine.put(a_message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    engine.writer.become_slave(is_slave=False)
    assert engine.put(a_message()).status is PutStatus.PUT_OK


def test_a_closed_store_takes_nothing() -> None:
    """B5"""
    engine = Engine(SimulatedDisk())
    engine.close()

    assert engine.put(a_message()).status is PutStatus.SERVICE_NOT_AVAILABLE
