"""A store directory that passes between our store and Apache's broker, with the same settings on both sides.

Rules kept here:
- Both sides get the same settings. Files are small, so that a few megabytes fill several of each kind.
- Apache's broker may make neither topics nor groups by itself: it knows them from the files that we wrote.
- Our store is opened for one visit at a time, and every visit ends in an orderly stop.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from cometmq.model.message import Host, StoredMessage
from cometmq.model.subscription import SubscriptionGroupConfig
from cometmq.model.topic import DataVersion, TopicConfig
from cometmq.ports.clock import SystemClock
from cometmq.ports.disk import SystemDisk
from cometmq.store.config import StoreConfig
from cometmq.store.log.batch import MessageBatch
from cometmq.store.message_store import MessageStore
from cometmq.store.read.lookup import MessageLookup
from cometmq.store.read.reader import GetStatus, MessageReader
from cometmq.store.recovery.recovery import Recovered
from cometmq.store.status import PutStatus
from cometmq.store.tables.files import CONFIG_FOLDER, ConfigFile
from cometmq.store.tables.tables import (
    ConfigTable,
    ConsumerOffsetTable,
    SubscriptionGroupTable,
    TopicTable,
)
from cometmq.store.tools.verify import verify_store
from cometmq.wire.record.codec import Record, decode_record
from cometmq.wire.record.ids import UniqueIdGenerator, pack_host
from cometmq.wire.record.walk import to_stored_message
from tests.compat.apache import ApacheBroker
from tests.compat.cluster import MakeNamesrv
from tests.compat.store.store_messages import (
    BAZAAR,
    QUEUES,
    NextId,
    as_stored,
    batch_as_stored,
    without_checksum,
)
from tests.compat.store.store_shell import StoreShell

T = TypeVar("T")
Table = TypeVar("Table", bound=ConfigTable)
Place = tuple[str, int, int]
"""Topic, queue id and queue offset of a message."""

GROUP = "readers"
PROGRESS = {0: 3, 1: 5, 2: 7, 3: 9}
"""How far the group is, before Apache's broker sees the store."""

SETTINGS = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "60000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "flushDiskType": "SYNC_FLUSH",
}
BROKER_SETTINGS = {"autoCreateTopicEnable": "false", "autoCreateSubscriptionGroup": "false"}
EVER_MS = 2**63 - 1
MEMORY_BYTES = 1 << 30
READ_AT_ONCE = 32
FIND_AT_ONCE = 64
SHOWN_FINDINGS = 20


@dataclass
class Exchange:
    """A store, the broker that it belongs to, and Apache's client."""

    broker: ApacheBroker
    shell: StoreShell
    settings: Mapping[str, str]
    """The store's, the same on both sides."""
    written: list[StoredMessage] = field(default_factory=list)
    """What we put, as readers must see it."""

    @property
    def config(self) -> StoreConfig:
        return store_config(self.settings)

    @property
    def store_host(self) -> bytes:
        return store_host(self.broker.port)

    def start_apache(self) -> None:
        self.broker.start()
        self.broker.wait_registered(self.shell.namesrv)

    def visit(self, look: Callable[[Visit], T]) -> T:
        """Open the store, look at it, and stop it in good order."""
        return asyncio.run(self._visit(look))

    async def _visit(self, look: Callable[[Visit], T]) -> T:
        store = open_store(self.config, self.store_host)
        recovered = await store.start()
        try:
            return look(Visit(store, self.config, recovered, self.broker.name))
        finally:
            assert await store.stop(), "the store could not be left in order"

    def put(self, messages: Iterable[Record | MessageBatch]) -> list[StoredMessage]:
        """Put messages, in a visit of their own, and remember what readers must see of them."""

        def put_all(visit: Visit) -> list[StoredMessage]:
            seen: list[StoredMessage] = []
            for message in messages:
                if isinstance(message, MessageBatch):
                    assert visit.store.put_batch(message).status is PutStatus.PUT_OK
                    seen += batch_as_stored(message, self.store_host, self.broker.name)
                else:
                    assert visit.store.put(message).status is PutStatus.PUT_OK
                    seen.append(as_stored(message, self.store_host, self.broker.name))
            return seen

        put = self.visit(put_all)
        self.written += put
        return put

    def assert_sound(self) -> None:
        """Nobody uses the store, and every file of it is as it has to be."""
        verification = verify_store(SystemDisk(), self.config.root, self.config)
        assert verification.stopped_in_order
        assert verification.records > 0
        findings = [str(finding) for finding in verification.findings[:SHOWN_FINDINGS]]
        assert not findings, "\n".join((f"{verification.total_findings} findings, such as:", *findings))

    def save_config(self) -> None:
        """The topics and the group, and how far it is, in the files of the broker."""
        version = DataVersion(0, 1_700_000_000_000, 1)
        topics = {
            name: TopicConfig(name, read_queue_nums=queues, write_queue_nums=queues, attributes={})
            for name, queues in QUEUES.items()
        }
        groups = {GROUP: SubscriptionGroupConfig(GROUP)}
        self._file(TopicTable).save(TopicTable(version, topics))
        self._file(SubscriptionGroupTable).save(SubscriptionGroupTable(version, {}, groups))
        self._file(ConsumerOffsetTable).save(ConsumerOffsetTable(version, {f"{BAZAAR}@{GROUP}": PROGRESS}))

    def load_config(self, kind: type[Table]) -> Table:
        table = self._file(kind).load(repair=False)
        assert table is not None
        return table

    def _file(self, kind: type[Table]) -> ConfigFile[Table]:
        return ConfigFile(SystemDisk(), self.config.root / CONFIG_FOLDER, kind)


@dataclass(frozen=True)
class Visit:
    """Our store while it is open."""

    store: MessageStore
    config: StoreConfig
    recovered: Recovered
    broker_name: str

    def read_all(self) -> list[StoredMessage]:
        """Every message of every queue, as our reader gives it."""
        reader = MessageReader(
            self.store.log, self.store.queues.find, self.config, MEMORY_BYTES, check_crc=True
        )
        return [
            self._seen(record)
            for queue in self.store.queues
            for record in _queue_records(reader, queue.topic, queue.queue_id)
        ]

    def find_key(self, topic: str, key: str, *, unique: bool = False) -> list[StoredMessage]:
        """The messages with a key; the index knows hashes, so there may be others among what it finds."""
        found = self._lookup.query(topic, key, FIND_AT_ONCE, 0, EVER_MS, unique=unique)
        messages = map(self._seen, found.records)
        return [message for message in messages if key in message.keys or key == message.msg_id]

    def at_place(self, commit_log_offset: int) -> StoredMessage:
        record = self._lookup.at(commit_log_offset)
        assert record is not None
        return self._seen(record)

    @property
    def _lookup(self) -> MessageLookup:
        return MessageLookup(self.store.log, self.store.queues, self.store.index, self.config)

    def _seen(self, record: memoryview) -> StoredMessage:
        decoded = decode_record(record, check_crc=True, decompress_body=True)
        return without_checksum(to_stored_message(decoded, self.broker_name))


def _queue_records(reader: MessageReader, topic: str, queue_id: int) -> Iterator[memoryview]:
    """All records of a queue from 0 on."""
    result = reader.get(topic, queue_id, 0, READ_AT_ONCE)
    while result.status is GetStatus.FOUND:
        yield from result.records
        result = reader.get(topic, queue_id, result.next_offset, READ_AT_ONCE)
    assert result.next_offset == result.max_offset, f"reading {topic}-{queue_id} ended with {result}"


def store_config(settings: Mapping[str, str]) -> StoreConfig:
    return msgspec.convert(settings, StoreConfig, strict=False)


def store_host(port: int) -> bytes:
    return pack_host(Host("127.0.0.1", port))


def open_store(config: StoreConfig, host: bytes) -> MessageStore:
    return MessageStore(SystemDisk(), SystemClock(), config, host)


def unique_ids() -> NextId:
    """Makes ids as a producer does."""
    clock = SystemClock()
    month = datetime.now().replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    ids = UniqueIdGenerator(bytes((10, 1, 2, 3)), os.getpid(), id(clock), int(month.timestamp() * 1000))
    return lambda: ids.next_id(clock.now_ms())


@contextmanager
def running_exchange(
    home: Path, make_namesrv: MakeNamesrv, name: str, settings: Mapping[str, str] = {}
) -> Iterator[Exchange]:
    """Everything but the broker is running; the store is empty but for its config."""
    root = home / "store"
    places = {"storePathRootDir": str(root), "storePathCommitLog": str(root / "commitlog")}
    settings = {**places, **SETTINGS, **settings}
    with make_namesrv(home / "namesrv") as namesrv, StoreShell(home / "shell", namesrv.address) as shell:
        broker = ApacheBroker(
            home / "broker",
            namesrv.address,
            name=name,
            settings={**settings, **BROKER_SETTINGS},
        )
        exchange = Exchange(broker, shell, settings)
        exchange.save_config()
        try:
            yield exchange
        finally:
            broker.kill()


def by_place(messages: Iterable[StoredMessage]) -> dict[Place, StoredMessage]:
    """Messages by where they are in queues; none may be twice at one place."""
    found: dict[Place, StoredMessage] = {}
    for message in messages:
        place = message.topic, message.queue_id, message.queue_offset
        assert place not in found, f"two messages at {place}"
        found[place] = message
    return found


def unnamed(message: StoredMessage) -> StoredMessage:
    """A message as a query gives it, which does not say which broker it came from."""
    return msgspec.structs.replace(message, broker_name="")


def assert_dense(messages: Iterable[StoredMessage]) -> None:
    """The offsets of every queue go up from 0 without a gap."""
    offsets: dict[tuple[str, int], list[int]] = defaultdict(list)
    for message in messages:
        offsets[message.topic, message.queue_id].append(message.queue_offset)
    for queue, found in offsets.items():
        assert sorted(found) == list(range(len(found))), f"{queue} has gaps"
