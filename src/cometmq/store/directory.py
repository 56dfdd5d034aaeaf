"""The store directory: its lock, and its files opened, recovered and closed together.

Rules kept here:
- A directory has one user at a time, of whatever make: the lock is the one that Apache's broker takes.
- `abort` is on the disk before anything is changed, and is removed last. If a start finds it, the last stop
  was not orderly.
- The log is synced before the checkpoint says so, and before an index file counts as safe. Queues and index
  may reach the disk before the records they refer to; recovery cuts them back to the log.
- All queues are synced before the checkpoint says so.
- The next start repeats an interrupted recovery, which depends on nothing that it changes.
- Everything here blocks.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Final

from cometmq.model.errors import StoreError
from cometmq.ports.clock import Clock
from cometmq.ports.disk import Disk, DiskLock
from cometmq.store.checkpoint import Checkpoint
from cometmq.store.config import StoreConfig
from cometmq.store.dispatch.dispatcher import Dispatcher
from cometmq.store.dispatch_rules import DelayLevels
from cometmq.store.index.index import Index
from cometmq.store.log.commit_log import open_commit_log
from cometmq.store.parallel_sync import ParallelSync
from cometmq.store.queue.consume_queues import ConsumeQueues
from cometmq.store.recovery.log_repair import DamagedStoreError, check_files
from cometmq.store.recovery.queue_ends import (
    QueueName,
    RecoveryTables,
    ends_of,
    forget_queue_ends,
    load_queue_ends,
    save_queue_ends,
)
from cometmq.store.recovery.recovery import Recovered, Recovery
from cometmq.store.skipped import Skipped
from cometmq.store.tables.files import known_topics

log = logging.getLogger("cometmq.store")
_START_ROOM: Final = 1024 * 1024
"""What the small files of a store take, and the first steps of its queues and its index."""
_SYNC_ALL_UP_TO: Final = 64
"""With up to this many queues to sync, all of them are synced, however little there is to write."""


class StoreDirectory:
    """The lock and the `abort` file of a store directory."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self._root = root
        self._abort = root / "abort"
        self._lock: DiskLock | None = None

    def enter(self) -> bool:
        """Take the directory; returns whether the last stop was orderly."""
        lock_path = self._root / "lock"
        self._lock = self._disk.lock(lock_path)
        if self._lock is None:
            raise StoreError(
                f"{lock_path} is held by another process: this store is in use; stop that process first, "
                "or choose another storePathRootDir"
            )
        try:
            stopped_orderly = self._disk.read(self._abort) is None
            self._disk.replace(self._abort, str(os.getpid()).encode("ascii"))
            self._disk.sync_folder(self._root.parent)  # the directory itself may be new
        except BaseException:
            self._release()
            raise
        return stopped_orderly

    def leave(self, *, in_order: bool) -> None:
        """Release the directory; `in_order` if every change is on the disk."""
        try:
            if in_order:
                self._disk.remove(self._abort)
                self._disk.sync_folder(self._root)
        finally:
            self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def room_advice(disk: Disk, config: StoreConfig, error: OSError) -> str:
    """On a full disk, what a failed start adds to its error: how much room there is, and is needed."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return ""
    usage = disk.usage(config.root)
    free = "" if usage is None else f"{usage.usable} bytes are free, "
    return (
        f"; {free}a start needs about {_START_ROOM}, and {config.mapped_file_size_commit_log} more for each "
        "new file of the log: make room on the disk, and start again"
    )


class StoreFiles:
    """Log, queues, index and checkpoint of a store directory."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        executor: Executor,
        config: StoreConfig,
        store_host: bytes,
        parallel_sync: ParallelSync | None = None,
    ) -> None:
        """Touches nothing yet; the executor makes files of the log."""
        root = config.root
        self._disk = disk
        self._config = config
        self._directory = StoreDirectory(disk, root)
        self.skipped = Skipped()
        """Messages that cannot be served."""
        self.log = open_commit_log(disk, clock, executor, config, store_host)
        self.queues = ConsumeQueues(
            disk,
            root / "consumequeue",
            config.consume_queue_file_size,
            ext_folder=root / "consumequeue_ext" if config.enable_consume_queue_ext else None,
            ext_file_size=config.mapped_file_size_consume_queue_ext,
            parallel_sync=parallel_sync,
            skipped=self.skipped,
        )
        self.index = Index(disk, clock, root / "index", config.max_hash_slot_num, config.max_index_num)
        self.dispatcher = Dispatcher(
            self.log,
            self.queues,
            self.index if config.message_index_enable else None,
            DelayLevels(config.message_delay_level),
            multi_dispatch=config.enable_multi_dispatch,
            skipped=self.skipped,
        )
        self._checkpoint: Checkpoint | None = None
        self._found_ends: Mapping[QueueName, int] = {}
        """The queue ends that need not be saved again."""
        self._saved_moments = 0, 0, 0
        """The times in the checkpoint on the disk."""

    def open(self) -> Recovered:
        """Take the directory, load its files, and recover them."""
        root = self._config.root
        try:
            stopped_orderly = self._directory.enter()
            try:
                recovered = self._load(stopped_orderly=stopped_orderly)
            except DamagedStoreError:
                self._let_go(in_order=stopped_orderly)
                raise
            except BaseException:
                self._let_go(in_order=False)
                raise
        except OSError as error:
            raise StoreError(
                f"{root} cannot be opened: {error}{room_advice(self._disk, self._config, error)}"
            ) from error
        log.info(
            "%s is open: log from %d to %d, %d queues; after %s stop %d records from %d on were looked at",
            *(root, self.log.min_offset, recovered.end, len(self.queues)),
            *("an orderly" if stopped_orderly else "an unclean", recovered.records, recovered.start),
        )
        return recovered

    def _load(self, *, stopped_orderly: bool) -> Recovered:
        repaired = check_files(self._disk, self._config, self.skipped)
        self.log.load()
        self.queues.load(crashed=not stopped_orderly)
        checkpoint = self._checkpoint = Checkpoint(self._disk, self._config.root / "checkpoint")
        self._saved_moments = (
            checkpoint.physic_msg_timestamp,
            checkpoint.logics_msg_timestamp,
            checkpoint.index_msg_timestamp,
        )
        self.index.load(stopped_cleanly=stopped_orderly, safe_until_ms=checkpoint.index_msg_timestamp)
        root = self._config.root
        tables = RecoveryTables(load_queue_ends(self._disk, root), known_topics(self._disk, root))
        recovery = Recovery(
            *(self.log, self.queues, self.index, self.dispatcher),
            *(checkpoint, self._config, self.skipped, tables),
        )
        recovered = recovery.run(stopped_orderly=stopped_orderly and not repaired, repaired=repaired)
        self.skipped.tell()
        self._found_ends = ends_of(self.queues) if tables.queue_ends is None else tables.queue_ends
        if not recovered.stopped_orderly:
            self.sync()
        if self._config.broker_role == "SLAVE":
            self.dispatcher.passes_damage = False
            return recovered  # where an empty log begins, its master says
        with contextlib.suppress(OSError, StoreError):  # on a full disk everything but puts works
            self.log.prepare_to_append()
        return recovered

    @property
    def checkpoint(self) -> Checkpoint:
        if self._checkpoint is None:
            raise StoreError(f"the store in {self._config.root} is not open")
        return self._checkpoint

    def sync_derived(self, dispatched_ms: int, *, thorough: bool) -> None:
        """Sync queues, full index files and the checkpoint, if there is enough to write.

        `dispatched_ms` is the store time of a record up to which all units are written.
        """
        checkpoint, logged_ms = self.checkpoint, self.log.flushed_timestamp_ms
        thorough = thorough or sum(queue.unsynced > 0 for queue in self.queues) <= _SYNC_ALL_UP_TO
        self.queues.sync(0 if thorough else self._config.flush_consume_queue_least_pages)
        if thorough:
            checkpoint.logics_msg_timestamp = dispatched_ms
        safe_ms = self.index.sync(only_full=True)
        if 0 < safe_ms < logged_ms:
            checkpoint.index_msg_timestamp = safe_ms
        checkpoint.physic_msg_timestamp = logged_ms
        moments = logged_ms, checkpoint.logics_msg_timestamp, checkpoint.index_msg_timestamp
        if moments != self._saved_moments:
            checkpoint.sync()
            self._saved_moments = moments

    def sync(self) -> None:
        """Sync everything; nothing may be written meanwhile."""
        self.log.sync()
        self.index.sync()
        self.sync_derived(self.dispatcher.last_store_time_ms, thorough=True)

    def forget_queue_ends(self) -> None:
        """Drop the saved queue ends, before a topic is deleted."""
        self._found_ends = {}
        forget_queue_ends(self._disk, self._config.root)

    def close(self) -> bool:
        """Sync everything and release the directory; False if it could not be left in order."""
        in_order = False
        self.queues.open_files.own()
        try:
            self.log.sync()
            if self.dispatcher.catch_up(self.log.max_offset):
                self.sync()
                ends = ends_of(self.queues)
                if ends != self._found_ends:
                    save_queue_ends(self._disk, self._config.root, ends)
                in_order = True
        except OSError as error:
            log.error("%s is not left in order: %s", self._config.root, error)
        self._let_go(in_order=in_order)
        return in_order

    def _let_go(self, *, in_order: bool) -> None:
        self.log.close()
        self.queues.close()
        self.index.close()
        if self._checkpoint is not None:
            self._checkpoint.close()
        self._directory.leave(in_order=in_order)
