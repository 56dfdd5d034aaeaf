"""What Apache RocketMQ 5.3.3 wrote to its commit logs, appended again: the files have to be the same.

`store-clean.tar.gz` is the store of a broker. The three `commitlog-rolled` were written by Apache's message
store alone, into files of 4 KiB: messages of two versions, with both kinds of born hosts and with properties
that end in a separator or do not, and batches with and without properties of their own. One has record
checksums, one a store host that is IPv6.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from cometmq.store.log.batch import MessageBatch
from cometmq.store.log.commit_log import CommitLog
from cometmq.store.status import PutStatus
from cometmq.testing.clock import VirtualClock
from cometmq.testing.simulation.disk import SimulatedDisk
from cometmq.wire.record.batch import BatchItem, encode_batch
from cometmq.wire.record.codec import Record
from cometmq.wire.record.crc import CRC_PROPERTY_LENGTH
from cometmq.wire.record.properties import find_property
from cometmq.wire.record.walk import RecordWalk, WalkEnd
from tests.unit.store.log_kit import FILE_SIZE, a_log, config, fold_of
from tests.unit.store.store_vectors import unpack_clean_store

DATA = Path(__file__).parents[3] / "data" / "store"
CLEAN_FILE_SIZE = 1024 * 1024


def records_in(log: bytes, file_size: int) -> Iterator[Record]:
    for start in range(0, len(log), file_size):
        yield from RecordWalk(log, start, start + file_size)


def unit_of(record: Record) -> str | int:
    """What the records of one batch have in common, and nothing else has."""
    return find_property(record.properties_block, "batch") or record.physical_offset


def as_batch(records: list[Record], crc_length: int) -> MessageBatch:
    """The batch that these records were made of."""
    blocks = [
        bytes(record.properties_block)[: len(record.properties_block) - crc_length] for record in records
    ]
    own = b"UNIQ_KEY\x01batch"
    split = [block.find(own) if own in block else len(block) for block in blocks]
    items = [
        BatchItem(record.body, block[:end], record.flag)
        for record, block, end in zip(records, blocks, split, strict=True)
    ]
    records[0].properties_block = blocks[0][split[0] :]
    return MessageBatch(records[0], items, len(encode_batch(items)))


def append_again(log: CommitLog, clock: VirtualClock, apache: bytes, crc_length: int = 0) -> None:
    """Append what is in Apache's log, each message with the time it has there."""
    for _, unit in groupby(records_in(apache, log.files.file_size), unit_of):
        records = list(unit)
        offset, first = records[0].physical_offset, records[0]
        clock.set_wall_clock(first.store_timestamp_ms)
        first.store_timestamp_ms = first.physical_offset = 0
        if len(records) > 1:
            assert log.append_batch(as_batch(records, crc_length)) is PutStatus.PUT_OK
        else:
            block = bytes(first.properties_block)
            # Whether Apache got the last separator or put it there itself, it is there before a checksum.
            first.properties_block = block[:-crc_length].removesuffix(b"\x02") if crc_length else block
            assert log.append(first) is PutStatus.PUT_OK
        assert first.physical_offset == offset


def test_the_log_of_an_apache_broker_is_written_again_byte_for_byte(tmp_path: Path) -> None:
    """B4"""
    apache = (unpack_clean_store(tmp_path, "commitlog") / "commitlog" / f"{0:020}").read_bytes()
    clock = VirtualClock()
    first = next(records_in(apache, CLEAN_FILE_SIZE))
    log = a_log(
        SimulatedDisk(clock=clock),
        clock=clock,
        store_host=first.store_host,
        settings=config(mapped_file_size_commit_log=CLEAN_FILE_SIZE),
    )

    append_again(log, clock, apache)

    assert fold_of(log) == apache
    assert log.max_offset == len(apache.rstrip(b"\0"))


@pytest.mark.parametrize(
    ("name", "sealed"), [("plain", False), ("sealed", True), ("ipv6", False)], ids=["plain", "sealed", "ipv6"]
)
def test_a_log_that_rolls_over_is_written_again_byte_for_byte(name: str, sealed: bool) -> None:
    """B4: fillers, batches that go to the next file as a whole, both versions, both kinds of hosts."""
    apache = gzip.decompress((DATA / f"commitlog-rolled-{name}.gz").read_bytes())
    clock = VirtualClock()
    first = next(records_in(apache, FILE_SIZE))
    log = a_log(
        SimulatedDisk(clock=clock),
        clock=clock,
        store_host=first.store_host,
        settings=config(enabled_append_prop_crc=sealed),
    )

    append_again(log, clock, apache, CRC_PROPERTY_LENGTH if sealed else 0)

    assert len(log.files.files) == 9
    assert fold_of(log) == apache


@pytest.mark.parametrize("name", ["plain", "sealed", "ipv6"])
def test_a_log_of_apache_is_walked_from_file_to_file(name: str, tmp_path: Path) -> None:
    """B5"""
    apache = gzip.decompress((DATA / f"commitlog-rolled-{name}.gz").read_bytes())
    folder = tmp_path / "commitlog"
    folder.mkdir()
    for start in range(0, len(apache), FILE_SIZE):
        (folder / f"{start:020}").write_bytes(apache[start : start + FILE_SIZE])
    disk = SimulatedDisk()
    disk.load_from(folder, Path("/store/commitlog"))
    log = a_log(disk)

    walk = log.walk(0, check_crc=True, verify_record_crc=name == "sealed")
    records = list(walk)

    assert records == list(records_in(apache, FILE_SIZE))
    assert len(records) == 44
    last = records[-1]
    assert (walk.end, walk.position) == (WalkEnd.MALFORMED, last.physical_offset + last.total_size)
