"""A store directory as the log source reads it: files, end of the log, and state.

Rules kept here:
- Nothing is written into the directory, and no lock is kept.
- After a clean stop the log ends after its last record. A store in use is read up to its last whole record.
  After a crash the log ends where recovery would end it: at the first torn record after the checkpoint.
- Checksums are verified here only for records that may not be flushed. Unless the store crashed, queues give
  an offset near the end, and nothing before it is read.
"""

from __future__ import annotations

import os
import struct
from enum import Enum
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from cometmq.model.errors import StoreError
from cometmq.ports.disk import SystemDisk
from cometmq.ports.system import lock
from cometmq.spark.arrow.gather import Mask
from cometmq.spark.arrow.record_fields import RecordFields
from cometmq.spark.log.chunks import Damage, LogChunk, LogFile, LogFileReader
from cometmq.store.config import StoreConfig
from cometmq.store.put.bulk import body_checksums
from cometmq.store.tools.survey import CHECKPOINT, LOCK, Survey, open_queue, survey_store
from cometmq.wire.record.layout import (
    MIN_RECORD_SIZE,
    RecordError,
    peek_head,
    peek_store_timestamp,
)

_TIMES: Final = struct.Struct(">qq")
_MOST_LOOKED_AT: Final = 200
"""Queues that are asked for an offset near the end of the log."""
_MARGIN_MS: Final = 3000
"""Recovery starts this long before the checkpoint."""


class StoreState(Enum):
    """How a store was left."""

    STOPPED = "stopped in order"
    IN_USE = "in use"
    CRASHED = "not stopped in order"


class LogStore(msgspec.Struct, frozen=True):
    """A store directory, surveyed."""

    survey: Survey
    state: StoreState
    files: list[LogFile]
    """Files with records, up to the end of the log."""

    @property
    def topics(self) -> frozenset[str] | None:
        """The topics of the store; None if it has no topic file."""
        known = self.survey.known_topics
        return None if known is None else known | {queue.topic for queue in self.survey.queues}

    @property
    def end(self) -> int:
        return self.files[-1].limit if self.files else 0


def look_at(root: Path, config: StoreConfig | None = None, *, is_alone: bool = False) -> LogStore:
    """Survey a store directory; `is_alone` means that the caller holds its lock."""
    if not root.is_dir():
        raise StoreError(f"{root} is no directory; the path of a store has a folder commitlog in it")
    survey = survey_store(SystemDisk(), root, config)
    state = _state_of(survey, is_alone)
    files = [
        LogFile(str(found.path), int(found.path.name), int(found.path.name) + found.size)
        for found in survey.log_files
    ]
    files = [file for file in files if _has_bytes(file)]
    dispatched = 0 if state is StoreState.CRASHED or is_alone else _dispatched(survey, files)
    return LogStore(survey, state, _cut(files, state, _safe_ms(root), dispatched))


def first_store_time(file: LogFile) -> int | None:
    """The store timestamp of the first record of a file; None if it does not start with one."""
    with LogFileReader(file) as reader:
        head = reader.read(file.start, 2 * MIN_RECORD_SIZE)
    try:
        size, _ = peek_head(head, 0)
        return peek_store_timestamp(head, 0) if size >= MIN_RECORD_SIZE else None
    except RecordError:
        return None


def _has_bytes(file: LogFile) -> bool:
    """Whether the first bytes of a file are not all zero."""
    with LogFileReader(file) as reader:
        return any(reader.read(file.start, 2 * MIN_RECORD_SIZE))


def _state_of(survey: Survey, is_alone: bool) -> StoreState:
    if survey.stopped_in_order:
        return StoreState.STOPPED
    if not is_alone and _is_locked(survey.root / LOCK):
        return StoreState.IN_USE
    return StoreState.CRASHED


def _is_locked(path: Path) -> bool:
    """Whether another process holds the lock. Called by the holder itself, this releases its lock."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not lock(handle, shared=True)
    finally:
        os.close(handle)


def _safe_ms(root: Path) -> int:
    """The time before which everything is flushed."""
    try:
        with (root / CHECKPOINT).open("rb") as file:
            times_ms: tuple[int, int] = _TIMES.unpack(file.read(_TIMES.size))
    except (OSError, struct.error):
        return 0
    return max(min(times_ms) - _MARGIN_MS, 0)


def _dispatched(survey: Survey, files: list[LogFile]) -> int:
    """Physical offset of the last dispatched record; 0 if there is none."""
    plain = [found for found in survey.queues if found.topic not in survey.batch_topics]
    last = []
    for found in plain[:_MOST_LOOKED_AT]:
        queue = open_queue(SystemDisk(), survey, found)
        try:
            last += [(offset, size) for offset, size, _ in queue.units(queue.max_offset - 1, 1)]
        finally:
            queue.close()
    offset, size = max(last, default=(0, 0))
    exists = any(file.start <= offset < file.limit and _has_record(file, offset, size) for file in files)
    return offset if exists else 0


def _has_record(file: LogFile, offset: int, size: int) -> bool:
    with LogFileReader(file) as reader:
        return reader.record_size(offset) == size


def _cut(files: list[LogFile], state: StoreState, safe_ms: int, dispatched: int) -> list[LogFile]:
    """The files up to the end of the log."""
    first = max(len(files) - 1, 0)
    if state is StoreState.CRASHED:
        while first > 0 and (first_store_time(files[first]) or safe_ms + 1) > safe_ms:
            first -= 1
    for index in range(first, len(files)):
        end = _end_in(files[index], state, safe_ms, dispatched)
        is_last = index == len(files) - 1
        if end is not None and (is_last or state is StoreState.CRASHED):
            return [*files[:index], msgspec.structs.replace(files[index], limit=end)]
    return files


def _end_in(file: LogFile, state: StoreState, safe_ms: int, dispatched: int) -> int | None:
    """The end of the log in a file; None if the file is full."""
    end = None
    start = dispatched if file.start < dispatched < file.limit else file.start
    with LogFileReader(file) as reader:
        for found in reader.records(start, file.limit, up_to_damage=state is not StoreState.STOPPED):
            if isinstance(found, Damage):
                end = found.start
                if state is not StoreState.STOPPED or found.end == file.limit:
                    return end
                end = None
            elif state is not StoreState.STOPPED:
                torn = _first_torn(found, safe_ms)
                if torn is not None:
                    return torn
    return end


def _first_torn(chunk: LogChunk, safe_ms: int) -> int | None:
    """Physical offset of the first torn record, among those after `safe_ms`."""
    fields = RecordFields(chunk.buffer, chunk.starts)
    suspects = ~fields.bad & (fields.store_times_ms >= safe_ms)
    torn = fields.bad | (fields.fixed["physical_offset"] != chunk.physical_offsets)
    torn |= wrong_bodies(fields, suspects)
    return int(chunk.physical_offsets[torn][0]) if torn.any() else None


def wrong_bodies(fields: RecordFields, rows: Mask) -> Mask:
    """Which of these records have a body that does not match its checksum."""
    wrong = np.zeros(len(fields), np.bool_)
    indices = np.flatnonzero(rows & (fields.body_ends > fields.body_starts))
    checksums = body_checksums(fields.bytes, fields.body_starts[indices], fields.body_ends[indices])
    wrong[indices] = checksums != fields.fixed["body_crc"][indices]
    return wrong
