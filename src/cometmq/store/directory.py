"""The files of one store, opened, recovered and closed together.

What has to be on the disk before what:
1. `abort`, before anything is changed; it goes last, when all the rest is there.
2. The log, before the checkpoint says so, and before an index file counts as safe. Queues and index may reach
   the disk earlier than the records they refer to; a recovery cuts them back to the log.
3. All queues, before the checkpoint says so.

A recovery that is itself interrupted is begun again by the next start; it depends on nothing that it changes.
Everything here blocks.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Final

from cometmq.model.errors import StoreError
from cometmq.ports.clock import Clock
from cometmq.ports.disk import Disk
from cometmq.store.checkpoint import Checkpoint
from cometmq.store.config import StoreConfig
from cometmq.store.disk_space import room_advice
from cometmq.store.dispatch.dispatcher import Dispatcher
from cometmq.store.dispatch.rules import DelayLevels
from cometmq.store.index.index import Index
from cometmq.store.lifecycle import StoreDirectory
from cometmq.store.log.commit_log import open_commit_log
from cometmq.store.parallel_sync import SideBySide
from cometmq.store.queue.consume_queues import ConsumeQueues
from cometmq.store.queue.ends import (
    QueueName,
    RecoveryTables,
    ends_of,
    forget_queue_ends,
    load_queue_ends,
    save_queue_ends,
)
from cometmq.store.read.skipped import Skipped
from cometmq.store.recovery import Recovered, Recovery
from cometmq.store.tools.log_repair import DamagedStoreError, check_files
from cometmq.store.tools.survey import known_topics

log = logging.getLogger("cometmq.store")

_SYNC_ALL_UP_TO: Final = 64
"""With no more queues than that to be synced, all of them are, however little there is to write."""


class StoreFiles:
    """Log, queues, index and checkpoint of a store directory."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        executor: Executor,
        config: StoreConfig,
        store_host: bytes,
        side_by_side: SideBySide | None = None,
    ) -> None:
        """Nothing is touched yet; files of the log are made on the executor, queues synced side by side."""
        root = config.root
        self._disk = disk
        self._config = config
        self._directory = StoreDirectory(disk, root)
        self.skipped = Skipped()
        """What cannot be served."""
        self.log = open_commit_log(disk, clock, executor, config, store_host)
        self.queues = ConsumeQueues(
            disk,
            root / "consumequeue",
            config.consume_queue_file_size,
            ext_folder=root / "consumequeue_ext" if config.enable_consume_queue_ext else None,
            ext_file_size=config.mapped_file_size_consume_queue_ext,
            side_by_side=side_by_side,
            skipped=self.skipped,
        )
        self.index = Index(disk, clock, root / "index", config.max_hash_slot_num, config.max_index_num)
        self.dispatcher = Dispatcher(
            self.log,
            self.queues,
            self.index if config.message_index_enable else None,
            DelayLevels(config.message_delay_level),
            spreads=config.enable_multi_dispatch,
            skipped=self.skipped,
        )
        self._checkpoint: Checkpoint | None = None
        self._found_ends: Mapping[QueueName, int] = {}
        """What is known of the ends of queues, or needs no file because nothing was written."""
        self._saved_moments = 0, 0, 0
        """What the checkpoint on the disk is known to say."""

    def open(self) -> Recovered:
        """Take the directory, load what is there, and recover it."""
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
        with contextlib.suppress(OSError, StoreError):  # without room nothing is put, but all the rest works
            self.log.prepare_to_append()
        return recovered

    @property
    def checkpoint(self) -> Checkpoint:
        if self._checkpoint is None:
            raise StoreError(f"the store in {self._config.root} is not open")
        return self._checkpoint

    def sync_behind_log(self, dispatched_ms: int, *, thorough: bool) -> None:
        """Put queues, full index files and the checkpoint on the disk, as far as there is enough to write.

        `dispatched_ms` is the store time of a record whose unit, and all before it, are written already.
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
        """Put everything on the disk; nothing may be written meanwhile."""
        self.log.sync()
        self.index.sync()
        self.sync_behind_log(self.dispatcher.last_store_time_ms, thorough=True)

    def forget_queue_ends(self) -> None:
        """Before a topic is deleted: what was saved of its queues counts no more."""
        self._found_ends = {}
        forget_queue_ends(self._disk, self._config.root)

    def close(self) -> bool:
        """Put everything on the disk and give the directory back; False if it could not be left in order."""
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
