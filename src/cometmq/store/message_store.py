"""The message store: everything about messages on a broker's disk, on one event loop.

Rules kept here:
- `put` and reads answer at once, in the turn of the loop that they are called in. What blocks happens on
  worker threads: syncs of the log on one, files of the log made on another, cold reads on a third, all the
  rest on a fourth, one thing after the other. That one has help when it syncs queues, of which there may be
  thousands.
- A message is safe when `wait_flushed` says so; with asynchronous flush nobody has to wait.
- What fails for lack of room is tried again until there is room; reads go on meanwhile. After a sync of the
  log that failed nothing is accepted any more.
- After `stop` the directory says whether it was left in order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

import msgspec

from cometmq.model.message_properties import WAIT
from cometmq.ports.clock import Clock
from cometmq.ports.disk import Disk
from cometmq.store.config import StoreConfig
from cometmq.store.directory import StoreFiles
from cometmq.store.log.flush import Done, Flusher
from cometmq.store.parallel_sync import ParallelSync
from cometmq.store.put.writer import MessageWriter, PutResult
from cometmq.store.queue.consume_queue import ConsumeQueue
from cometmq.store.read.lookup import MessageLookup
from cometmq.store.read.reader import MAX_READ_BYTES, BulkReader, GetResult, MessageFilter, MessageReader
from cometmq.store.recovery.recovery import Recovered
from cometmq.store.retention import Retention
from cometmq.store.status import PutStatus, RunningFlags, Trouble
from cometmq.wire.record.properties import find_property
from cometmq.wire.record.record import Record

log = logging.getLogger("cometmq.store")

T = TypeVar("T")
Workers = Callable[[str], Executor]
"""Makes a worker that does one thing after the other; it is given a name."""

FIRST_RETENTION_S: Final = 60
QUEUE_SYNCS: Final = 8
"""How many queues are synced at once."""
_NO_WAIT: Final = f"{WAIT}\x01false".encode()
USUAL_MEMORY: Final = 8 * 1024**3


def one_thread(name: str) -> Executor:
    return ThreadPoolExecutor(1, thread_name_prefix=f"store-{name}")


class MessageStore:
    """The store of one broker; `store_host` is the broker's address, packed.

    `memory_bytes` is what the machine has: it decides which messages are likely to be in memory.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        config: StoreConfig,
        store_host: bytes,
        *,
        memory_bytes: int = USUAL_MEMORY,
        workers: Workers = one_thread,
    ) -> None:
        self._config = config
        self._allocating, self._syncing, self._working = map(workers, ("allocate", "sync", "work"))
        self._reading = workers("read")
        self._syncing_queues = ParallelSync([workers(f"queues-{number}") for number in range(QUEUE_SYNCS)])
        self.files = StoreFiles(
            disk, clock, self._allocating, config, store_host, parallel_sync=self._syncing_queues
        )
        self.log, self.queues, self.index = self.files.log, self.files.queues, self.files.index
        self.flags = RunningFlags()
        self.writer = MessageWriter(
            self.log, self.queues, self.files.dispatcher, self.flags, config, store_host
        )
        self.put: Final = self.writer.put
        self.put_group: Final = self.writer.put_group
        self.put_bulk: Final = self.writer.put_bulk
        self.put_batch: Final = self.writer.put_batch
        self.skipped: Final = self.files.skipped
        """What could not be served."""
        reading = self.log, self.queues.find, config, memory_bytes
        checks = config.checks_records
        self.reader: Final = MessageReader(*reading, check_crc=checks, skipped=self.skipped)
        self.bulk_reader: Final = BulkReader(*reading, check_crc=checks, skipped=self.skipped)
        self.lookup: Final = MessageLookup(self.log, self.queues, self.index, config, self.skipped)
        self.arrivals: Final = self.files.dispatcher.arrivals
        """Called for each message when consumers can see it."""
        self.flusher = Flusher(
            self.log,
            self._syncing,
            config,
            on_begin=self.writer.unconfirmed.close_group,
            on_flushed=self._flushed,
            on_failure=lambda _: self._cannot_flush(),
        )
        self.retention = Retention(disk, clock, config, self.files, self.flags, self._on_worker)
        self._waits_for_flush = config.flush_disk_type == "SYNC_FLUSH"
        self._is_behind = False
        """Whether something that is on the disk waits to be shown together with what is not."""
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> Recovered:
        """Open the directory, recover it, and accept messages."""
        try:
            recovered = await self._on_worker(self.files.open)
        except BaseException:
            self._dismiss_workers()
            raise
        self.queues.open_files.own()
        self._look_again()
        self.flusher.start()
        if self._waits_for_flush or not self._config.flush_commit_log_timed:
            self.writer.on_append = self.flusher.wake
        if self._waits_for_flush:
            self.queues.before_find = self.index.before_find = self._show_at_once
        self.writer.open()
        self._tasks = [asyncio.ensure_future(each) for each in (self._keep_up(), self._keep_clean())]
        return recovered

    async def stop(self) -> bool:
        """Put everything on the disk and close; False if the directory could not be left in order."""
        self.writer.open(is_open=False)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.flusher.stop()
        self.skipped.tell()
        in_order = await self._on_worker(self.files.close)
        self._dismiss_workers()
        return in_order

    # Messages

    def when_flushed(self, result: PutResult, done: Done) -> None:
        """Call back when what was put is on the disk, or with what else came of it."""
        self.flusher.when_flushed(result.end_offset, done)

    async def put_safely(self, record: Record) -> PutResult:
        """Put a message and wait as long as the configuration, and the message itself, ask for."""
        result = self.put(record)
        if (
            self._waits_for_flush
            and result.status is PutStatus.PUT_OK
            # Hardly any message says that its sender does not wait, and all are asked.
            and (
                _NO_WAIT not in bytes(record.properties_block)
                or find_property(record.properties_block, WAIT) != "false"
            )
        ):
            status = await self.flusher.wait_flushed(result.end_offset)
            if status is not PutStatus.PUT_OK:
                return msgspec.structs.replace(result, status=status)
        return result

    async def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        *,
        max_bytes: int = MAX_READ_BYTES,
        wanted: MessageFilter | None = None,
        bulk: bool = False,
    ) -> GetResult:
        """Read a queue; what is far back is brought into memory beside, so that nobody waits for the disk."""
        reader = self.bulk_reader if bulk else self.reader
        cold = reader.cold_ranges(topic, queue_id, offset, max_count, wanted)
        if cold:
            await asyncio.get_running_loop().run_in_executor(self._reading, self.log.fetch, cold)
        return reader.get(topic, queue_id, offset, max_count, max_bytes=max_bytes, wanted=wanted)

    def append_data(self, data: bytes | memoryview) -> PutStatus:
        """Append bytes of the master's log, and show consumers the messages that are complete in it."""
        status = self.log.append_data(data)
        self.writer.show_confirmed()
        return status

    async def delete_topics(self, topics: Iterable[str]) -> None:
        """Forget topics with all their queues; their messages stay in the log until they expire."""
        await self._on_worker(self.files.forget_queue_ends)
        for topic in topics:
            queues = self.queues.detach_topic(topic)
            if queues:
                await self._on_worker(partial(self._destroy, topic, queues))

    def _destroy(self, topic: str, queues: list[ConsumeQueue]) -> None:
        try:
            self.queues.destroy(topic, queues)
        except OSError as error:
            log.warning("files of the deleted topic %s are left over; remove them: %s", topic, error)

    def change_config(self, config: StoreConfig) -> None:
        """Put other settings in force, as far as they can change while the store runs.

        These are the size of a message, what is deleted and refused when, and whether the log is read ahead.
        What shapes files, and how and when they are flushed, stays as it was at the start.
        """
        self.retention.configure(config)
        self.log.max_message_size = config.max_message_size
        self.log.files.expect(scattered=not config.data_read_ahead_enable)

    def delete_expired(self) -> None:
        """Delete expired files soon, whatever the hour is."""
        self.retention.ask()

    # What goes on beside

    async def _keep_up(self) -> None:
        """Sync queues, index and checkpoint, and dispatch what could not be dispatched before."""
        loop = asyncio.get_running_loop()
        interval_s = self._config.flush_interval_consume_queue / 1000
        thorough_s = self._config.flush_consume_queue_thorough_interval / 1000
        last_thorough = loop.time()
        while True:
            await asyncio.sleep(interval_s)
            thorough = loop.time() - last_thorough >= thorough_s
            if thorough:
                last_thorough = loop.time()
            await self._guarded(self.keep_up(thorough=thorough))

    async def keep_up(self, *, thorough: bool = False) -> None:
        """Do that once."""
        self.writer.show_confirmed()
        self._look_again()
        dispatched_ms = self.files.dispatcher.last_store_time_ms
        await self._on_worker(partial(self.files.sync_derived, dispatched_ms, thorough=thorough))

    def _look_again(self) -> None:
        """Trust no longer what was right a moment ago, and say what was found to be wrong."""
        self.reader.look_again()
        self.bulk_reader.look_again()
        self.skipped.tell()

    async def _keep_clean(self) -> None:
        await asyncio.sleep(FIRST_RETENTION_S)
        while True:
            await self._guarded(self.retention.run())
            await asyncio.sleep(self._config.clean_resource_interval / 1000)

    async def _guarded(self, work: Coroutine[object, object, object]) -> None:
        try:
            await work
        except OSError as error:
            log.error("upkeep of %s failed, and is tried again: %s", self._config.root, error)
        except Exception:
            log.exception("upkeep of %s failed, and is tried again", self._config.root)

    def _flushed(self) -> None:
        if self._waits_for_flush:
            self._is_behind = not self.writer.show_confirmed(more_comes=self.flusher.is_busy)
            with suppress(OSError):  # whoever puts the next message hears of it
                self.index.write()

    def _show_at_once(self) -> None:
        """Somebody looks for messages, perhaps for one whose flush was answered and that is not shown yet."""
        self.flusher.tell()
        if self._is_behind:
            self._is_behind = False
            self.writer.show_confirmed()

    def _cannot_flush(self) -> None:
        self.flags.set(Trouble.NOT_WRITABLE)

    async def _on_worker(self, work: Callable[[], T]) -> T:
        # What has begun is finished, whoever waits for it: a file that is half deleted is none.
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._working, work))

    def _dismiss_workers(self) -> None:
        for worker in (self._allocating, self._syncing, self._working, self._reading):
            worker.shutdown()
        self._syncing_queues.dismiss()
