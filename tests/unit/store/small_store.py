"""A small store, for the tests of what reads whole stores: small files, several of each kind."""

from __future__ import annotations

from pathlib import Path

from cometmq.ports.disk import SystemDisk
from cometmq.store.checkpoint import Checkpoint
from cometmq.store.config import StoreConfig
from cometmq.store.dispatch_rules import DelayLevels, index_keys, unit_code
from cometmq.store.index.index import Index
from cometmq.store.log.commit_log import CommitLog
from cometmq.store.queue.consume_queues import ConsumeQueues
from cometmq.store.read.reader import MessageReader
from cometmq.store.status import PutStatus
from cometmq.testing.clock import VirtualClock
from cometmq.wire.record.codec import Record
from cometmq.wire.record.properties import encode_properties
from tests.unit.store.log_kit import START_MS, a_log, config, message

LOG_FILE_SIZE = 4096
UNITS_PER_FILE = 10
SLOTS, ENTRIES = 20, 30
PLENTY_OF_MEMORY = 1 << 40


class SmallStore:
    """Log, queues and index, written to directly."""

    def __init__(self, root: Path, **settings: object) -> None:
        self.root = root
        self.disk = SystemDisk()
        self.clock = VirtualClock(START_MS)
        self.config: StoreConfig = config(
            root,
            **{
                "mapped_file_size_commit_log": LOG_FILE_SIZE,
                "mapped_file_size_consume_queue": UNITS_PER_FILE * 20,
                "max_hash_slot_num": SLOTS,
                "max_index_num": ENTRIES,
            }
            | settings,
        )
        self.log: CommitLog = a_log(self.disk, clock=self.clock, settings=self.config)
        self.queues = ConsumeQueues(self.disk, root / "consumequeue", self.config.consume_queue_file_size)
        self.index = Index(self.disk, self.clock, root / "index", SLOTS, ENTRIES)

    def put(
        self, topic: str = "orders", queue_id: int = 0, body: bytes = b"hello", **properties: str
    ) -> Record:
        """Store a message and dispatch it; a millisecond later than the one before."""
        self.clock.advance(1)
        queue = self.queues.get(topic, queue_id)
        block = encode_properties(properties)
        record = message(
            body, topic=topic, queue_id=queue_id, queue_offset=queue.max_offset, properties_block=block
        )
        assert self.log.append(record) is PutStatus.PUT_OK
        code = unit_code(record, DelayLevels(self.config.message_delay_level))
        queue.append(record.physical_offset, record.total_size, code, record.queue_offset)
        unique_key, keys = index_keys(record)
        if unique_key or keys:
            self.index.put(topic, unique_key, keys, record.physical_offset, record.store_timestamp_ms)
        return record

    def fill(self, count: int) -> None:
        """Messages of two topics and five queues, with tags and keys."""
        for number in range(count):
            body = bytes((number + place) % 251 for place in range(40 + number % 50))
            self.put(
                "orders",
                number % 3,
                body,
                TAGS=f"Tag{number % 4}",
                KEYS=f"k{number} all",
                UNIQ_KEY=f"U{number}",
            )
            if number % 2:
                self.put("payments", number % 2, body, KEYS=f"p{number}")

    def reader(self, memory_bytes: int = PLENTY_OF_MEMORY, *, check_crc: bool = False) -> MessageReader:
        return MessageReader(self.log, self.queues.find, self.config, memory_bytes, check_crc=check_crc)

    def close(self) -> None:
        """Leave everything as an orderly stop does."""
        checkpoint = Checkpoint(self.disk, self.root / "checkpoint")
        checkpoint.physic_msg_timestamp = checkpoint.logics_msg_timestamp = self.log.store_timestamp_ms
        checkpoint.sync()
        checkpoint.close()
        self.log.close()
        self.queues.close()
        self.index.close()


def a_closed_store(root: Path, count: int = 60, **settings: object) -> Path:
    """The root of a store with so many messages, as an orderly stop leaves it."""
    store = SmallStore(root, **settings)
    store.fill(count)
    store.close()
    return root
