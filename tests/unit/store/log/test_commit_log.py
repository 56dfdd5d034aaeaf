"""Appending messages to the commit log: what is written, and what is refused."""

from __future__ import annotations

import pytest

from cometmq.model.errors import MessageError
from cometmq.model.message import Host
from cometmq.store.log.commit_log import CLOCK_STEP_MS, CommitLog
from cometmq.store.status import PutStatus
from cometmq.testing.clock import VirtualClock
from cometmq.testing.simulation.disk import SimulatedDisk
from cometmq.wire.record.batch import BatchItem
from cometmq.wire.record.codec import Record, decode_record, encode_record
from cometmq.wire.record.crc import record_is_intact
from cometmq.wire.record.ids import pack_host
from cometmq.wire.record.layout import MAGIC_V1, MAGIC_V2
from tests.unit.store.log_kit import (
    BORN_HOST,
    FILE_SIZE,
    START_MS,
    STORE_HOST,
    a_log,
    batch_of,
    config,
    message,
    message_of,
)

IPV6 = pack_host(Host("fd00::7", 50001))


def stored(log: CommitLog, record: Record) -> Record:
    """Append a message and read it back."""
    assert log.append(record) is PutStatus.PUT_OK
    view = log.view(record.physical_offset, record.total_size)
    assert view is not None
    return decode_record(view, check_crc=True)


def bodies(log: CommitLog) -> list[bytes]:
    return [bytes(record.body) for record in log.walk(log.min_offset, check_crc=True)]


def test_the_bytes_of_a_record() -> None:
    """B4: the reference record of the format."""
    clock = VirtualClock(1_700_000_000_123)
    log = a_log(SimulatedDisk(), clock=clock, store_host=pack_host(Host("127.0.0.1", 10911)))
    log.append(message_of(FILE_SIZE - 8))
    record = Record(
        topic="TopicTest",
        body=b"hello",
        properties_block=b"UNIQ_KEY\x01ABC\x02TAGS\x01TagA\x02",
        queue_id=3,
        queue_offset=7,
        born_timestamp_ms=1_700_000_000_000,
        born_host=pack_host(Host("10.0.0.1", 50000)),
    )

    assert log.append(record) is PutStatus.PUT_OK
    assert bytes(log.view(4096, 128) or b"") == bytes.fromhex(
        "00000080 daa320a7 3610a686 00000003 00000000 0000000000000007 0000000000001000 00000000"
        "0000018bcfe56800 0a000001 0000c350 0000018bcfe5687b 7f000001 00002a9f 00000000 0000000000000000"
        "00000005 68656c6c6f 09 546f70696354657374 0017"
        "554e49515f4b4559 01 414243 02 54414753 01 54616741 02"
    )


@pytest.mark.parametrize("body", [b"", b"x", bytes(range(256)) * 8, b"y" * 5000])
def test_a_message_is_stored_as_the_record_codec_would_write_it(body: bytes) -> None:
    """B4"""
    log = a_log(SimulatedDisk(), settings=config(mapped_file_size_commit_log=16 * 1024))
    log.append(message())
    record = message(
        body,
        properties_block=b"TAGS\x01a\x02",
        queue_offset=41,
        flag=-1,
        sys_flag=0x8,
        reconsume_times=2,
        prepared_transaction_offset=99,
    )

    assert log.append(record) is PutStatus.PUT_OK
    assert (record.store_timestamp_ms, record.physical_offset) == (
        START_MS,
        log.max_offset - record.total_size,
    )
    view = log.record_at(record.physical_offset)
    record.store_host = STORE_HOST
    assert view is not None
    assert bytes(view) == encode_record(record)


@pytest.mark.parametrize(
    ("born", "store", "bits"),
    [(BORN_HOST, STORE_HOST, 0), (IPV6, STORE_HOST, 0x10), (BORN_HOST, IPV6, 0x20), (IPV6, IPV6, 0x30)],
)
def test_the_host_bits_follow_from_the_hosts_and_never_from_the_client(
    born: bytes, store: bytes, bits: int
) -> None:
    log = a_log(SimulatedDisk(), store_host=store)
    for body in (b"one", b""):
        found = stored(log, message(body, born_host=born, sys_flag=0x301 | (0x30 ^ bits)))

        assert (found.sys_flag, found.born_host, found.store_host) == (0x301 | bits, born, store)


def test_hosts_that_are_not_packed_are_refused() -> None:
    with pytest.raises(MessageError, match="pack it first"):
        a_log(SimulatedDisk(), store_host=b"127.0.0.1")
    log = a_log(SimulatedDisk())
    for body in (b"one", b""):
        assert log.append(message(body, born_host=b"10.0.0.1:9")) is PutStatus.MESSAGE_ILLEGAL


def test_only_retry_topics_may_be_longer_than_127_bytes() -> None:
    """B7"""
    log = a_log(SimulatedDisk())
    retry = "%RETRY%" + "g" * 248

    assert stored(log, message(topic="t" * 127)).magic == MAGIC_V1
    assert (stored(log, message(topic=retry)).magic, stored(log, message(topic=retry)).topic) == (
        MAGIC_V2,
        retry,
    )
    for topic in ("t" * 128, retry + "g", "ö" * 64, "\ud800"):
        assert log.append(message(topic=topic)) is PutStatus.MESSAGE_ILLEGAL
        assert log.append_batch(batch_of([BatchItem(b"x")], topic=topic)) is PutStatus.MESSAGE_ILLEGAL
    assert len(bodies(log)) == 3


def test_long_topics_need_the_second_version() -> None:
    log = a_log(SimulatedDisk(), settings=config(auto_message_version_on_topic_len=False))

    assert log.append(message(topic="%RETRY%" + "g" * 150)) is PutStatus.MESSAGE_ILLEGAL
    assert log.append(message(topic="%RETRY%" + "g" * 120)) is PutStatus.PUT_OK


def test_bodies_and_properties_have_limits_of_their_own() -> None:
    """B7"""
    disk = SimulatedDisk()
    settings = config(max_message_size=1000, mapped_file_size_commit_log=64 * 1024)
    log = a_log(disk, settings=settings)

    assert log.append(message(bytes(1001))) is PutStatus.MESSAGE_ILLEGAL
    assert log.append(message(properties_block=bytes(32768))) is PutStatus.PROPERTIES_SIZE_EXCEEDED
    assert log.max_offset == 0
    assert log.append(message(bytes(1000), properties_block=bytes(32767))) is PutStatus.PUT_OK


def test_the_checksum_of_a_record_takes_room_from_its_properties() -> None:
    settings = config(enabled_append_prop_crc=True, mapped_file_size_commit_log=64 * 1024)
    log = a_log(SimulatedDisk(), settings=settings)

    too_long = message(properties_block=b"k\x01" + b"v" * 32746 + b"\x02")
    assert log.append(too_long) is PutStatus.PROPERTIES_SIZE_EXCEEDED
    fitting = message(properties_block=b"k\x01" + b"v" * 32744 + b"\x02")
    assert stored(log, fitting).properties_block[-20:-11] == b"__CRC32#\x01"
    view = log.record_at(fitting.physical_offset)
    assert view is not None
    assert record_is_intact(view, 0, len(view))


@pytest.mark.parametrize("field", ["queue_id", "flag", "reconsume_times", "prepared_transaction_offset"])
def test_a_number_that_does_not_fit_leaves_nothing_behind(field: str) -> None:
    """B4"""
    log = a_log(SimulatedDisk())
    log.append(message(b"before"))
    end = log.max_offset

    for body in (b"too big", b""):
        assert log.append(message(body, **{field: 2**63})) is PutStatus.MESSAGE_ILLEGAL
    assert log.max_offset == end
    assert log.files.files[0].buffer[end:] == bytes(FILE_SIZE - end)
    assert log.append(message(b"after")) is PutStatus.PUT_OK
    assert bodies(log) == [b"before", b"after"]


def test_store_times_do_not_follow_a_clock_that_is_set_back_a_little() -> None:
    """B9"""
    clock = VirtualClock(START_MS)
    log = a_log(SimulatedDisk(), clock=clock)
    times = []
    for now in (START_MS, START_MS - CLOCK_STEP_MS, START_MS + 5, START_MS + 4, START_MS + 6):
        clock.set_wall_clock(now)
        times.append(stored(log, message()).store_timestamp_ms)
        batch = batch_of([BatchItem(b"x")])
        log.append_batch(batch)
        assert batch.head.store_timestamp_ms == times[-1]

    assert times == [START_MS, START_MS, START_MS + 5, START_MS + 5, START_MS + 6]
    clock.set_wall_clock(START_MS - CLOCK_STEP_MS)
    assert stored(log, message()).store_timestamp_ms == START_MS - CLOCK_STEP_MS
