"""The machine stops at every point of a run of the store, in every way, and the store is found again.

By default a sample of the points is tried; `STORE_CRASH_STEP=1` tries all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from cometmq.store.config import StoreConfig
from cometmq.store.dispatch_rules import put_values
from cometmq.store.log.batch import MessageBatch
from cometmq.store.put.writer import PlainMessage, PutResult
from cometmq.store.status import PutStatus
from cometmq.testing.clock import VirtualClock
from cometmq.testing.simulation.disk import CrashMode, SimulatedCrash, SimulatedDisk
from cometmq.wire.record.batch import BatchItem
from cometmq.wire.record.walk import WalkEnd
from tests.unit.store.log_kit import BORN_HOST, START_MS
from tests.unit.store.put.record_bulk_kit import bulk, request
from tests.unit.store.store_kit import Engine, a_message, messages_in, small

STEP = int(os.environ.get("STORE_CRASH_STEP", "13"))
ALL_MODES = (CrashMode.DROP, CrashMode.TORN, CrashMode.REORDER, CrashMode.KEEP, CrashMode.CUT)
KILLS = (CrashMode.KEEP, CrashMode.CUT)
QUEUES = (("orders", 0), ("orders", 1), ("bills", 0))
ROUNDS = 18

Place = tuple[str, int]
Message = tuple[Place, bytes]


class Run:
    """Puts messages of all kinds and sizes, and remembers what was begun, put and acknowledged."""

    def __init__(self, disk: SimulatedDisk, config: StoreConfig) -> None:
        self.begun: list[Message] = []
        self.put: list[Message] = []
        self.acknowledged: list[Message] = []
        self._clock = VirtualClock(START_MS)
        self._disk = disk
        self._config = config

    def __call__(self) -> None:
        for half in range(2):
            engine = Engine(self._disk, self._config, self._clock)
            for number in range(half * ROUNDS, (half + 1) * ROUNDS):
                self._round(engine, number)
            assert engine.close()

    def _round(self, engine: Engine, number: int) -> None:
        for topic, queue_id in QUEUES:
            self._one(engine, (topic, queue_id), b"%s-%d-%d" % (topic.encode(), queue_id, number))
        place = QUEUES[number % len(QUEUES)]
        self._batch(engine, place, [b"batch-%d-%d" % (number, each) for each in range(3)])
        self._one(engine, place, b"large-%d" % number * 900)
        if number % 4 == 1:
            self._run(engine, "orders", [(each % 2, b"run-%d-%d" % (number, each)) for each in range(4)])
        if number % 4 == 2:
            self._records(engine, [b"record-%d-%d" % (number, each) for each in range(4)])
        self._clock.advance(1700)
        if number % 2:
            engine.files.index.write()
        if number % 3 != 1:
            engine.sync_log()
            self.acknowledged = list(self.put)
        if number % 4 == 2:
            engine.files.sync_derived(engine.files.dispatcher.last_store_time_ms, thorough=True)

    def _one(self, engine: Engine, place: Place, body: bytes) -> None:
        self.begun.append((place, body))
        record = a_message(body, *place, properties_block=b"TAGS\x01t\x02KEYS\x01%s\x02" % body[:20])
        self._note(engine.put(record), [(place, body)])

    def _batch(self, engine: Engine, place: Place, bodies: list[bytes]) -> None:
        messages = [(place, body) for body in bodies]
        self.begun += messages
        items = [BatchItem(body, b"KEYS\x01%s\x02" % body) for body in bodies]
        self._note(engine.put_batch(MessageBatch(a_message(b"", *place), items, 100)), messages)

    def _run(self, engine: Engine, topic: str, bodies: list[tuple[int, bytes]]) -> None:
        messages = [((topic, queue_id), body) for queue_id, body in bodies]
        self.begun += messages
        plain: list[PlainMessage] = []
        for queue_id, body in bodies:
            block = b"KEYS\x01%s\x02" % body
            head = topic, queue_id, 0, 0, START_MS, BORN_HOST, 0, 0
            plain.append((*head, body, block, *put_values(block)[:3]))
        run = engine.writer.put_group(plain)
        assert all(isinstance(place, tuple) for place in run.offsets)
        self.put += messages

    def _records(self, engine: Engine, bodies: list[bytes]) -> None:
        messages: list[Message] = [(("orders", 0), body) for body in bodies]
        self.begun += messages
        body = request([(body, b"KEYS\x01%s\x02" % body) for body in bodies])
        self._note(engine.put_batch(bulk(body, len(bodies))), messages)

    def _note(self, result: PutResult, messages: list[Message]) -> None:
        assert result.status is PutStatus.PUT_OK
        self.put += messages


def by_queue(messages: list[Message]) -> dict[Place, list[bytes]]:
    return {
        place: bodies for place in QUEUES if (bodies := [body for where, body in messages if where == place])
    }


def found_in(engine: Engine) -> dict[Place, list[bytes]]:
    """What consumers can read; `messages_in` checks that each message is whole and in its place."""
    found = messages_in(engine.files)
    for place, records in found.items():
        assert [record.queue_offset for record in records] == list(range(len(records))), place
    return {place: [bytes(record.body) for record in records] for place, records in found.items()}


def log_of(engine: Engine) -> list[Message]:
    log = engine.files.log
    walk = log.walk(0, log.max_offset, check_crc=True)
    messages = [((record.topic, record.queue_id), bytes(record.body)) for record in walk]
    assert walk.position == log.max_offset or walk.end is WalkEnd.FILLER
    return messages


def check_keys(engine: Engine, acknowledged: list[Message]) -> None:
    """Every message is found by its key.

    The checksum of a record covers its body only: a key may be torn if nobody was told that it is safe.
    """
    for place, records in messages_in(engine.files).items():
        topic = place[0]
        for record in records:
            key = record.properties().get("KEYS")
            if key is None:
                assert (place, bytes(record.body)) not in acknowledged
                continue
            found = engine.files.index.find(topic, key, 1000, 0, 2**63 - 1).physical_offsets
            assert found.count(record.physical_offset) == 1, key


def check_survivor(run: Run, mode: CrashMode, disk: SimulatedDisk, config: StoreConfig) -> None:
    """Start after the crash, look at everything, go on, stop in some way, and look again."""
    engine = Engine(disk, config, VirtualClock(START_MS + 100_000))
    in_log = log_of(engine)
    assert in_log == run.begun[: len(in_log)]
    assert len(in_log) >= len(run.put if mode in KILLS else run.acknowledged)
    assert found_in(engine) == by_queue(in_log)
    check_keys(engine, run.acknowledged)
    after = [(place, b"after-%d" % number) for number in range(4) for place in QUEUES]
    for place, body in after:
        offset = len([1 for where, _ in in_log if where == place])
        result = engine.put(a_message(body, *place, properties_block=b"KEYS\x01%s\x02" % body))
        assert (result.status, result.queue_offset) == (PutStatus.PUT_OK, offset)
        in_log.append((place, body))
    engine.sync_log()
    again = disk.crash(mode)
    if mode is CrashMode.KEEP:
        assert engine.close()
        again = disk
    engine = Engine(again, config, VirtualClock(START_MS + 200_000))
    assert log_of(engine) == in_log
    assert found_in(engine) == by_queue(in_log)
    check_keys(engine, run.acknowledged + after)
    engine.close()


def stopped_runs(config: StoreConfig, step: int) -> Iterator[tuple[Run, SimulatedDisk]]:
    complete = SimulatedDisk()
    Run(complete, config)()
    assert complete.points > 1000
    for point in range(1, complete.points + 1, step):
        disk = SimulatedDisk(point, stop_at=point)
        run = Run(disk, config)
        with suppress(SimulatedCrash):
            run()
        yield run, disk


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_nothing_acknowledged_is_lost_and_nothing_torn_is_served(flush: str) -> None:
    """B4, B5: what is left is a beginning of what was put, dense in every queue, and the store goes on."""
    config = small(flush_disk_type=flush)
    tried = 0
    for run, disk in stopped_runs(config, STEP):
        for mode in ALL_MODES:
            try:
                check_survivor(run, mode, disk.crash(mode), config)
            except BaseException as error:
                error.add_note(f"stopped at point {disk.points}, {disk.last_point}, mode {mode}")
                raise
            tried += 1
    assert tried >= len(ALL_MODES) * 1000 // STEP


@pytest.mark.timeout(3600)
def test_a_recovery_that_is_interrupted_is_done_again() -> None:
    """B5: the machine stops at points of the recovery, too."""
    config = small()
    for run, disk in stopped_runs(config, STEP * 23 + 7):
        for mode in (CrashMode.TORN, CrashMode.REORDER, CrashMode.KEEP):
            whole = disk.crash(mode)
            Engine(whole, config)
            for point in range(1, whole.points + 1, max(STEP // 3, 1)):
                crashed = disk.crash(mode)
                crashed.stop_at(point)
                with suppress(SimulatedCrash):
                    Engine(crashed, config)
                try:
                    check_survivor(run, mode, crashed.crash(mode), config)
                except BaseException as error:
                    error.add_note(
                        f"stopped at {disk.points}, {disk.last_point}, mode {mode}, then at point {point} "
                        f"of the recovery, {crashed.last_point}"
                    )
                    raise
