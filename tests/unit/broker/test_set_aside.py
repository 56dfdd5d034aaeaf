"""Records that cannot be processed: which are noted, how many, and what is told of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

from cometmq.broker import set_aside
from cometmq.broker.saved_tables import TableFiles
from cometmq.broker.set_aside import (
    DELAYS,
    LINES,
    MOST,
    POPS,
    TIMERS,
    BackOff,
    SetAside,
    UnprocessableError,
    check_put,
    is_passing,
)
from cometmq.model.errors import MessageError, ProtocolError, StoreError
from cometmq.store.message_store import MessageStore
from cometmq.store.status import PutStatus
from cometmq.testing.clock import VirtualClock
from cometmq.testing.simulation.disk import SimulatedDisk
from cometmq.wire.record.codec import Record
from tests.waiting import eventually

FILE = Path("/store/config/setAsideRecords.json")
NO_TARGET = UnprocessableError("it belongs nowhere")


class Kit:
    """What the service needs of a broker, and its service."""

    def __init__(self, disk: SimulatedDisk | None = None) -> None:
        self.disk = disk or SimulatedDisk()
        self.worker = ThreadPoolExecutor(1)
        self.service = self._made()

    def _made(self) -> SetAside:
        files = TableFiles(self.disk, FILE.parent, self.worker)
        return SetAside(VirtualClock(), files, cast(MessageStore, None))

    def again(self) -> SetAside:
        """A service that starts on what the other one has saved."""
        service = self._made()
        service.load()
        return service


@pytest.fixture
def kit() -> Iterator[Kit]:
    made = Kit()
    yield made
    made.worker.shutdown()


def record(offset: int, topic: str = "rmq_sys_wheel_timer") -> Record:
    return Record(topic, b"", queue_offset=offset, physical_offset=offset * 100, store_timestamp_ms=5)


async def test_a_record_is_noted_with_its_place_and_the_reason(kit: Kit) -> None:
    kit.service.add_record(TIMERS, record(3), NO_TARGET)
    (noted,) = kit.service.records
    assert (noted.service, noted.topic, noted.queue_id) == (TIMERS, "rmq_sys_wheel_timer", 0)
    assert (noted.queue_offset, noted.commit_log_offset, noted.store_timestamp) == (3, 300, 5)
    assert noted.reason == "it belongs nowhere"
    await kit.service.stop()


async def test_a_record_is_noted_once_for_a_service_also_after_a_restart(kit: Kit) -> None:
    for _ in range(3):
        kit.service.add_record(TIMERS, record(3), NO_TARGET)
    kit.service.add_record(POPS, record(3), NO_TARGET)
    await kit.service.stop()
    service = kit.again()
    service.add_record(TIMERS, record(3), NO_TARGET)
    assert service.totals == {TIMERS: 1, POPS: 1}
    assert service.records == kit.service.records


async def test_the_oldest_fall_out_and_the_numbers_go_on(kit: Kit) -> None:
    for offset in range(MOST + 5):
        kit.service.add_record(DELAYS, record(offset), NO_TARGET)
    assert kit.service.totals == {DELAYS: MOST + 5}
    assert len(kit.service.records) == MOST
    assert kit.service.records[0].queue_offset == 5
    await kit.service.stop()
    assert kit.again().records == kit.service.records


async def test_a_flood_has_few_lines_in_the_log_and_one_save(
    kit: Kit, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(set_aside, "SPAN_S", 0.05)
    monkeypatch.setattr(set_aside, "SAVE_S", 0.05)
    with caplog.at_level(logging.ERROR, "cometmq.broker"):
        for offset in range(5000):
            kit.service.add_record(TIMERS, record(offset), NO_TARGET)
        kit.service.add_record(POPS, record(1), NO_TARGET)
        await eventually(lambda: "more records" in caplog.text and kit.disk.read(FILE) is not None)
    lines = [each.message for each in caplog.records]
    assert sum(line.startswith(f"{TIMERS} set a record aside") for line in lines) == LINES
    assert sum(line.startswith(f"{POPS} set a record aside") for line in lines) == 1
    assert lines[-1] == f"{TIMERS} set {5000 - LINES} more records aside; see: cometmq store set-aside DIR"
    await kit.service.stop()


async def test_a_reason_is_one_short_line_whatever_a_peer_wrote(kit: Kit) -> None:
    kit.service.add_record(TIMERS, record(1), ValueError("\x1b[31m\n" + "9" * 5000))
    (noted,) = kit.service.records
    assert len(noted.reason) <= set_aside.MAX_REASON
    assert noted.reason.isprintable()
    await kit.service.stop()


@pytest.mark.parametrize("content", [b"{{{", b"\x00" * 100, b'{"records":[1]}', b'{"totals":{"x":"y"}}'])
async def test_a_file_that_cannot_be_read_is_begun_anew(kit: Kit, content: bytes) -> None:
    kit.disk.replace(FILE, content)
    service = kit.again()
    assert (service.totals, service.records) == ({}, [])
    service.add_record(TIMERS, record(1), NO_TARGET)
    await service.stop()
    assert kit.again().totals == {TIMERS: 1}


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (OSError(28, "full"), True),
        (StoreError("closed"), True),
        (MemoryError(), True),
        (ValueError("no number"), False),
        (ProtocolError("no record"), False),
        (MessageError("too large"), False),
        (UnprocessableError("nowhere"), False),
        (KeyError("x"), False),
    ],
)
def test_what_is_not_in_the_record_passes(error: Exception, passes: bool) -> None:
    assert is_passing(error) is passes


def test_a_put_succeeds_fails_for_now_or_for_ever() -> None:
    assert check_put(PutStatus.PUT_OK)
    for status in (
        PutStatus.SERVICE_NOT_AVAILABLE,
        PutStatus.CREATE_MAPPED_FILE_FAILED,
        PutStatus.OS_PAGE_CACHE_BUSY,
        PutStatus.UNKNOWN_ERROR,
    ):
        assert not check_put(status)
    for status in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED):
        with pytest.raises(UnprocessableError, match=status.value):
            check_put(status)


def test_pauses_grow_up_to_a_limit_and_begin_anew_after_a_success() -> None:
    back_off = BackOff(1.0, 5.0)
    assert back_off.is_first
    assert [back_off.failed() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert not back_off.is_first
    back_off.succeeded()
    assert (back_off.is_first, back_off.failed()) == (True, 1.0)
