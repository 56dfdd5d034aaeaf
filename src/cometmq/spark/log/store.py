"""A store directory as the log source sees it: its files, its end, and what else helps to read less.

Rules kept here:
- Nothing is ever written into the directory, and no lock is kept.
- After an orderly stop the log ends behind its last record. A store that is in use is read as far as whole
  records reach at this moment. After a crash it ends where a recovery would let it end: at the first record
  that is not whole, from the moment on that the checkpoint says is safe.
- Only what may not have been on the disk yet is read for its checksums here. Unless it crashed, queues tell
  of a place close to the end, and nothing before it is read at all.
"""

from __future__ import annotations

import fcntl
import os
import struct
from enum import Enum
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from cometmq.model.errors import StoreError
from cometmq.ports.disk import SystemDisk
from cometmq.spark.arrow.gather import Mask
from cometmq.spark.arrow.record_fields import RecordFields
from cometmq.spark.log.chunks import Damage, LogFile, LogFileReader, Piece
from cometmq.store.config import StoreConfig
from cometmq.store.put.bulk import body_checksums
from cometmq.store.tools.survey import CHECKPOINT, LOCK, Survey, open_queue, survey_store
from cometmq.wire.record.layout import (
    MIN_RECORD_SIZE,
    RecordError,
    peek_head,
    peek_physical_offset,
    peek_store_timestamp,
)

_TIMES: Final = struct.Struct(">qq")
_MOST_LOOKED_AT: Final = 200
"""So many queues are asked where the log was not long ago."""
_MARGIN_MS: Final = 3000
"""A recovery goes back so much further than the checkpoint says."""


class StoreState(Enum):
    """How a store was left."""

    STOPPED = "stopped in order"
    IN_USE = "in use"
    CRASHED = "not stopped in order"


class LogStore(msgspec.Struct, frozen=True):
    """A store that was looked at."""

    survey: Survey
    state: StoreState
    files: list[LogFile]
    """Those with records, as far as they go."""

    @property
    def topics(self) -> frozenset[str] | None:
        """The topics that there are; None if the store does not say."""
        known = self.survey.known_topics
        return None if known is None else known | {queue.topic for queue in self.survey.queues}

    @property
    def end(self) -> int:
        return self.files[-1].limit if self.files else 0


def look_at(root: Path, config: StoreConfig | None = None, *, is_alone: bool = False) -> LogStore:
    """Look at a store directory; who is alone with it has its lock."""
    if not root.is_dir():
        raise StoreError(f"{root} is no directory; the path of a store has a folder commitlog in it")
    survey = survey_store(SystemDisk(), root, config)
    state = _state_of(survey, is_alone)
    files = [
        LogFile(str(found.path), int(found.path.name), int(found.path.name) + found.size)
        for found in survey.log_files
    ]
    files = [file for file in files if first_store_time(file) is not None or _has_bytes(file)]
    dispatched = 0 if state is StoreState.CRASHED or is_alone else _dispatched(survey, files)
    return LogStore(survey, state, _cut(files, state, _safe_ms(root), dispatched))


def first_store_time(file: LogFile) -> int | None:
    """When the first record of a file was stored; None if it does not begin with one."""
    with LogFileReader(file) as reader:
        head = reader.read(file.start, 2 * MIN_RECORD_SIZE)
    try:
        size, _ = peek_head(head, 0)
        return peek_store_timestamp(head, 0) if size >= MIN_RECORD_SIZE else None
    except RecordError:
        return None


def _has_bytes(file: LogFile) -> bool:
    """Whether a file that begins with no record has anything in its first bytes."""
    with LogFileReader(file) as reader:
        return any(reader.read(file.start, 2 * MIN_RECORD_SIZE))


def _state_of(survey: Survey, is_alone: bool) -> StoreState:
    if survey.stopped_in_order:
        return StoreState.STOPPED
    if not is_alone and _is_locked(survey.root / LOCK):
        return StoreState.IN_USE
    return StoreState.CRASHED


def _is_locked(path: Path) -> bool:
    """Whether a process has a store; not to be asked by that process itself, which would lose its lock."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.lockf(handle, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 0)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def _safe_ms(root: Path) -> int:
    """A moment before which everything is on the disk."""
    try:
        with (root / CHECKPOINT).open("rb") as file:
            times_ms: tuple[int, int] = _TIMES.unpack(file.read(_TIMES.size))
    except (OSError, struct.error):
        return 0
    return max(min(times_ms) - _MARGIN_MS, 0)


def _dispatched(survey: Survey, files: list[LogFile]) -> int:
    """Where the last record begins that some queue has; 0 if none has one."""
    plain = [found for found in survey.queues if found.topic not in survey.batch_topics]
    places = []
    for found in plain[:_MOST_LOOKED_AT]:
        queue = open_queue(SystemDisk(), survey, found)
        try:
            places += [(place, size) for place, size, _ in queue.units(queue.max_offset - 1, 1)]
        finally:
            queue.close()
    place, size = max(places, default=(0, 0))
    is_there = any(file.start <= place < file.limit and _has_record(file, place, size) for file in files)
    return place if is_there else 0


def _has_record(file: LogFile, place: int, size: int) -> bool:
    """Whether a record of this size lies there."""
    with LogFileReader(file) as reader:
        head = reader.read(place, MIN_RECORD_SIZE)
    try:
        return peek_head(head, 0)[0] == size and peek_physical_offset(head, 0) == place
    except RecordError:
        return False


def _cut(files: list[LogFile], state: StoreState, safe_ms: int, dispatched: int) -> list[LogFile]:
    """The files up to the end of the log."""
    first = max(len(files) - 1, 0)
    if state is StoreState.CRASHED:
        while first > 0 and (first_store_time(files[first]) or safe_ms + 1) > safe_ms:
            first -= 1
    for place in range(first, len(files)):
        end = _end_in(files[place], state, safe_ms, dispatched)
        is_last = place == len(files) - 1
        if end is not None and (is_last or state is StoreState.CRASHED):
            return [*files[:place], msgspec.structs.replace(files[place], limit=end)]
    return files


def _end_in(file: LogFile, state: StoreState, safe_ms: int, dispatched: int) -> int | None:
    """Where the log ends in a file; None if it goes on to the end of it."""
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


def _first_torn(piece: Piece, safe_ms: int) -> int | None:
    """The offset of the first record that is not whole, among those that may not be."""
    fields = RecordFields(piece.buffer, piece.starts)
    suspects = ~fields.bad & (fields.store_times_ms >= safe_ms)
    torn = fields.bad | (fields.fixed["physical_offset"] != piece.places)
    torn |= wrong_bodies(fields, suspects)
    return int(piece.places[torn][0]) if torn.any() else None


def wrong_bodies(fields: RecordFields, rows: Mask) -> Mask:
    """Which of these records have another body than their checksums say."""
    wrong = np.zeros(len(fields), np.bool_)
    places = np.flatnonzero(rows & (fields.body_ends > fields.body_starts))
    checksums = body_checksums(fields.bytes, fields.body_starts[places], fields.body_ends[places])
    wrong[places] = checksums != fields.fixed["body_crc"][places]
    return wrong
