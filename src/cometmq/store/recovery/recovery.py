"""Recovery of a store: find the end of the log, and make queues and index agree with it.

Rules kept here:
- The log counts up to the first record that is not whole; the rest is cut off. Queues and index follow the
  log.
- After an orderly stop everything was on the disk. The log is walked from the last queued record on, and only
  changed if need be.
- After any other stop the log is walked from the newest file on that began before the checkpoint, and
  everything from there is dispatched again on the way. Files that may be in memory only are synced first.
- Neither queue nor index may refer to anything after the end of the log: new messages will get those offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from cometmq.model.errors import StoreError
from cometmq.store.checkpoint import Checkpoint
from cometmq.store.config import StoreConfig
from cometmq.store.dispatch.dispatcher import Dispatcher
from cometmq.store.dispatch_rules import QueuePosition, further_positions, is_queued
from cometmq.store.index.arrays import load_arrays
from cometmq.store.index.index import Index
from cometmq.store.log.commit_log import CommitLog
from cometmq.store.log.damage import next_in_file, whole_record
from cometmq.store.log.group_walk import GroupWalk, RecordGroup
from cometmq.store.log.mapped_files import MappedFile
from cometmq.store.queue.consume_queue import ConsumeQueue
from cometmq.store.queue.consume_queues import ConsumeQueues
from cometmq.store.queue.files import LOST_SIZE, Unit
from cometmq.store.recovery.index import IndexRecovery
from cometmq.store.recovery.log_repair import WHAT_TO_DO, DamagedStoreError, leave_hole, repair_damage
from cometmq.store.recovery.queue_ends import QueueName, RecoveryTables, ends_of
from cometmq.store.skipped import Skipped
from cometmq.wire.record.codec import Record, decode_record
from cometmq.wire.record.layout import MIN_RECORD_SIZE, RecordError, peek_queue_offset

log = logging.getLogger("cometmq.store")

_MOST_NAMED: Final = 5
_LONG_REPLAY_BYTES: Final = 256 * 1024 * 1024


class Recovered(msgspec.Struct, frozen=True):
    """The result of a recovery."""

    stopped_orderly: bool
    start: int
    """Where the walk of the log began."""
    end: int
    """Where the log ends."""
    records: int
    """How many records were walked."""


class _Measured(msgspec.Struct, frozen=True):
    """The result of a walk to the end of the log."""

    end: int
    records: int
    last_stored_ms: int
    latest_ms: int
    """The latest store time."""
    error: RecordError | None
    """Why the log ends there."""


class _MissingUnits(Exception):  # noqa: N818 - ends a walk, and is no error
    """A queue lacks units from a physical offset on."""

    def __init__(self, start: int) -> None:
        super().__init__(start)
        self.start = start


class Recovery:
    """The recovery of a store whose files are loaded. Blocks."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        index: Index,
        dispatcher: Dispatcher,
        checkpoint: Checkpoint,
        config: StoreConfig,
        skipped: Skipped,
        tables: RecoveryTables,
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint
        self._config = config
        self._skipped = skipped
        self._tables = tables
        self._start = 0
        """Where the replay begins."""

    def run(self, *, stopped_orderly: bool, repaired: bool = False) -> Recovered:
        """Recover; `repaired` if the log was changed in its middle."""
        ends = dict(self._tables.queue_ends or {})  # at the last orderly stop
        if not self._log.files.files:
            return self._begin_anew(ends, stopped_orderly=stopped_orderly)
        if self._config.recover_what_is_left:
            repaired |= repair_damage(self._log, self._config, self._skipped)
            stopped_orderly = False
            for name, offset in ends_of(self._queues).items():
                ends[name] = max(offset, ends.get(name, 0))
        built = self._queues.max_physical_offset
        if not self._config.recover_what_is_left and built > self._log.files.next_start:
            self._refuse_loss(_Measured(self._log.files.next_start, 0, 0, 0, None), built)
        start = self._orderly_start(built) if stopped_orderly else self._start_before_checkpoint()
        if repaired:
            start = self._log.min_offset
        measured = self._walk_to_end(start) if stopped_orderly else self._replay(start)
        end = measured.end
        if not self._config.recover_what_is_left:
            self._refuse_loss(measured, built if stopped_orderly else -1)
        if stopped_orderly:
            self._queues.truncate(end, self._is_right)
            self._bring_up_index(end)
            self._dispatch(max(start, built), end)
        lost = self._complete_queues(ends, end)  # may refuse; the log is unchanged up to here
        self._note_cut(measured)
        self._log.truncate(end)
        if lost:
            end = self._lose(lost, ends, max(built, end))
        if not stopped_orderly and (cleared := self._log.clear_after_end()):
            log.warning("%d bytes after the end of the log at %d were no records", cleared, end)
        self._log.store_timestamp_ms = self._log.flushed_timestamp_ms = measured.last_stored_ms
        self._dispatcher.position = end
        self._dispatcher.last_store_time_ms = measured.last_stored_ms
        self._queues.reset_next_offsets()
        self._queues.correct_min_offsets(self._log.min_offset)
        return Recovered(stopped_orderly, start, end, measured.records)

    def _begin_anew(self, ends: dict[QueueName, int], *, stopped_orderly: bool) -> Recovered:
        """Start without a log: queues and index have nothing to refer to."""
        built = self._queues.max_physical_offset
        if built > 0 and not self._config.recover_what_is_left:
            raise DamagedStoreError(
                f"{self._config.root} is damaged: it has no commit log, and messages up to {built} were in "
                f"queues; {WHAT_TO_DO}"
            )
        ends |= {(queue.topic, queue.queue_id): queue.max_offset for queue in self._queues}
        self._queues.destroy_all()
        self._index.cut_to(0)
        if self._config.recover_what_is_left:
            for topic, queue_id in ends:
                self._queues.get(topic, queue_id).lose_up_to(ends[topic, queue_id])
            self._queues.reset_next_offsets()
        return Recovered(stopped_orderly, 0, 0, 0)

    # Where to begin

    def _orderly_start(self, built: int) -> int:
        """The last queued record; if it does not match its unit, the beginning of a file."""
        for queue in self._queues:
            if built >= 0 and queue.max_physical_offset == built:
                unit = queue.unit(queue.max_offset - 1)
                if unit is not None and self._has(unit) and self._is_right(queue, queue.max_offset - 1, unit):
                    return unit[0]
        return self._newest_file(lambda mapped, _: mapped.start <= built)

    def _start_before_checkpoint(self) -> int:
        checkpoint = self._checkpoint
        return self._newest_file(lambda _, stored_ms: stored_ms <= checkpoint.min_timestamp)

    def _newest_file(self, is_old_enough: Callable[[MappedFile, int], bool]) -> int:
        """The beginning of the newest file whose first record is old enough; else of the first file."""
        files = self._log.files.files
        for mapped in reversed(files):
            view = self._log.record_at(mapped.start)
            # A torn record may have any store time.
            first = None if view is None else whole_record(view, mapped.start)
            if first is not None and is_old_enough(mapped, first.store_timestamp_ms):
                return mapped.start
        return files[0].start

    # Walk and replay

    def _walk_to_end(
        self, start: int, each: Callable[[RecordGroup | Record], None] | None = None
    ) -> _Measured:
        """Walk to the end of the log, with a call for each group or record."""
        walk = GroupWalk(
            self._log.files,
            start,
            check_crc=self._config.check_crc_on_recover,
            verify_record_crc=self._config.force_verify_prop_crc,
            one_by_one=self._config.enable_multi_dispatch,
        )
        records = last_stored_ms = latest_ms = 0
        for found in walk:
            if each is not None:
                each(found)
            count, last_stored_ms = _extent(found)
            latest_ms = max(latest_ms, last_stored_ms)
            records += count
        return _Measured(walk.position, records, last_stored_ms, latest_ms, walk.error)

    def _replay(self, start: int) -> _Measured:
        """Walk to the end of the log, and dispatch everything on the way.

        All units that may not have been on the disk are written anew: some may be missing, torn, or left from
        an earlier queue.
        """
        self._start = start
        self._sync_from(start)
        if self._log.max_offset - start > _LONG_REPLAY_BYTES:
            load_arrays()  # saves 0.3 s for every million keys
        self._queues.truncate(start, self._is_right)
        self._bring_up_index(start)
        checked: set[tuple[str, int]] = set()

        def dispatch(found: RecordGroup | Record) -> None:
            gap = self._gap_before(found, checked)
            if gap is not None:
                raise _MissingUnits(gap)
            self._must(self._dispatcher.dispatch_found(found))

        while True:
            try:
                return self._walk_to_end(start, dispatch)
            except _MissingUnits as missing:
                self._dispatch(min(missing.start, start), start)  # they come first

    def _gap_before(self, found: RecordGroup | Record, checked: set[tuple[str, int]]) -> int | None:
        """Where missing units begin that should precede those of a group; None if none are missing.

        The checkpoint of Apache's store may claim more about its queues than is true.
        """
        if isinstance(found, RecordGroup):
            firsts = [(each.topic, each.queue_id, each.first_offset) for each in found.queues]
        else:
            firsts = [(found.topic, found.queue_id, found.queue_offset)] if is_queued(found.sys_flag) else []
        gap: int | None = None
        for topic, queue_id, first_offset in firsts:
            if (topic, queue_id) in checked:
                continue
            checked.add((topic, queue_id))
            queue = self._queues.find(topic, queue_id)
            if queue is None and self._is_known(topic):
                queue = self._dispatcher.queue_of(topic, queue_id)
            if queue is None or first_offset <= queue.max_offset:
                continue
            queue.shift = self._shift(queue)
            missing = max(queue.max_physical_offset, self._log.min_offset)
            if not queue.shift and missing < self._start:
                log.warning(
                    "%s-%d has no units from %d to %d", topic, queue_id, queue.max_offset, first_offset
                )
                gap = missing if gap is None else min(gap, missing)
        return gap

    def _has(self, unit: Unit) -> bool:
        return unit[0] >= self._log.min_offset

    def _is_right(self, queue: ConsumeQueue, queue_offset: int, unit: Unit) -> bool:
        """Whether the record of a unit has this position in the queue, or expired."""
        if not self._has(unit) or unit[1] == LOST_SIZE:
            return True
        view = self._log.record_at(unit[0])
        if view is None or len(view) != unit[1]:
            return False
        try:
            record = decode_record(view)
        except RecordError:
            return False
        positions = [QueuePosition(record.topic, record.queue_id, record.queue_offset)]
        if self._config.enable_multi_dispatch:
            positions += further_positions(record.properties_block, record.queue_id)
        return record.physical_offset == unit[0] and any(
            (topic, queue_id) == (queue.topic, queue.queue_id)
            and (offset == queue_offset or offset - queue_offset == self._shift(queue))
            for topic, queue_id, offset in positions
        )

    def _shift(self, queue: ConsumeQueue) -> int:
        """The shift of a queue's offsets, which Apache's queues can have; see `ConsumeQueue.shift`."""
        unit = queue.unit(queue.min_offset)
        view = None if unit is None else self._log.record_at(unit[0])
        if view is None or self._config.enable_multi_dispatch:
            return 0
        return peek_queue_offset(view, 0) - queue.min_offset

    # Losses

    def _refuse_loss(self, measured: _Measured, built: int) -> None:
        """Refuse a log that ends too early: it is damaged, or files at its end are missing.

        After an orderly stop it has to contain every queued message, otherwise those before the checkpoint.
        """
        if measured.end < built:
            what = f"messages up to {built} were in queues"
        elif measured.latest_ms < self._checkpoint.physic_msg_timestamp:
            what = f"messages stored at {self._checkpoint.physic_msg_timestamp} ms were on the disk"
        else:
            return
        why = "" if measured.error is None else f" ({measured.error.message})"
        raise DamagedStoreError(
            f"{self._config.root} is damaged: its commit log ends at {measured.end}{why}, and {what}; "
            f"{WHAT_TO_DO}"
        )

    def _note_cut(self, measured: _Measured) -> None:
        """Log what is cut off at the end of the log, if it contains records."""
        mapped = self._log.files.at(measured.end)
        if mapped is None or measured.error is None:
            return
        at = measured.end - mapped.start
        written = ((max(start, at + 1), end) for start, end in mapped.file.data_ranges(at))
        following = (each.start for each in self._log.files.files if each.start > mapped.start)
        if any(next_in_file(mapped, *part) is not None for part in written) or any(
            map(self._log.record_at, following)
        ):
            self._skipped.log_range(
                measured.end,
                self._log.max_offset,
                f"they are cut off with all that follows, because of what is {measured.error.message}",
            )

    def _is_known(self, topic: str) -> bool:
        known = self._tables.known_topics
        return known is None or topic in known

    def _complete_queues(self, ends: Mapping[QueueName, int], end: int) -> list[QueueName]:
        """Dispatch the log again for queues that are shorter than they were; returns those that still are."""
        short = [
            name for name, offset in ends.items() if self._end_of(*name) < offset and self._is_known(name[0])
        ]
        if not short:
            return []
        named = ", ".join(f"{topic}-{queue_id}" for topic, queue_id in sorted(short)[:_MOST_NAMED])
        log.warning(
            "%d queues are shorter than they were (%s%s); their entries are made anew from the log",
            *(len(short), named, ", …" if len(short) > _MOST_NAMED else ""),
        )
        self._dispatch(self._log.min_offset, end)
        short = [name for name in short if self._end_of(*name) < ends[name]]
        for topic, queue_id in short:
            queue = self._queues.get(topic, queue_id)
            # The oldest messages expire first: while a queue has some, newer ones cannot have expired.
            if queue.max_physical_offset >= 0 and not self._config.recover_what_is_left:
                raise DamagedStoreError(
                    f"{self._config.root} is damaged: {topic}-{queue_id} had messages up to offset "
                    f"{ends[topic, queue_id]}, and the commit log up to {end} has those up to "
                    f"{queue.max_offset}; {WHAT_TO_DO}"
                )
        return short

    def _lose(self, names: list[QueueName], ends: Mapping[QueueName, int], built: int) -> int:
        """Extend queues to where they ended, and the log past their messages; returns its end."""
        if self._config.recover_what_is_left:
            lost = sum(ends[name] - self._end_of(*name) for name in names)
            leave_hole(self._log, max(built, self._log.max_offset + lost * MIN_RECORD_SIZE))
        for topic, queue_id in names:
            self._queues.get(topic, queue_id).lose_up_to(ends[topic, queue_id])
        return self._log.max_offset

    def _end_of(self, topic: str, queue_id: int) -> int:
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    # Dispatch

    def _sync_from(self, start: int) -> None:
        """Sync files that a killed process may have left in memory."""
        for mapped in self._log.files.files:
            if mapped.end > start:
                mapped.file.sync()

    def _bring_up_index(self, limit: int) -> None:
        """Make the index contain the keys of all records before an offset, and no others."""
        if self._config.message_index_enable:
            try:
                IndexRecovery(self._log, self._queues, self._index).bring_up_to(limit)
            except OSError as error:
                raise StoreError(
                    f"the index cannot be brought up to the log: {error}; make room on the disk"
                ) from error
        else:
            self._index.mend(limit, self._log.store_time)

    def _dispatch(self, start: int, end: int) -> None:
        """Dispatch a range of the log."""
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
    """The number of records, and the store time of the last."""
    if isinstance(found, RecordGroup):
        return found.count, found.last_stored_ms
    return 1, found.store_timestamp_ms
