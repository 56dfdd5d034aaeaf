"""The commit log goes on from file to file, or says why it cannot."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.model.errors import StoreError
from cometmq.store.log.commit_log import CommitLog
from cometmq.store.status import PutStatus
from cometmq.testing.simulation.disk import Rules, SimulatedDisk
from cometmq.wire.record.batch import BatchItem
from cometmq.wire.record.codec import encode_record
from cometmq.wire.record.layout import MAGIC_FILLER, peek_head
from cometmq.wire.record.walk import WalkEnd
from tests.unit.store.log_kit import (
    FILE_SIZE,
    ROOT,
    a_log,
    batch_of,
    config,
    message,
    message_of,
)


def bodies(log: CommitLog) -> list[bytes]:
    return [bytes(record.body) for record in log.walk(log.min_offset, check_crc=True)]


def test_a_record_that_no_file_can_hold_is_refused() -> None:
    log = a_log(SimulatedDisk())

    assert log.append(message_of(FILE_SIZE - 7)) is PutStatus.MESSAGE_ILLEGAL
    assert log.append(message_of(FILE_SIZE - 8)) is PutStatus.PUT_OK
    assert log.append_batch(batch_of(BatchItem(bytes(1000)) for _ in range(4))) is PutStatus.MESSAGE_ILLEGAL
    assert log.max_offset == FILE_SIZE - 8


def test_a_record_that_leaves_exactly_a_filler_fits_and_one_byte_more_does_not() -> None:
    """B4"""
    fits, too_big = a_log(SimulatedDisk()), a_log(SimulatedDisk())
    for log in (fits, too_big):
        log.append(message_of(1000))
    last, next_one = message_of(FILE_SIZE - 1000 - 8), message_of(FILE_SIZE - 1000 - 7)

    assert fits.append(last) is too_big.append(next_one) is PutStatus.PUT_OK
    assert (last.physical_offset, next_one.physical_offset) == (1000, FILE_SIZE)
    assert peek_head(too_big.files.files[0].view, 1000) == (FILE_SIZE - 1000, MAGIC_FILLER)
    assert too_big.files.files[0].buffer[1008:] == bytes(FILE_SIZE - 1008)

    fits.append(message())
    assert peek_head(fits.files.files[0].view, FILE_SIZE - 8) == (8, MAGIC_FILLER)


def test_the_next_file_is_made_when_the_current_one_is_half_full() -> None:
    """B4"""
    disk = SimulatedDisk()
    log = a_log(disk)

    def names() -> list[str]:
        return [entry.name for entry in disk.entries(ROOT / "commitlog")]

    log.append(message_of(2048))
    assert names() == [f"{0:020}"]
    log.append(message_of(100))
    assert names() == [f"{0:020}", f"{FILE_SIZE:020}"]
    assert len(log.files.files) == 1
    log.close()
    assert names() == [f"{0:020}"]


def test_without_a_next_file_the_current_one_stays_usable() -> None:
    """B4"""
    disk = SimulatedDisk(rules=Rules(capacity=FILE_SIZE * 3 // 2))
    log = a_log(disk)
    log.append(message_of(3000))

    assert log.append(message_of(2000)) is PutStatus.CREATE_MAPPED_FILE_FAILED
    assert log.append_batch(batch_of([BatchItem(bytes(2000))])) is PutStatus.CREATE_MAPPED_FILE_FAILED
    assert "No space left" in str(log.allocation_failure)
    assert log.append(message_of(1000)) is PutStatus.PUT_OK
    assert log.max_offset == 4000


def test_no_first_file_is_an_error_of_the_start_and_of_every_append() -> None:
    disk = SimulatedDisk()
    disk.fail("create", number=errno.EROFS)
    log = a_log(disk)

    with pytest.raises(StoreError, match="Read-only"):
        log.prepare_to_append()
    assert log.append(message()) is PutStatus.CREATE_MAPPED_FILE_FAILED
    disk.heal()
    assert log.append(message()) is PutStatus.PUT_OK


def test_a_loaded_file_with_holes_is_appended_to_only_if_the_disk_has_room(tmp_path: Path) -> None:
    """B4"""
    (tmp_path / f"{0:020}").write_bytes(encode_record(message()).ljust(FILE_SIZE * 4, b"\0"))
    settings = config(mapped_file_size_commit_log=FILE_SIZE * 4)
    full = SimulatedDisk(rules=Rules(capacity=FILE_SIZE * 2))
    full.load_from(tmp_path, ROOT / "commitlog")
    log = a_log(full, settings=settings)
    log.truncate(len(encode_record(message())))

    assert log.append(message()) is PutStatus.CREATE_MAPPED_FILE_FAILED
    with pytest.raises(OSError, match="No space left"):
        log.prepare_to_append()


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.one_of(st.integers(1, 2500), st.lists(st.integers(1, 400), min_size=1, max_size=6)), max_size=12
    )
)
def test_whatever_is_appended_is_found_again_in_order(sizes: list[int | list[int]]) -> None:
    """B4"""
    log = a_log(SimulatedDisk())
    expected = []
    for number, size in enumerate(sizes):
        if isinstance(size, int):
            body = bytes([number]) * size
            assert log.append(message(body)) is PutStatus.PUT_OK
            expected.append(body)
        else:
            parts = [bytes([number]) * part for part in size]
            assert log.append_batch(batch_of(map(BatchItem, parts))) is PutStatus.PUT_OK
            expected += parts

    walk = log.walk(0, check_crc=True)
    found = list(walk)

    assert [bytes(record.body) for record in found] == expected
    assert (walk.end, walk.position) == (WalkEnd.LIMIT, log.max_offset)
    for record in found:
        end = record.physical_offset % FILE_SIZE + record.total_size
        assert end <= FILE_SIZE - 8


def test_the_data_of_another_broker_is_taken_as_it_is() -> None:
    """B11"""
    master, slave = a_log(SimulatedDisk()), a_log(SimulatedDisk())
    for number in range(40):
        master.append(message(bytes([number]) * 150))
    for mapped in master.files.files:
        for start in range(0, mapped.wrote, 1000):
            assert slave.append_data(mapped.view[start : min(start + 1000, mapped.wrote)]) is PutStatus.PUT_OK

    assert slave.max_offset == master.max_offset
    assert bodies(slave) == bodies(master)
    with pytest.raises(StoreError, match="reach beyond"):
        slave.append_data(bytes(FILE_SIZE))
