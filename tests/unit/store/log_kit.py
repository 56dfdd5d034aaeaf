"""What the tests of the commit log share: a small log on a simulated or a real disk, and messages for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import ParamSpec, TypeVar

from cometmq.model.message import Host
from cometmq.ports.clock import Clock
from cometmq.ports.disk import Disk
from cometmq.store.config import StoreConfig
from cometmq.store.log.batch import MessageBatch
from cometmq.store.log.commit_log import CommitLog, open_commit_log
from cometmq.testing.clock import VirtualClock
from cometmq.wire.record.batch import BatchItem, encode_batch
from cometmq.wire.record.codec import Record
from cometmq.wire.record.ids import pack_host

P = ParamSpec("P")
T = TypeVar("T")

ROOT = Path("/store")
FILE_SIZE = 4096
STORE_HOST = pack_host(Host("127.0.0.2", 10911))
BORN_HOST = pack_host(Host("10.0.0.1", 50000))
START_MS = 1_700_000_000_000
FIXED = 88
"""The fixed part of a record whose hosts are IPv4."""


class InPlace(Executor):
    """Runs everything at once, where it is submitted: tests then need no waiting."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def config(root: Path = ROOT, **changes: object) -> StoreConfig:
    settings = {"store_path_root_dir": str(root), "mapped_file_size_commit_log": FILE_SIZE, **changes}
    return StoreConfig(**settings)  # type: ignore[arg-type]


def a_log(
    disk: Disk,
    *,
    clock: Clock | None = None,
    executor: Executor | None = None,
    store_host: bytes = STORE_HOST,
    settings: StoreConfig | None = None,
) -> CommitLog:
    """A loaded log of 4 KiB files, ready to append to."""
    log = open_commit_log(
        disk, clock or VirtualClock(START_MS), executor or InPlace(), settings or config(), store_host
    )
    log.load()
    return log


def message(body: bytes = b"hello", **changes: object) -> Record:
    fields = {"topic": "orders", "queue_id": 3, "born_host": BORN_HOST, "born_timestamp_ms": START_MS - 5}
    return Record(body=body, **(fields | changes))  # type: ignore[arg-type]


def message_of(size: int, **changes: object) -> Record:
    """A message whose record takes so many bytes."""
    overhead = FIXED + 1 + len("orders") + 2
    return message(bytes(number % 251 for number in range(size - overhead)), **changes)


def batch_of(items: Iterable[BatchItem], **changes: object) -> MessageBatch:
    items = list(items)
    return MessageBatch(message(b"", **changes), items, len(encode_batch(items)))


def fold_of(log: CommitLog) -> bytes:
    """All files of a log behind one another."""
    return b"".join(bytes(mapped.view) for mapped in log.files.files)
