"""What the tests of the whole store share: small stores on any disk, and what is in them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import structs

from cometmq.ports.clock import Clock
from cometmq.ports.disk import Disk
from cometmq.store.config import StoreConfig
from cometmq.store.directory import StoreFiles
from cometmq.store.message_store import MessageStore, one_thread
from cometmq.store.put.writer import MessageWriter, PutResult
from cometmq.store.status import RunningFlags
from cometmq.testing.clock import VirtualClock
from cometmq.wire.record.codec import Record, decode_record
from tests.unit.store.log_kit import BORN_HOST, ROOT, START_MS, STORE_HOST, InPlace

LOG_FILE_SIZE = 64 * 1024
QUEUE_FILE_SIZE = 20 * 20
SMALL = {
    "mapped_file_size_commit_log": LOG_FILE_SIZE,
    "mapped_file_size_consume_queue": QUEUE_FILE_SIZE,
    "max_hash_slot_num": 20,
    "max_index_num": 50,
    "delete_commit_log_files_interval": 0,
    # Retention has to be made to run: its hours and ratios are none that a test meets by chance.
    "delete_when": "04",
}


def small(root: Path = ROOT, **changes: object) -> StoreConfig:
    """A store of small files."""
    return StoreConfig(**{"store_path_root_dir": str(root), **SMALL, **changes})  # type: ignore[arg-type]


def a_message(body: bytes = b"hello", topic: str = "orders", queue_id: int = 0, **changes: object) -> Record:
    fields: dict[str, object] = {"born_host": BORN_HOST, "born_timestamp_ms": START_MS - 5, **changes}
    return Record(topic=topic, body=body, queue_id=queue_id, **fields)  # type: ignore[arg-type]


class Engine:
    """The files of a store and its writer, without an event loop and without threads."""

    def __init__(self, disk: Disk, config: StoreConfig | None = None, clock: Clock | None = None) -> None:
        config = config or small()
        self.clock = clock or VirtualClock(START_MS)
        self.files = StoreFiles(disk, self.clock, InPlace(), config, STORE_HOST)
        self.flags = RunningFlags()
        self.writer = MessageWriter(
            self.files.log, self.files.queues, self.files.dispatcher, self.flags, config, STORE_HOST
        )
        self.recovered = self.files.open()
        self.writer.open()
        self.put, self.put_batch = self.writer.put, self.writer.put_batch

    def sync_log(self) -> int:
        """Put the log on the disk and show consumers what they may see then."""
        flushed = self.files.log.sync()
        self.writer.show_confirmed()
        return flushed

    def close(self) -> bool:
        self.writer.open(is_open=False)
        return self.files.close()


def messages_in(files: StoreFiles) -> dict[tuple[str, int], list[Record]]:
    """Everything that consumers can read, by queue; each message is checked to be the one of its place."""
    found: dict[tuple[str, int], list[Record]] = {}
    for queue in files.queues:
        records = []
        for queue_offset in range(queue.min_offset, queue.max_offset):
            unit = queue.unit(queue_offset)
            assert unit is not None, f"{queue.topic}-{queue.queue_id} has no unit {queue_offset}"
            view = files.log.view(unit[0], unit[1])
            assert view is not None, f"{queue.topic}-{queue.queue_id} {queue_offset}: no record at {unit}"
            record = decode_record(bytes(view), check_crc=True)
            assert (record.topic, record.queue_id) == (queue.topic, queue.queue_id)
            assert (record.queue_offset, record.physical_offset) == (queue_offset, unit[0])
            records.append(record)
        if records:
            found[queue.topic, queue.queue_id] = records
    return found


def bodies_in(files: StoreFiles, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
    return [bytes(record.body) for record in messages_in(files).get((topic, queue_id), [])]


@asynccontextmanager
async def running(
    disk: Disk,
    config: StoreConfig | None = None,
    clock: Clock | None = None,
    workers: Callable[[str], Executor] | None = None,
) -> AsyncIterator[MessageStore]:
    """A started store, stopped in the end."""
    store = MessageStore(
        disk, clock or VirtualClock(START_MS), config or small(), STORE_HOST, workers=workers or one_thread
    )
    await store.start()
    try:
        yield store
    finally:
        await store.stop()


async def put_safely(store: MessageStore, record: Record) -> PutResult:
    """Put a message and wait until it is on the disk; the status is that of the flush."""
    result = store.put(record)
    return structs.replace(result, status=await store.flusher.wait_flushed(result.end_offset))


def files_below(folder: Path) -> dict[str, bytes]:
    """The content of all files below a folder, by path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
