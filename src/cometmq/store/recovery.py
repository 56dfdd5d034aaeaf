"""Bringing log, queues and index together after a start.

Rules kept here:
- The log is right as far as its records are whole, one behind the other; what is behind is cut off. Queues
  and index are made to say what the log says.
- After an orderly stop everything was on the disk. The log is looked at from the last queued record on, and
  nothing is changed unless there is something to be changed.
- After any other stop the log is looked at from the newest file on that began before the checkpoint, and
  everything from there is dispatched again, while it is looked at. What the system still has only in memory
  is put on the disk before anything is built on it.
- Neither queue nor index may refer to what is not in the log: the next messages will have those places.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from cometmq.model.errors import StoreError
from cometmq.store.checkpoint import Checkpoint
from cometmq.store.commit_log import CommitLog
from cometmq.store.config import StoreConfig
from cometmq.store.consume_queue import ConsumeQueue
from cometmq.store.consume_queues import ConsumeQueues
from cometmq.store.dispatch import Dispatcher
from cometmq.store.dispatch_rules import QueuePlace, further_places, is_queued
from cometmq.store.index import Index
from cometmq.store.index_arrays import load_arrays
from cometmq.store.log_groups import GroupWalk, RecordGroup
from cometmq.store.mapped_files import MappedFile
from cometmq.store.queue_files import Unit
from cometmq.store.record_check import whole_record
from cometmq.wire.record import Record, decode_record
from cometmq.wire.record_layout import RecordError, peek_queue_offset

log = logging.getLogger("cometmq.store")

_LONG_REPLAY_BYTES: Final = 256 * 1024 * 1024


class Recovered(msgspec.Struct, frozen=True):
    """What a recovery found and did."""

    stopped_orderly: bool
    start: int
    """The offset from which on the log was looked at."""
    end: int
    """Where the log ends."""
    records: int
    """How many records there were in between."""


class _Measured(msgspec.Struct, frozen=True):
    """What is in the log from some place on."""

    end: int
    records: int
    last_stored_ms: int
    error: RecordError | None
    """Why it ends there."""


class Recovery:
    """One recovery of a store whose files are loaded. Blocks."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        index: Index,
        dispatcher: Dispatcher,
        checkpoint: Checkpoint,
        config: StoreConfig,
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint
        self._config = config

    def run(self, *, stopped_orderly: bool) -> Recovered:
        if not self._log.files.files:
            return self._begin_anew(stopped_orderly=stopped_orderly)
        for missing, behind in self._log.files.gaps():
            log.error("the commit log has no bytes from %d to %d: files are missing", missing, behind)
        built = self._queues.max_physical_offset
        start = self._orderly_start(built) if stopped_orderly else self._start_before_checkpoint()
        measured = self._measure(start) if stopped_orderly else self._replay(start)
        end = measured.end
        if stopped_orderly:
            self._queues.truncate(end, self._is_right)
        self._log.truncate(end)
        if not stopped_orderly and (cleared := self._log.clear_behind_end()):
            log.warning("%d bytes behind the end of the log at %d were no records", cleared, end)
        self._log.store_timestamp_ms = self._log.flushed_timestamp_ms = measured.last_stored_ms
        if self._drop_lost_keys(end):
            self._dispatch(self._log.min_offset, end)
        elif stopped_orderly:
            self._dispatch(max(start, built), end)
        self._dispatcher.position = end
        self._dispatcher.last_store_time_ms = measured.last_stored_ms
        self._queues.reset_next_offsets()
        self._queues.correct_min_offsets(self._log.min_offset)
        if end < built:
            log.error("the log ends at %d, before records that were queued: %s", end, measured.error)
        return Recovered(stopped_orderly, start, end, measured.records)

    def _begin_anew(self, *, stopped_orderly: bool) -> Recovered:
        """Without a log there is nothing that queues and index could refer to."""
        self._queues.destroy_all()
        self._index.cut_to(0)
        return Recovered(stopped_orderly, 0, 0, 0)

    # Where to begin

    def _orderly_start(self, built: int) -> int:
        """The last record that was queued; if it is not as its unit says, where a whole file may be."""
        for queue in self._queues:
            if built >= 0 and queue.max_physical_offset == built:
                unit = queue.unit(queue.max_offset - 1)
                if unit is not None and self._has(unit) and self._is_right(queue, queue.max_offset - 1, unit):
                    return unit[0]
        return self._newest_file(lambda mapped, _: mapped.start <= built)

    def _start_before_checkpoint(self) -> int:
        checkpoint = self._checkpoint
        is_safe = self._config.message_index_enable and self._config.message_index_safe
        # The keys of some of the messages of the last millisecond may be in a file of the index that is gone.
        moment_ms = checkpoint.min_timestamp_index - 1 if is_safe else checkpoint.min_timestamp
        return self._newest_file(lambda _, stored_ms: stored_ms <= moment_ms)

    def _newest_file(self, is_old_enough: Callable[[MappedFile, int], bool]) -> int:
        """The beginning of the newest file with a first record that is old enough; else of the first."""
        files = self._log.files.files
        for mapped in reversed(files):
            view = self._log.record_at(mapped.start)
            # What a stop left of a record may say any time.
            first = None if view is None else whole_record(view, mapped.start)
            if first is not None and is_old_enough(mapped, first.store_timestamp_ms):
                return mapped.start
        return files[0].start

    # What is there

    def _walk(self, start: int) -> GroupWalk:
        return self._log.walk_groups(
            start,
            check_crc=self._config.check_crc_on_recover,
            verify_record_crc=self._config.force_verify_prop_crc,
            one_by_one=self._config.enable_multi_dispatch,
        )

    def _measure(self, start: int) -> _Measured:
        """Walk to the end of the log."""
        walk = self._walk(start)
        records = last_stored_ms = 0
        for found in walk:
            count, last_stored_ms = _extent(found)
            records += count
        return _Measured(walk.position, records, last_stored_ms, walk.error)

    def _replay(self, start: int) -> _Measured:
        """Walk to the end of the log, and dispatch everything on the way.

        Units that may not have been on the disk are all written anew: besides those that are missing there
        may be torn ones in between, and such of an earlier life of the queue.
        """
        self._sync_from(start)
        if self._log.max_offset - start > _LONG_REPLAY_BYTES:
            load_arrays()  # a third of a second sooner for every million keys
        self._queues.truncate(start, self._is_right)
        safe_index_files = len(self._index)
        looked_at: set[tuple[str, int]] = set()
        while isinstance(replayed := self._replay_from(start, looked_at), int):
            # What is missing comes first. The index takes keys in the order of the log only.
            self._index.cut_to(safe_index_files)
            self._dispatch(min(replayed, start), start)
        return replayed

    def _replay_from(self, start: int, looked_at: set[tuple[str, int]]) -> _Measured | int:
        """Do that; or, once it turns out that a queue lacks units, say from where on they are missing."""
        walk = self._walk(start)
        records = last_stored_ms = 0
        for found in walk:
            gap = self._gap_before(found, looked_at)
            if gap is not None:
                return gap
            self._must(self._dispatcher.dispatch_found(found))
            count, last_stored_ms = _extent(found)
            records += count
        return _Measured(walk.position, records, last_stored_ms, walk.error)

    def _gap_before(self, found: RecordGroup | Record, looked_at: set[tuple[str, int]]) -> int | None:
        """From where on units are missing that were to be on the disk before those of this; None if none are.

        The checkpoint of Apache's store may say more about its queues than is true.
        """
        if isinstance(found, RecordGroup):
            firsts = [(run.topic, run.queue_id, run.first_offset) for run in found.runs]
        else:
            firsts = [(found.topic, found.queue_id, found.queue_offset)] if is_queued(found.sys_flag) else []
        gap: int | None = None
        for topic, queue_id, first_offset in firsts:
            if (topic, queue_id) in looked_at:
                continue
            looked_at.add((topic, queue_id))
            queue = self._queues.find(topic, queue_id)
            if queue is not None and first_offset > queue.max_offset and not self._shift(queue):
                log.warning(
                    "%s-%d has no units from %d to %d", topic, queue_id, queue.max_offset, first_offset
                )
                missing = max(queue.max_physical_offset, self._log.min_offset)
                gap = missing if gap is None else min(gap, missing)
        return gap

    def _has(self, unit: Unit) -> bool:
        return unit[0] >= self._log.min_offset

    def _is_right(self, queue: ConsumeQueue, queue_offset: int, unit: Unit) -> bool:
        """Whether the record that a unit refers to is that of this place in the queue, or gone long ago."""
        if not self._has(unit):
            return True
        view = self._log.record_at(unit[0])
        if view is None or len(view) != unit[1]:
            return False
        try:
            record = decode_record(view)
        except RecordError:
            return False
        own = QueuePlace(record.topic, record.queue_id, record.queue_offset)
        places = [own]
        if self._config.enable_multi_dispatch:
            places += further_places(record.properties_block, record.queue_id)
        return record.physical_offset == unit[0] and any(
            (topic, queue_id) == (queue.topic, queue.queue_id)
            and (offset == queue_offset or offset - queue_offset == self._shift(queue))
            for topic, queue_id, offset in places
        )

    def _shift(self, queue: ConsumeQueue) -> int:
        """By how much a queue's units are out of place, which those of Apache can be for good."""
        unit = queue.unit(queue.min_offset)
        view = None if unit is None else self._log.record_at(unit[0])
        if view is None or self._config.enable_multi_dispatch:
            return 0
        return peek_queue_offset(view, 0) - queue.min_offset

    # What is made of it

    def _sync_from(self, start: int) -> None:
        """Put on the disk what a killed process left in the system's memory."""
        for mapped in self._log.files.files:
            if mapped.end > start:
                mapped.file.sync()

    def _drop_lost_keys(self, end: int) -> bool:
        """Whether the index referred to what is behind the end of the log, and is to be made anew."""
        if not 0 < end <= self._index.end_offset:
            return False
        log.warning("the index is made anew: it refers to records behind the end of the log at %d", end)
        self._index.cut_to(0)
        return True

    def _dispatch(self, start: int, end: int) -> None:
        """Dispatch what lies in between; a damaged record before the place that was measured ends it."""
        dispatcher = self._dispatcher
        dispatcher.position = start
        self._must(dispatcher.catch_up(end))

    def _must(self, dispatched: bool) -> None:
        if not dispatched:
            raise StoreError(
                f"the queues cannot be brought up to the log: {self._dispatcher.failure}; "
                "make room on the disk"
            )


def _extent(found: RecordGroup | Record) -> tuple[int, int]:
    """How many records these are, and when the last was stored."""
    if isinstance(found, RecordGroup):
        return found.count, found.last_stored_ms
    return 1, found.store_timestamp_ms
