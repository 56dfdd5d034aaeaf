"""The message store of a broker: put, get, flush and upkeep on one event loop.

Rules kept here:
- Puts and reads return in the same turn of the loop. Whatever blocks runs on worker threads: one syncs the
  log, one makes its files, one does cold reads, and one does all the rest, in order, with help for the syncs
  of queues, of which there may be thousands.
- A message is safe when `Flusher.wait_flushed` says so; with asynchronous flush nobody has to wait.
- Work that fails on a full disk is repeated until there is room; reads continue meanwhile. After a failed
  sync of the log nothing is accepted any more.
- After `stop` the directory tells whether it was left in order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

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

log = logging.getLogger("cometmq.store")

T = TypeVar("T")
Workers = Callable[[str], Executor]
"""Makes a named executor with one thread."""

FIRST_RETENTION_S: Final = 60
QUEUE_SYNCS: Final = 8
"""How many queues are synced in parallel."""
USUAL_MEMORY: Final = 8 * 1024**3


def one_thread(name: str) -> Executor:
    return ThreadPoolExecutor(1, thread_name_prefix=f"store-{name}")


class MessageStore:
    """The store of one broker; `store_host` is its packed address.

    `memory_bytes` of the machine decide which messages are likely to be in memory.
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
        self.put_batch: Final = self.writer.put_batch
        self.skipped: Final = self.files.skipped
        """Messages that could not be served."""
        reading = self.log, self.queues.find, config, memory_bytes
        checks = config.checks_records
        self.reader: Final = MessageReader(*reading, check_crc=checks, skipped=self.skipped)
        self.bulk_reader: Final = BulkReader(*reading, check_crc=checks, skipped=self.skipped)
        self.lookup: Final = MessageLookup(self.log, self.queues, self.index, config, self.skipped)
        self.arrivals: Final = self.files.dispatcher.arrivals
        """Listeners, called for each message when consumers can see it."""
        self.flusher = Flusher(
            self.log,
            self._syncing,
            config,
            on_begin=self.writer.unconfirmed.close_group,
            on_flushed=self._flushed,
            on_failure=lambda _: self.flags.set(Trouble.NOT_WRITABLE),
        )
        self.retention = Retention(disk, clock, config, self.files, self.flags, self._on_worker)
        self._waits_for_flush = config.flush_disk_type == "SYNC_FLUSH"
        self._wakes_flusher = self._waits_for_flush or not config.flush_commit_log_timed
        self._is_lagging = False
        """Whether flushed messages wait to be dispatched together with unflushed ones."""
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
        self.watch_appends(None)
        if self._waits_for_flush:
            self.queues.before_find = self.index.before_find = self._show_at_once
        self.writer.open()
        self._tasks = [asyncio.ensure_future(each) for each in (self._keep_up(), self._keep_clean())]
        return recovered

    async def stop(self) -> bool:
        """Sync everything and close; False if the directory could not be left in order."""
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
        """Call back with the flush status of a put."""
        self.flusher.when_flushed(result.end_offset, done)

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
        """Read a queue; cold records are fetched on another thread first."""
        reader = self.bulk_reader if bulk else self.reader
        cold = reader.cold_ranges(topic, queue_id, offset, max_count, wanted)
        if cold:
            await asyncio.get_running_loop().run_in_executor(self._reading, self.log.fetch, cold)
        return reader.get(topic, queue_id, offset, max_count, max_bytes=max_bytes, wanted=wanted)

    def append_data(self, data: bytes | memoryview) -> PutStatus:
        """Append bytes of the master's log, and dispatch the messages that are complete."""
        status = self.log.append_data(data)
        self.show_data()
        return status

    def show_data(self) -> None:
        """Dispatch the messages that are complete in what was appended to the log as it is."""
        self.writer.show_confirmed()
        self.log.store_timestamp_ms = self.files.dispatcher.last_store_time_ms
        if self.writer.on_append is not None:
            self.writer.on_append()

    def watch_appends(self, listener: Callable[[], None] | None) -> None:
        """Call a listener after every append; None ends that."""
        own = self.flusher.wake if self._wakes_flusher else None
        if own is None or listener is None:
            self.writer.on_append = listener or own
            return
        wake, tell = own, listener

        def both() -> None:
            wake()
            tell()

        self.writer.on_append = both

    async def fetch(self, offset: int, size: int) -> None:
        """Read a range of the log into memory, on another thread."""
        await asyncio.get_running_loop().run_in_executor(self._reading, self.log.fetch, [(offset, size)])

    async def delete_topics(self, topics: Iterable[str]) -> None:
        """Delete topics with their queues; their messages stay in the log until they expire."""
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
        """Apply the settings that can change while the store runs.

        These are the maximum message size, retention, and read-ahead of the log. File sizes and flushing stay
        as they were at the start.
        """
        self.retention.configure(config)
        self.log.max_message_size = config.max_message_size
        self.log.files.expect(scattered=not config.data_read_ahead_enable)

    @property
    def trouble(self) -> str | None:
        """Why messages are refused, and what to do about it; None while they are accepted."""
        failure = self.log.allocation_failure
        if self.flags.reason is None and failure is not None:
            return f"the log cannot grow: {failure.message}; make room on the broker's disk"
        return self.flags.reason

    def delete_expired(self) -> None:
        """Delete expired files soon, at any hour."""
        self.retention.ask()

    # Upkeep

    async def _keep_up(self) -> None:
        """Sync queues, index and checkpoint, and dispatch what could not be dispatched, again and again."""
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
        """Let readers check records again, and log what they skipped."""
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
            self._is_lagging = not self.writer.show_confirmed(more_comes=self.flusher.is_busy)
            with suppress(OSError):  # the next put reports it
                self.index.write()

    def _show_at_once(self) -> None:
        """Before a look-up: dispatch flushed messages that are not dispatched yet."""
        self.flusher.tell()
        if self._is_lagging:
            self._is_lagging = False
            self.writer.show_confirmed()

    async def _on_worker(self, work: Callable[[], T]) -> T:
        # Work that has begun is finished, even if the caller is cancelled: nothing is deleted by half.
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._working, work))

    def _dismiss_workers(self) -> None:
        for worker in (self._allocating, self._syncing, self._working, self._reading):
            worker.shutdown()
        self._syncing_queues.dismiss()
