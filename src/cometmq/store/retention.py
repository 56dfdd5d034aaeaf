"""Retention: deleting expired files, and older ones when the disk is full.

Rules kept here:
- Files of the log are deleted from the oldest on, one at a time, never the last one. Expired files go at the
  hour of `deleteWhen`, when the disk is rather full, or on request; when it is very full, also unexpired
  ones. Only files that are synced and dispatched are deleted.
- Above the last threshold nothing is accepted until the disk is below it again.
- Files of queues and index follow when all of their messages are deleted.
- The list of files changes on the event loop, the disk on a worker thread; readers finish safely.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol, TypeVar

from cometmq.ports.clock import Clock
from cometmq.ports.disk import UNKNOWN_PERCENT, Disk, used_percent
from cometmq.store.config import StoreConfig
from cometmq.store.directory import StoreFiles
from cometmq.store.log.mapped_files import MappedFile
from cometmq.store.status import RunningFlags, Trouble

log = logging.getLogger("cometmq.store")

T = TypeVar("T")

_RUNS_WHEN_ASKED: Final = 20
_HOUR_MS: Final = 3_600_000
_QUEUES_A_TURN: Final = 100


class OnWorker(Protocol):
    """Runs blocking work on a worker thread."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


class Retention:
    """Deletes the old files of one store."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        config: StoreConfig,
        files: StoreFiles,
        flags: RunningFlags,
        on_worker: OnWorker,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._files = files
        self._flags = flags
        self._on_worker = on_worker
        self._asked = 0
        self._cleaned_to = -1
        self.configure(config)

    def configure(self, config: StoreConfig) -> None:
        """Apply settings from the next run on."""
        self._config = config
        self._hours = {int(hour) for hour in config.delete_when.split(";")}

    def ask(self) -> None:
        """Delete expired files in the next runs, at any hour."""
        self._asked = _RUNS_WHEN_ASKED

    async def run(self) -> int:
        """Run once; returns how many files of the log were deleted."""
        log_percent, queue_percent = await self._on_worker(self._measure)
        config = self._config
        self._refuse_writes(Trouble.DISK_FULL, log_percent)
        self._refuse_writes(Trouble.QUEUE_DISK_FULL, queue_percent)
        fullest = max(log_percent, queue_percent)
        is_tight = fullest > config.delete_expired_above_percent or UNKNOWN_PERCENT in (
            log_percent,
            queue_percent,
        )
        by_force = config.clean_file_forcibly_enable and fullest > config.delete_unexpired_above_percent
        deleted = 0
        if is_tight or by_force or self._asked or self._hour() in self._hours:
            self._asked = max(self._asked - 1, 0)
            deleted = await self._delete_log_files(by_force=by_force)
        await self._follow_log()
        return deleted

    def _measure(self) -> tuple[int, int]:
        """How full the partitions of log and queues are, in percent; of several for the log, the emptiest."""
        usage = self._disk.usage
        logs = min(used_percent(usage(folder)) for folder in self._config.writable_commit_log_folders)
        queues = self._config.root / "consumequeue"
        return logs, used_percent(usage(queues) or usage(self._config.root))

    def _refuse_writes(self, trouble: Trouble, percent: int) -> None:
        is_full = percent > self._config.refuse_writes_above_percent
        if self._flags.set(trouble, on=is_full):
            log.log(
                logging.ERROR if is_full else logging.INFO,
                "the disk is full to %d%%: messages are %s (diskSpaceWarningLevelRatio)",
                *(percent, "refused" if is_full else "accepted again"),
            )

    def _hour(self) -> int:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000).hour

    async def _delete_log_files(self, *, by_force: bool) -> int:
        deleted = 0
        while deleted < self._config.delete_file_batch_max:
            mapped = self._deletable(by_force=by_force)
            if mapped is None or not await self._erase_log_file(mapped):
                break
            deleted += 1
            if self._deletable(by_force=by_force) is not None:
                await asyncio.sleep(self._config.delete_commit_log_files_interval / 1000)
        return deleted

    def _deletable(self, *, by_force: bool) -> MappedFile | None:
        files = self._files.log.files.files
        if len(files) < 2:
            return None
        mapped = files[0]
        is_done = mapped.flushed >= mapped.size and self._files.dispatcher.position >= mapped.end
        expires_ms = mapped.modified_ms + self._config.file_reserved_time * _HOUR_MS
        return mapped if is_done and (by_force or self._clock.now_ms() >= expires_ms) else None

    async def _erase_log_file(self, mapped: MappedFile) -> bool:
        self._files.log.detach_first()

        def erase() -> None:
            self._files.log.erase(mapped)
            # Before the next one is deleted: files that come back after a crash must not leave a gap.
            self._disk.sync_folder(mapped.file.path.parent)

        try:
            await self._on_worker(erase)
        except OSError as error:
            log.error("%s could not be deleted: %s", mapped.file.path, error)
            return False
        log.info("%s was deleted", mapped.file.path)
        return True

    async def _follow_log(self) -> None:
        """Delete files of queues and index whose messages are all deleted."""
        start = self._files.log.min_offset
        if start == self._cleaned_to:
            return
        for number, queue in enumerate(self._files.queues, 1):
            expired = queue.detach_expired(start)
            if expired:
                await self._try_to_erase(queue.erase, expired)
            elif number % _QUEUES_A_TURN == 0:
                await asyncio.sleep(0)
        keys = self._files.index.detach_expired(start)
        if keys:
            await self._try_to_erase(self._files.index.erase, keys)
        self._cleaned_to = start

    async def _try_to_erase(self, erase: Callable[[Iterable[T]], None], expired: list[T]) -> None:
        try:
            await self._on_worker(lambda: erase(expired))
        except OSError as error:
            log.error("%s could not be deleted: %s", _names(expired), error)


def _names(expired: Iterable[object]) -> str:
    paths: list[Path] = [
        each.file.path if isinstance(each, MappedFile) else getattr(each, "path", Path()) for each in expired
    ]
    return ", ".join(map(str, paths))
