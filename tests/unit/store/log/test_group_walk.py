"""Records of the log in groups: the same as one by one, and the same end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.model.message import Host
from cometmq.model.names import DELAY_TOPIC
from cometmq.model.sysflag import TransactionType
from cometmq.store.dispatch_rules import put_values
from cometmq.store.log.commit_log import CommitLog
from cometmq.store.log.group_walk import GroupWalk, RecordGroup
from cometmq.store.status import PutStatus
from cometmq.testing.simulation.disk import SimulatedDisk
from cometmq.wire.record.codec import Record
from cometmq.wire.record.ids import pack_host
from tests.unit.store.log_kit import BORN_HOST, a_log, message
from tests.unit.store.store_kit import Engine, a_message, bodies_in, messages_in, small

IPV6_HOST = pack_host(Host("2001:db8::1", 50000))
BLOCKS = [
    b"",
    b"TAGS\x01TagA\x02",
    b"KEYS\x01a b\x02",
    b"UNIQ_KEY\x017F000001\x02TAGS\x01TagA\x02",
    b"UNIQ_KEY\x017F000002\x02TAGS\x01TagA\x02",
    b"UNIQ_KEY\x01\x02TAGS\x01TagAA\x02",
    b"XUNIQ_KEY\x017F000002\x02TAGS\x01TagA\x02",
    b"UNIQ_KEY\x017F00\x02UNIQ_KEY\x017F000002\x02KEYS\x01c",
    b"A\x01b\x02UNIQ_KEY\x017F000003",
    b"UNIQ_KEY\x01A\x02XUNIQ_KEY\x01A\x02",
    b"UNIQ_KEY\x01A\x02XUNIQ_KEY\x01B\x02",
]
MESSAGES = st.lists(
    st.builds(
        message,
        st.binary(max_size=40),
        topic=st.sampled_from(["orders", "bills", DELAY_TOPIC, "größe", "%RETRY%".ljust(140, "r")]),
        queue_id=st.integers(0, 2),
        queue_offset=st.integers(0, 3),
        sys_flag=st.sampled_from([0, 0, 0, *TransactionType]),
        born_host=st.sampled_from([BORN_HOST, BORN_HOST, IPV6_HOST]),
        properties_block=st.sampled_from(BLOCKS),
    ),
    max_size=60,
)


class Told(NamedTuple):
    """What dispatch wants to know of a record."""

    place: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    code: int
    unique_key: bytes | None
    keys: bytes | None
    block: bytes


def told_by(record: Record) -> Told:
    code, unique_key, keys, _ = put_values(record.properties_block)
    return Told(
        record.physical_offset,
        record.total_size,
        record.topic,
        record.queue_id,
        record.queue_offset,
        code,
        unique_key or None,
        keys or None,
        bytes(record.properties_block),
    )


def told_by_group(group: RecordGroup) -> list[Told]:
    keys = {place: (unique_key or None, keys or None) for _, unique_key, keys, place, _ in group.keyed}
    blocks = {arrival[:3]: bytes(arrival[5]) for arrival in group.arrivals}
    told = []
    for run in group.queues:
        units = zip(run.units[::3], run.units[1::3], run.units[2::3], strict=True)
        for queue_offset, (place, size, code) in enumerate(units, run.first_offset):
            where = run.topic, run.queue_id, queue_offset
            told.append(Told(place, size, *where, code, *keys.get(place, (None, None)), blocks[where]))
    assert len(told) == group.count
    return sorted(told)


def told_in(found: Iterable[RecordGroup | Record]) -> list[Told]:
    told: list[Told] = []
    for each in found:
        told += told_by_group(each) if isinstance(each, RecordGroup) else [told_by(each)]
    return told


def log_of(messages: list[Record]) -> CommitLog:
    log = a_log(SimulatedDisk())
    for each in messages:
        assert log.append(each) is PutStatus.PUT_OK
    return log


@given(MESSAGES, st.integers(0, 20_000))
def test_groups_tell_of_every_record_what_the_record_does(messages: list[Record], limit: int) -> None:
    """B4: whatever is in the log, and however far one looks."""
    log = log_of(messages)
    groups = GroupWalk(log.files, 0, min(limit, log.max_offset), check_crc=True, with_arrivals=True)
    records = log.walk(0, min(limit, log.max_offset), check_crc=True)

    assert told_in(groups) == [told_by(record) for record in records]
    assert (groups.position, groups.end, str(groups.error)) == (
        records.position,
        records.end,
        str(records.error),
    )


@given(MESSAGES.filter(len), st.data())
def test_a_damaged_byte_ends_both_at_the_same_place(messages: list[Record], data: st.DataObject) -> None:
    """B5: and for the same reason."""
    log = log_of(messages)
    mapped = log.files.files[data.draw(st.integers(0, len(log.files.files) - 1))]
    at = data.draw(st.integers(0, max(mapped.wrote - 1, 0)))
    mapped.buffer[at] ^= 1 << data.draw(st.integers(0, 7))
    groups, records = GroupWalk(log.files, 0, check_crc=True, with_arrivals=True), log.walk(0, check_crc=True)

    assert told_in(groups) == [told_by(record) for record in records]
    assert (groups.position, groups.end, str(groups.error)) == (
        records.position,
        records.end,
        str(records.error),
    )


def test_plain_messages_come_in_one_group_and_others_alone() -> None:
    """B5: which is what makes a recovery quick."""
    log = log_of([message(queue_offset=number) for number in range(5)])
    log.append(message(sys_flag=TransactionType.PREPARED))
    log.append(message(queue_offset=5))
    found = [each.count if isinstance(each, RecordGroup) else each for each in GroupWalk(log.files, 0)]

    assert [found[0], found[2]] == [5, 1]
    assert isinstance(found[1], Record)


@pytest.mark.parametrize("one_by_one", [False, True])
def test_queues_and_index_are_the_same_from_groups_and_from_single_records(one_by_one: bool) -> None:
    """B5, B10"""
    disk = SimulatedDisk()
    engine = Engine(disk, small(max_index_num=1000))
    for number in range(300):
        block = b"UNIQ_KEY\x01%032X\x02TAGS\x01t%d\x02KEYS\x01k%d\x02" % (number, number % 3, number)
        engine.put(a_message(b"%d" % number, queue_id=number % 5, properties_block=block))
    before = {place: [told_by(r) for r in found] for place, found in messages_in(engine.files).items()}
    again = Engine(SimulatedDisk(), small(max_index_num=1000, enable_multi_dispatch=one_by_one))
    again.writer.become_slave()
    assert (
        again.files.log.append_data(bytes(engine.files.log.files.files[0].view[:60_000])) is PutStatus.PUT_OK
    )
    again.files.log.truncate(engine.files.log.max_offset)
    again.writer.show_confirmed()

    assert {place: [told_by(r) for r in found] for place, found in messages_in(again.files).items()} == before
    for number in range(300):
        for key in (f"{number:032X}", f"k{number}"):
            assert (
                again.files.index.find("orders", key, 9, 0, 2**63).physical_offsets
                == engine.files.index.find("orders", key, 9, 0, 2**63).physical_offsets
                != []
            )


def test_a_group_of_an_impossible_queue_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    """B5: a log of somebody else's may have anything in it."""
    log = a_log(SimulatedDisk())
    for topic in ("orders", "..", "orders"):
        log.append(message(b"in " + topic.encode(), topic=topic, queue_id=0))
    engine = Engine(SimulatedDisk())
    engine.files.log.append_data(bytes(log.files.files[0].view[: log.max_offset]))
    engine.writer.show_confirmed()

    assert bodies_in(engine.files)[0] == b"in orders"
    assert "have the impossible queue '..' 0, and are passed over" in caplog.text
