"""The machine stops at every point of a run, in every way: what is found then is a log."""

from __future__ import annotations

from cometmq.store.log.commit_log import CommitLog
from cometmq.store.status import PutStatus
from cometmq.testing.simulation.disk import CrashMode, SimulatedDisk, crashes
from cometmq.wire.record.batch import BatchItem
from cometmq.wire.record.codec import Record
from tests.unit.store.log_kit import a_log, batch_of, config, message

Unit = tuple[bytes, ...]

RUN: list[Unit] = [
    (b"first",),
    (b"", b"batch with an empty body", b"b" * 200),
    (b"c" * 1800,),
    (b"",),
    (b"d" * 1500,),
    (b"e" * 900, b"f" * 900, b"g" * 900),
    (b"h" * 3000,),
    (b"last",),
]
SYNCED_AFTER = {1, 4, 6}


class Writer:
    """Appends the run and remembers what was promised."""

    def __init__(self, *, sealed: bool) -> None:
        self._settings = config(enabled_append_prop_crc=sealed)
        self.begun: list[Unit] = []
        self.appended: list[Unit] = []
        self.synced: list[Unit] = []

    def __call__(self, disk: SimulatedDisk) -> None:
        self.begun, self.appended, self.synced = [], [], []
        log = a_log(disk, settings=self._settings)
        for number, unit in enumerate(RUN):
            self.begun.append(unit)
            assert self._append(log, unit) is PutStatus.PUT_OK
            self.appended.append(unit)
            if number in SYNCED_AFTER:
                log.sync()
                self.synced = list(self.appended)

    def _append(self, log: CommitLog, unit: Unit) -> PutStatus:
        if len(unit) == 1:
            return log.append(message(unit[0], properties_block=b"KEYS\x01k\x02"))
        items = [BatchItem(body, b"KEYS\x01k\x02") for body in unit]
        return log.append_batch(batch_of(items))


def recovered(disk: SimulatedDisk, *, sealed: bool) -> list[Record]:
    """What a start after the crash finds; the log then takes messages again."""
    log = a_log(disk, settings=config(enabled_append_prop_crc=sealed))
    walk = log.walk(0, check_crc=True, verify_record_crc=sealed)
    found = list(walk)
    for record in found:
        record.body = bytes(record.body)
        record.properties_block = bytes(record.properties_block)
    log.truncate(walk.position)
    log.clear_after_end()
    assert log.append(message(b"after the crash")) is PutStatus.PUT_OK
    again = log.walk(0, log.max_offset, check_crc=True, verify_record_crc=sealed)
    assert [bytes(record.body) for record in again] == [*(r.body for r in found), b"after the crash"]
    return found


def bodies_of(units: list[Unit]) -> list[bytes]:
    return [body for unit in units for body in unit]


def test_a_killed_process_leaves_whole_messages_and_whole_batches() -> None:
    """B4: everything that was appended is there, and of what was being appended all or nothing."""
    writer = Writer(sealed=False)
    seen = set()
    for _, mode, after in crashes(
        writer, lambda stop: SimulatedDisk(stop_at=stop), (CrashMode.KEEP, CrashMode.CUT)
    ):
        found = recovered(after, sealed=False)

        assert [record.body for record in found] in (bodies_of(writer.appended), bodies_of(writer.begun)), (
            mode
        )
        assert {bytes(record.properties_block) for record in found} <= {b"KEYS\x01k\x02"}
        seen.add(len(found))
    assert seen == {len(bodies_of(RUN[:count])) for count in range(len(RUN) + 1)}


def test_a_power_failure_takes_nothing_that_was_synced() -> None:
    """B5"""
    writer = Writer(sealed=False)
    for disk, mode, after in crashes(writer, lambda stop: SimulatedDisk(seed=stop or 0, stop_at=stop)):
        found = [record.body for record in recovered(after, sealed=False)]

        synced = bodies_of(writer.synced)
        assert found[: len(synced)] == synced, (mode, disk.last_point)
        assert found == bodies_of(writer.begun)[: len(found)], (mode, disk.last_point)


def test_with_checksums_of_records_no_torn_one_is_ever_read() -> None:
    """B5: without them, the properties of a message that was not synced can be torn by a power failure."""
    writer = Writer(sealed=True)
    for seed in range(3):
        for disk, mode, after in crashes(
            writer,
            lambda stop, seed=seed: SimulatedDisk(seed=seed, stop_at=stop),  # type: ignore[misc]
            (CrashMode.TORN, CrashMode.REORDER),
        ):
            for record in recovered(after, sealed=True):
                block = bytes(record.properties_block)
                assert block.startswith(b"KEYS\x01k\x02__CRC32#\x01"), (mode, disk.last_point)
