"""What becomes of records in queues and index, and who hears of it."""

from __future__ import annotations

import errno

import pytest

from cometmq.model.names import DELAY_TOPIC
from cometmq.model.sysflag import TransactionType
from cometmq.store.log.batch import MessageBatch
from cometmq.store.status import PutStatus, Trouble
from cometmq.testing.simulation.disk import SimulatedDisk
from cometmq.wire.java_hash import tags_code
from cometmq.wire.record.batch import BatchItem
from tests.unit.store.log_kit import ROOT, START_MS
from tests.unit.store.store_kit import Engine, a_message, bodies_in, small

EVER = 2**63 - 1


def code_of(engine: Engine, topic: str, queue_id: int, queue_offset: int) -> int:
    unit = engine.files.queues.get(topic, queue_id).unit(queue_offset)
    assert unit is not None
    return unit[2]


@pytest.mark.parametrize(
    ("block", "tags"),
    [
        (b"", None),
        (b"TAGS\x01TagA\x02", "TagA"),
        (b"A\x01b\x02TAGS\x01order-created", "order-created"),
        (b"TAGS\x01first\x02TAGS\x01last\x02TAGS\x01\x02", "last"),
        (b"XTAGS\x01no\x02", None),
        ("TAGS\x01Grün\x02".encode(), "Grün"),
    ],
)
def test_a_unit_carries_the_hash_of_the_tags(block: bytes, tags: str | None) -> None:
    """B8"""
    engine = Engine(SimulatedDisk())
    engine.put(a_message(properties_block=block))

    assert code_of(engine, "orders", 0, 0) == (tags_code(tags) if tags else 0)


@pytest.mark.parametrize(
    ("level", "delay_ms"), [("1", 1000), ("5", 60_000), ("18", 7_200_000), ("99", 7_200_000)]
)
def test_a_unit_of_a_delayed_message_carries_when_to_deliver_it(level: str, delay_ms: int) -> None:
    """B6"""
    engine = Engine(SimulatedDisk())
    block = b"TAGS\x01t\x02DELAY\x01%s\x02" % level.encode()
    engine.put(a_message(topic=DELAY_TOPIC, properties_block=block))
    engine.put(a_message(topic="orders", properties_block=block))
    engine.put(a_message(topic=DELAY_TOPIC, properties_block=b"TAGS\x01t\x02DELAY\x010\x02"))

    assert code_of(engine, DELAY_TOPIC, 0, 0) == START_MS + delay_ms
    assert code_of(engine, "orders", 0, 0) == tags_code("t")
    assert code_of(engine, DELAY_TOPIC, 0, 1) == tags_code("t")


@pytest.mark.parametrize("kind", TransactionType)
def test_only_messages_that_count_are_queued_and_indexed(kind: TransactionType) -> None:
    """B6, B10"""
    engine = Engine(SimulatedDisk())
    engine.put(a_message(b"before"))
    result = engine.put(a_message(sys_flag=kind, properties_block=b"KEYS\x01k\x02"))
    engine.put(a_message(b"behind"))
    is_queued = kind in (TransactionType.NONE, TransactionType.COMMIT)
    matches = engine.files.index.find("orders", "k", 10, 0, EVER)

    assert result.status is PutStatus.PUT_OK
    assert result.queue_offset == (1 if is_queued else 0)
    assert bodies_in(engine.files) == [b"before", *([b"hello"] if is_queued else []), b"behind"]
    assert bool(matches.physical_offsets) == (kind is not TransactionType.ROLLBACK)


def test_messages_are_found_by_unique_key_and_by_every_key() -> None:
    """B10"""
    engine = Engine(SimulatedDisk())
    result = engine.put(a_message(properties_block=b"UNIQ_KEY\x01U1\x02KEYS\x01a  b\x02"))

    for key in ("U1", "a", "b"):
        assert engine.files.index.find("orders", key, 9, 0, EVER).physical_offsets == [result.physical_offset]
    assert engine.files.index.find("orders", "c", 9, 0, EVER).physical_offsets == []


def test_there_is_no_index_if_none_is_wanted() -> None:
    """B10: `messageIndexEnable`."""
    disk = SimulatedDisk()
    engine = Engine(disk, small(message_index_enable=False))
    engine.put(a_message(properties_block=b"KEYS\x01k\x02"))

    assert disk.entries(ROOT / "index") == []


def test_the_properties_of_a_batch_win_over_those_of_its_messages() -> None:
    """B6: as the records say, where they stand behind them."""
    engine = Engine(SimulatedDisk())
    items = [BatchItem(b"one", b"TAGS\x01own\x02KEYS\x01k1\x02"), BatchItem(b"two", b"KEYS\x01k2\x02")]
    head = a_message(b"", properties_block=b"TAGS\x01batch\x02")
    engine.put_batch(MessageBatch(head, items, 100))

    assert [code_of(engine, "orders", 0, offset) for offset in (0, 1)] == [tags_code("batch")] * 2
    for number, key in enumerate(("k1", "k2")):
        unit = engine.files.queues.get("orders", 0).unit(number)
        assert unit is not None
        assert engine.files.index.find("orders", key, 9, 0, EVER).physical_offsets == [unit[0]]


def test_who_waits_hears_of_each_message_when_it_can_be_read() -> None:
    """B8"""
    engine = Engine(SimulatedDisk())
    heard = []

    def arrived(topic: str, queue_id: int, offset: int, code: int, stored_ms: int, block: object) -> None:
        assert engine.files.queues.get(topic, queue_id).max_offset > offset
        heard.append((topic, queue_id, offset, code, stored_ms, bytes(block)))  # type: ignore[call-overload]

    engine.files.dispatcher.arrivals.append(arrived)
    tags = b"TAGS\x01t\x02"
    engine.put(a_message(queue_id=2, properties_block=tags))
    engine.put(a_message(queue_id=2, sys_flag=TransactionType.PREPARED))
    engine.put_batch(MessageBatch(a_message(b""), [BatchItem(b"1"), BatchItem(b"2", tags)], 100))

    assert heard == [
        ("orders", 2, 0, tags_code("t"), START_MS, tags),
        ("orders", 0, 0, 0, START_MS, b""),
        ("orders", 0, 1, tags_code("t"), START_MS, tags),
    ]


def test_a_listener_that_fails_harms_nobody() -> None:
    """B8"""
    engine = Engine(SimulatedDisk())
    heard: list[int] = []
    engine.files.dispatcher.arrivals.append(lambda *arrival: heard[1_000_000])  # type: ignore[arg-type]
    engine.files.dispatcher.arrivals.append(lambda *arrival: heard.append(arrival[2]))

    assert engine.put(a_message()).status is PutStatus.PUT_OK
    assert engine.put_batch(MessageBatch(a_message(b""), [BatchItem(b"1")], 9)).status is PutStatus.PUT_OK
    assert heard == [0, 1]


def test_with_synchronous_flush_a_message_is_seen_when_it_is_on_the_disk() -> None:
    """B5: a consumer never sees what a crash could take back."""
    engine = Engine(SimulatedDisk(), small(flush_disk_type="SYNC_FLUSH"))
    engine.put(a_message(b"first"))
    result = engine.put(a_message(b"second"))

    assert result.queue_offset == 1
    assert bodies_in(engine.files) == []
    engine.sync_log()
    assert bodies_in(engine.files) == [b"first", b"second"]


def test_what_replicas_have_to_confirm_is_seen_when_they_did() -> None:
    """B11"""
    engine = Engine(SimulatedDisk())
    engine.writer.confirm_up_to(0)
    first = engine.put(a_message(b"first"))
    engine.put(a_message(b"second"))

    assert bodies_in(engine.files) == []
    engine.writer.confirm_up_to(first.end_offset)
    assert bodies_in(engine.files) == [b"first"]
    engine.writer.confirm_up_to(None)
    assert bodies_in(engine.files) == [b"first", b"second"]


@pytest.mark.parametrize("operation", ["create", "reserve"])
@pytest.mark.parametrize("is_batch", [False, True])
def test_a_unit_that_cannot_be_written_is_written_later(operation: str, is_batch: bool) -> None:
    """B5: the message is in the log; others are refused until the queue is up to date again."""
    disk = SimulatedDisk()
    engine = Engine(disk)
    engine.put(a_message(b"before", queue_id=1))
    disk.fail(operation, number=errno.ENOSPC)  # type: ignore[arg-type]
    if is_batch:
        result = engine.put_batch(MessageBatch(a_message(b""), [BatchItem(b"hello")], 100))
    else:
        result = engine.put(a_message(b"hello"))

    assert result.status is PutStatus.PUT_OK
    assert engine.flags.troubles == Trouble.QUEUE_ERROR
    assert engine.put(a_message(b"refused")).status is PutStatus.SERVICE_NOT_AVAILABLE
    engine.writer.show_confirmed()
    assert engine.flags.troubles == Trouble.QUEUE_ERROR
    assert bodies_in(engine.files, queue_id=1) == [b"before"]
    disk.heal()
    engine.writer.show_confirmed()
    assert engine.put(a_message(b"after")).queue_offset == 1
    assert bodies_in(engine.files) == [b"hello", b"after"]
    assert engine.close()


def test_a_store_whose_queues_are_behind_is_not_left_in_order() -> None:
    """B5: the next start brings them up to the log."""
    disk = SimulatedDisk()
    engine = Engine(disk)
    disk.fail("create")
    engine.put(a_message(b"hello"))
    assert not engine.close()
    disk.heal()

    engine = Engine(disk)
    assert not engine.recovered.stopped_orderly
    assert bodies_in(engine.files) == [b"hello"]
