"""Queues, index and checkpoint of Apache RocketMQ 5.3.3, made again from the records of its commit log."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from cometmq.model.message_properties import DELAY, KEYS, TAGS, UNIQ_KEY
from cometmq.model.sysflag import TransactionType, transaction_type
from cometmq.ports.disk import SystemDisk
from cometmq.store.checkpoint import Checkpoint
from cometmq.store.index.index import Index
from cometmq.store.queue.consume_queue import Boundary
from cometmq.store.queue.consume_queues import ConsumeQueues
from cometmq.testing.clock import VirtualClock
from cometmq.wire.java_hash import tags_code
from cometmq.wire.record.codec import Record
from cometmq.wire.record.walk import RecordWalk
from tests.unit.store.store_vectors import DATA, unpack_clean_store

QUEUE_FILE_SIZE = 60_000
SLOTS, ENTRIES = 500, 2000
QUEUES = 53
DELETED_TOPICS = {"VecAuto", "VecAutoB"}
"""Their records are in the log, but the queues were gone when the broker stopped."""
DELAY_TOPIC = "SCHEDULE_TOPIC_XXXX"
DELAYS_MS: list[int] = [*range(1000, 11_000, 1000), 1_200_000, 1_800_000, 3_600_000, 7_200_000]
EVER = 2**63 - 1


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("apache")
    return unpack_clean_store(folder, "commitlog", "consumequeue", "index", "checkpoint")


@pytest.fixture(scope="module")
def records(store: Path) -> list[Record]:
    (log,) = (store / "commitlog").iterdir()
    return list(RecordWalk(log.read_bytes()))


def queue_code(record: Record, properties: dict[str, str]) -> int:
    """What the queue says about tags, which in the topic of delayed messages is when to deliver them."""
    level = int(properties.get(DELAY, "0"))
    if record.topic == DELAY_TOPIC and level > 0:
        return record.store_timestamp_ms + DELAYS_MS[min(level, len(DELAYS_MS)) - 1]
    return tags_code(properties.get(TAGS, ""))


def queued(records: list[Record]) -> Iterator[Record]:
    for record in records:
        is_to_be_read = transaction_type(record.sys_flag) in (TransactionType.NONE, TransactionType.COMMIT)
        if is_to_be_read and record.topic not in DELETED_TOPICS:
            yield record


def fill_queues(queues: ConsumeQueues, records: list[Record]) -> None:
    for record in queued(records):
        code = queue_code(record, record.properties())
        queue = queues.get(record.topic, record.queue_id)
        queue.append(record.physical_offset, record.total_size, code, record.queue_offset)


def fill_index(index: Index, records: list[Record]) -> None:
    for record in records:
        properties = record.properties()
        index.put(
            record.topic,
            properties.get(UNIQ_KEY, "").encode(),
            properties.get(KEYS, "").encode(),
            record.physical_offset,
            record.store_timestamp_ms,
        )


def files_below(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_queues_are_made_again_byte_for_byte(store: Path, records: list[Record], tmp_path: Path) -> None:
    """B4"""
    queues = ConsumeQueues(SystemDisk(), tmp_path / "consumequeue", QUEUE_FILE_SIZE)
    fill_queues(queues, records)
    queues.close()

    apache = files_below(store / "consumequeue")
    assert len(apache) == QUEUES
    assert files_below(tmp_path / "consumequeue") == apache


def test_dispatching_the_whole_log_again_changes_nothing(
    store: Path, records: list[Record], tmp_path: Path
) -> None:
    """B5"""
    queues = ConsumeQueues(SystemDisk(), tmp_path / "consumequeue", QUEUE_FILE_SIZE)
    index = Index(SystemDisk(), VirtualClock(), tmp_path / "index", SLOTS, ENTRIES)
    for _ in range(2):
        fill_queues(queues, records)
        fill_index(index, records)
    index.write()

    assert files_below(tmp_path / "consumequeue") == files_below(store / "consumequeue")
    (made,) = files_below(tmp_path / "index").values()
    (apache,) = files_below(store / "index").values()
    assert made == apache


def test_queues_of_apache_are_read_and_go_on_where_they_ended(store: Path, records: list[Record]) -> None:
    """B4"""
    queues = ConsumeQueues(SystemDisk(), store / "consumequeue", QUEUE_FILE_SIZE)
    queues.load()

    assert len(queues) == QUEUES
    assert queues.max_physical_offset == max(
        record.physical_offset + record.total_size for record in queued(records)
    )
    ends = {(queue.topic, queue.queue_id): queue.next_offset for queue in queues}
    for record in queued(records):
        queue = queues.get(record.topic, record.queue_id)
        unit = queue.unit(record.queue_offset)
        assert unit is not None
        assert unit[:2] == (record.physical_offset, record.total_size)
        assert unit[2] == queue_code(record, record.properties())
    assert ends == {
        (record.topic, record.queue_id): record.queue_offset + 1
        for record in sorted(queued(records), key=lambda record: record.queue_offset)
    }
    queues.close()


def test_times_are_found_in_queues_of_apache(store: Path, records: list[Record]) -> None:
    """B9"""
    queues = ConsumeQueues(SystemDisk(), store / "consumequeue", QUEUE_FILE_SIZE)
    queues.load()
    times = {record.physical_offset: record.store_timestamp_ms for record in records}
    of_queue = [record for record in queued(records) if (record.topic, record.queue_id) == ("VecNormal", 0)]

    assert len(of_queue) > 2
    for record in of_queue:
        moment = record.store_timestamp_ms
        same = [other.queue_offset for other in of_queue if other.store_timestamp_ms == moment]
        queue = queues.get("VecNormal", 0)
        assert queue.offset_by_time(moment, lambda at, _: times[at]) == min(same)
        assert queue.offset_by_time(moment, lambda at, _: times[at], Boundary.UPPER) == max(same)
    queues.close()


def test_the_index_is_made_again_byte_for_byte(store: Path, records: list[Record], tmp_path: Path) -> None:
    """B10: header, slots and chains."""
    ((name, apache),) = files_below(store / "index").items()
    created = datetime.strptime(name.name, "%Y%m%d%H%M%S%f")
    clock = VirtualClock(round(created.timestamp() * 1000))
    index = Index(SystemDisk(), clock, tmp_path / "index", SLOTS, ENTRIES)
    fill_index(index, records)
    index.close()

    assert files_below(tmp_path / "index") == {name: apache}


def test_every_key_is_found_in_the_index_of_apache(store: Path, records: list[Record]) -> None:
    """B10"""
    index = Index(SystemDisk(), VirtualClock(), store / "index", SLOTS, ENTRIES)
    index.load(stopped_cleanly=True, safe_until_ms=0)

    keyed = 0
    for record in records:
        properties = record.properties()
        for key in filter(None, [properties.get(UNIQ_KEY), *properties.get(KEYS, "").split(" ")]):
            matches = index.find(record.topic, key, ENTRIES, 0, EVER)
            assert record.physical_offset in matches.physical_offsets
            keyed += 1
    assert keyed == 228
    assert index.end_offset == 0xC36C
    assert index.find("VecNormal", "no such key", 64, 0, EVER).physical_offsets == []
    index.close()


def test_the_checkpoint_of_apache_is_read(store: Path, records: list[Record]) -> None:
    """B5: all of the log and the queues was on the disk, and no index file was full."""
    checkpoint = Checkpoint(SystemDisk(), store / "checkpoint")
    last = records[-1].store_timestamp_ms

    assert checkpoint.physic_msg_timestamp == last
    assert checkpoint.logics_msg_timestamp == last
    assert checkpoint.index_msg_timestamp == 0
    assert checkpoint.master_flushed_offset == 0
    assert checkpoint.confirm_phy_offset == 0
    assert checkpoint.min_timestamp == last - 3000
    checkpoint.close()


def test_the_checkpoint_is_written_again_byte_for_byte(store: Path, tmp_path: Path) -> None:
    """B5"""
    apache = Checkpoint(SystemDisk(), store / "checkpoint")
    checkpoint = Checkpoint(SystemDisk(), tmp_path / "checkpoint")
    checkpoint.physic_msg_timestamp = apache.physic_msg_timestamp
    checkpoint.logics_msg_timestamp = apache.logics_msg_timestamp
    checkpoint.sync()

    assert (tmp_path / "checkpoint").read_bytes() == (store / "checkpoint").read_bytes()
    apache.close()
    checkpoint.close()


def test_queues_that_a_kill_left_behind_the_log_are_completed_from_it(tmp_path: Path) -> None:
    """B5: Apache was killed 300 messages after an orderly start."""
    with tarfile.open(DATA / "store-crashed.tar.gz") as archive:
        wanted = ("store/commitlog", "store/consumequeue/", "store/checkpoint")
        members = [member for member in archive.getmembers() if member.name.startswith(wanted)]
        archive.extractall(tmp_path, members, filter="data")
    store = tmp_path / "store"
    (log,) = (store / "commitlog").iterdir()
    records = list(RecordWalk(log.read_bytes()))
    queues = ConsumeQueues(SystemDisk(), store / "consumequeue", QUEUE_FILE_SIZE)
    queues.load()
    fill_queues(queues, records)

    for record in queued(records):
        unit = queues.get(record.topic, record.queue_id).unit(record.queue_offset)
        assert unit is not None
        assert unit[:2] == (record.physical_offset, record.total_size)
    assert sum(queue.max_offset for queue in queues) == len(list(queued(records)))
    assert len(records) > 300
    queues.close()


def test_a_store_that_is_only_read_is_left_as_it_is(tmp_path: Path, store: Path) -> None:
    """D3: even where a start would cut and erase."""
    (queue_file,) = (store / "consumequeue" / "VecNormal" / "0").iterdir()
    folder = tmp_path / "consumequeue" / "VecNormal" / "0"
    folder.mkdir(parents=True)
    copied = bytearray(queue_file.read_bytes())
    copied[40:60] = bytes(20)
    (folder / queue_file.name).write_bytes(copied)
    queues = ConsumeQueues(SystemDisk(), tmp_path / "consumequeue", QUEUE_FILE_SIZE, writable=False)
    queues.load()
    queues.truncate(0)
    queues.close()
    index = Index(SystemDisk(), VirtualClock(), store / "index", SLOTS, ENTRIES, writable=False)
    index.load(stopped_cleanly=False, safe_until_ms=0)

    assert (folder / queue_file.name).read_bytes() == copied
    assert len(files_below(store / "index")) == 1
    index.close()
