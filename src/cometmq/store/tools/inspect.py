"""Inspecting a store: files, topics, queues, offsets, times and sizes.

Rules kept here: the store is only read, also while a broker uses it; each figure is that of the moment it was
read. Only the last file of the log is walked, so that a large store is shown at once.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import msgspec

from cometmq.model.errors import StoreError
from cometmq.ports.disk import Disk
from cometmq.store.checkpoint import CHECKPOINT_FIELDS
from cometmq.store.config import StoreConfig
from cometmq.store.index.file import HEADER, read_header
from cometmq.store.log.reader import LogReader
from cometmq.store.tools.survey import (
    CHECKPOINT,
    FoundFile,
    FoundQueue,
    Survey,
    open_log,
    open_queue,
    survey_store,
)


class LogSummary(msgspec.Struct, frozen=True, rename="camel"):
    """The commit log."""

    files: int
    file_size: int
    min_offset: int
    max_offset: int
    first_store_time: int | None
    last_store_time: int | None


class QueueSummary(msgspec.Struct, frozen=True, rename="camel"):
    """One consume queue."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    first_store_time: int | None
    last_store_time: int | None
    files: int
    error: str | None = None


class IndexSummary(msgspec.Struct, frozen=True, rename="camel"):
    """One file of the index."""

    name: str
    entries: int
    first_store_time: int
    last_store_time: int
    first_offset: int
    last_offset: int
    size: int


class CheckpointSummary(msgspec.Struct, frozen=True, rename="camel"):
    """The checkpoint, with RocketMQ's names."""

    physic_msg_timestamp: int
    logics_msg_timestamp: int
    index_msg_timestamp: int
    master_flushed_offset: int
    confirm_phy_offset: int


class StoreSummary(msgspec.Struct, frozen=True, rename="camel"):
    """All of a store."""

    root: str
    in_use: bool
    stopped_in_order: bool
    log: LogSummary
    queue_file_size: int
    queues: list[QueueSummary]
    index: list[IndexSummary]
    checkpoint: CheckpointSummary | None
    misplaced: list[str]
    """Files and folders that do not belong here."""


def inspect_store(
    disk: Disk, root: Path, config: StoreConfig | None = None, *, in_use: bool = False
) -> StoreSummary:
    """Look at a store directory."""
    survey = survey_store(disk, root, config)
    log = open_log(disk, survey)
    with closing(log.files):
        return StoreSummary(
            root=str(root),
            in_use=in_use,
            stopped_in_order=survey.stopped_in_order,
            log=_log(survey, log),
            queue_file_size=survey.queue_file_size,
            queues=[
                _queue(disk, survey, log, found)
                for found in sorted(survey.queues, key=lambda found: (found.topic, found.queue_id))
            ],
            index=[_index(disk, found) for found in survey.index_files if found.size >= HEADER.size],
            checkpoint=_checkpoint(disk, root),
            misplaced=[str(path) for path in survey.misplaced],
        )


def _log(survey: Survey, log: LogReader) -> LogSummary:
    end, last_time = log.min_offset, None
    for mapped in reversed(log.files.files):
        walk = log.walk(mapped.start)
        for record in walk:
            last_time = record.store_timestamp_ms
        end = walk.position
        if last_time is not None:
            break
    first_time = log.store_time(log.min_offset)
    return LogSummary(len(survey.log_files), survey.log_file_size, log.min_offset, end, first_time, last_time)


def _queue(disk: Disk, survey: Survey, log: LogReader, found: FoundQueue) -> QueueSummary:
    try:
        queue = open_queue(disk, survey, found)
    except StoreError as error:
        return QueueSummary(
            found.topic, found.queue_id, 0, 0, None, None, len(found.files), error=error.message
        )
    try:
        queue.correct_min_offset(log.min_offset)
        first, last = queue.unit(queue.min_offset), queue.unit(queue.max_offset - 1)
        return QueueSummary(
            found.topic,
            found.queue_id,
            queue.min_offset,
            queue.max_offset,
            None if first is None else log.store_time(first[0]),
            None if last is None else log.store_time(last[0]),
            len(found.files),
        )
    finally:
        queue.close()


def _index(disk: Disk, found: FoundFile) -> IndexSummary:
    with closing(disk.open(found.path, writable=False, scattered=True)) as file:
        header = read_header(file.buffer)
    return IndexSummary(
        found.path.name,
        max(header.next_number - 1, 0),
        header.begin_time_ms,
        header.end_time_ms,
        header.begin_offset,
        header.end_offset,
        found.size,
    )


def _checkpoint(disk: Disk, root: Path) -> CheckpointSummary | None:
    data = disk.read(root / CHECKPOINT)
    if data is None or len(data) < CHECKPOINT_FIELDS.size:
        return None
    return CheckpointSummary(*CHECKPOINT_FIELDS.unpack_from(data))
