"""Delay levels: messages wait in the queue of their level, and are delivered when they are due (B5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from cometmq.broker.monitor.counters import Traffic
from cometmq.broker.real_targets import RealTargets
from cometmq.broker.saved_tables import TableFiles
from cometmq.broker.set_aside import DELAYS, SetAside
from cometmq.broker.settings import Settings
from cometmq.broker.timers.delay_levels import DelayService, put_aside, read_level
from cometmq.broker.topics.topics import Topics
from cometmq.model.topic import TopicConfig
from cometmq.store.config import StoreConfig
from cometmq.store.message_store import MessageStore
from cometmq.store.tables.files import CONFIG_FOLDER
from cometmq.testing.clock import VirtualClock
from cometmq.testing.simulation.disk import SimulatedDisk
from cometmq.wire.record.codec import Record, decode_record
from tests.unit.store.log_kit import BORN_HOST, START_MS, STORE_HOST, InPlace
from tests.waiting import eventually

CONFIG = StoreConfig(
    store_path_root_dir="/store",
    mapped_file_size_commit_log=64 * 1024,
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=100,
    max_index_num=400,
    message_delay_level="1s 5s",
)


class Delays:
    """A delay service on a store of its own."""

    def __init__(self) -> None:
        self.clock, disk, worker = VirtualClock(START_MS), SimulatedDisk(), InPlace()
        settings = Settings(store=CONFIG)
        self.store = MessageStore(disk, self.clock, CONFIG, STORE_HOST, workers=lambda _: InPlace())
        self.topics = Topics(settings, self.clock)
        self.topics.update(TopicConfig("Orders", 1, 1))
        files = TableFiles(disk, CONFIG.root / CONFIG_FOLDER, worker)
        self.traffic, self.set_aside = Traffic(), SetAside(self.clock, files, self.store)
        targets = RealTargets(settings, self.store, self.topics)
        self.service = DelayService(
            settings, self.clock, files, self.store, self.traffic, targets, self.set_aside
        )

    def put(self, body: bytes, level: int, topic: str = "Orders") -> None:
        properties = {"DELAY": str(level), "UNIQ_KEY": body.decode()}
        record = Record(topic, body, born_host=BORN_HOST)
        put_aside(record, properties, read_level(properties), self.service.levels)
        self.store.put(record)
        self.service.stored(record)

    @property
    def delivered(self) -> list[bytes]:
        records = self.store.reader.get("Orders", 0, 0, 32).records
        return [bytes(decode_record(bytes(view)).body) for view in records]


@pytest.fixture
async def delays() -> AsyncIterator[Delays]:
    made = Delays()
    await made.store.start()
    made.service.start()
    yield made
    await made.service.stop()
    await made.set_aside.stop()
    await made.store.stop()


async def test_a_message_is_delivered_when_its_level_is_over(delays: Delays) -> None:
    delays.put(b"first", 1)
    delays.put(b"later", 2)
    for _ in range(20):  # turns in which the service looks at its levels
        await asyncio.sleep(0)
    assert delays.delivered == []
    delays.clock.advance(1000)
    await eventually(lambda: delays.delivered == [b"first"])
    delays.clock.advance(4000)
    await eventually(lambda: delays.delivered == [b"first", b"later"])
    assert delays.service.offsets == {1: 1, 2: 1}
    assert delays.traffic.delayed_messages == 2


async def test_a_message_without_a_target_is_set_aside_and_its_level_goes_on(delays: Delays) -> None:
    delays.put(b"nowhere", 1, topic="TRANS_CHECK_MAX_TIME_TOPIC")
    delays.put(b"next", 1)
    delays.clock.advance(1000)
    await eventually(lambda: delays.delivered == [b"next"])
    assert delays.set_aside.totals == {DELAYS: 1}


async def test_offsets_are_saved_when_the_delivered_messages_are_on_the_disk(delays: Delays) -> None:
    delays.put(b"first", 1)
    delays.clock.advance(1000)
    await eventually(lambda: delays.delivered == [b"first"])
    assert delays.service.snapshot().offset_table.get(1, 0) == 0
    await delays.service.save()
    assert delays.service.snapshot().offset_table == {1: 1}
