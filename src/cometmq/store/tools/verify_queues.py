"""Verifying consume queues: every unit against its record, every record against its unit.

Rules kept here:
- The units of a queue are, in this order: blanks, units of expired records, and one unit for each record of
  the queue in the log. Nothing follows them.
- The records of a queue have offsets without a gap, except for lost units, as after a start with
  `--recover-what-is-left`. Offsets restart at 0 where a topic was deleted and made anew; then the queue has
  units of the newer messages only.
- A topic that the broker does not know has no queues, although the log may still have its records.
- Units with an extension say nothing about tags. Units of delayed messages are compared with each other if
  the delays of the levels are not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from cometmq.model.message_properties import TAGS
from cometmq.ports.disk import Buffer, Disk
from cometmq.store.dispatch_rules import (
    DelayLevels,
    QueuePosition,
    delay_level,
    further_positions,
    is_in_queue,
    is_queued,
)
from cometmq.store.log.reader import LogReader
from cometmq.store.queue.consume_queue import ConsumeQueue
from cometmq.store.queue.extension import is_ext_address
from cometmq.store.queue.files import BLANK_SIZE, LOST_SIZE, UNIT, UNIT_SIZE, Unit
from cometmq.store.tools.findings import Findings, first_set_byte
from cometmq.store.tools.survey import QUEUE_FOLDER, FoundQueue, Survey
from cometmq.wire.java_hash import tags_code
from cometmq.wire.record.codec import Record, decode_record
from cometmq.wire.record.layout import RecordError
from cometmq.wire.record.properties import find_property

QueueName = tuple[str, int]

_EXT_ADDRESSES: Final = 1 << 63
"""Added to the address of an extension, this is its position in the files."""
_BLANK: Final = (0, BLANK_SIZE, 0)
_BYTES_AT_ONCE: Final = 4096 * UNIT_SIZE


class _Progress:
    """Counts for one queue."""

    __slots__ = ("first_missing", "matched", "missing", "next_offset", "reported")

    def __init__(self) -> None:
        self.next_offset = -1
        self.matched = 0
        self.missing = 0
        self.first_missing = -1
        self.reported: set[int] = set()


class QueueCheck:
    """Compares queues with the records of the log, given in order."""

    def __init__(
        self,
        queues: Mapping[QueueName, ConsumeQueue],
        survey: Survey,
        log: LogReader,
        levels: DelayLevels | None,
        findings: Findings,
    ) -> None:
        self._queues = queues
        self._survey = survey
        self._log = log
        self._levels = levels
        self._findings = findings
        self._learned_delays: dict[int, int] = {}
        self._progress: dict[QueueName, _Progress] = {}
        self._leftovers: set[tuple[Path, int]] = set()
        self._ext_ends = {(found.topic, found.queue_id): _end_of(found) for found in survey.ext_queues}

    def see(self, record: Record) -> None:
        """Compare a record with its units."""
        if not is_queued(record.sys_flag) or record.topic in self._survey.batch_topics:
            return
        self._see_at(record, QueuePosition(record.topic, record.queue_id, record.queue_offset))
        for position in further_positions(record.properties_block, record.queue_id):
            if position[:2] in self._queues:
                self._see_at(record, position)

    def _see_at(self, record: Record, position: QueuePosition) -> None:
        queue = self._queues.get(position[:2])
        known = self._survey.known_topics
        if queue is None and known is not None and position.topic not in known:
            return
        progress = self._progress.get(position[:2])
        if progress is None:
            progress = self._progress[position[:2]] = _Progress()
        self._check_density(record, position, progress)
        unit = None if queue is None else queue.unit(position.queue_offset)
        if unit is None:
            progress.missing += 1
            if progress.first_missing < 0:
                progress.first_missing = position.queue_offset
        elif unit[:2] == (record.physical_offset, record.total_size) and self._is_code(
            record, position, unit
        ):
            progress.matched += 1
        elif not (
            unit[0] > record.physical_offset and self._agrees(position[:2], position.queue_offset, unit)
        ):
            progress.reported.add(position.queue_offset)
            self._report(position, f"a unit of {record.physical_offset}, {record.total_size}", unit)

    def _check_density(self, record: Record, position: QueuePosition, progress: _Progress) -> None:
        expected = progress.next_offset
        if position.queue_offset == 0 and expected > 0:  # the topic was deleted and made anew
            progress.matched = progress.missing = 0
            progress.first_missing = -1
        elif expected >= 0 and position.queue_offset != expected and not self._are_lost(position, expected):
            mapped = self._log.files.at(record.physical_offset)
            if mapped is not None:
                self._findings.add(
                    mapped.file.path,
                    record.physical_offset - mapped.start,
                    f"offset {expected} in queue {position.queue_id} of {position.topic}",
                    position.queue_offset,
                )
        progress.next_offset = position.queue_offset + 1

    def _are_lost(self, position: QueuePosition, first: int) -> bool:
        """Whether the queue says that the messages from an offset up to a record are lost."""
        queue = self._queues.get(position[:2])
        units = [] if queue is None else [queue.unit(first), queue.unit(position.queue_offset - 1)]
        return first < position.queue_offset and all(
            unit is not None and unit[1] == LOST_SIZE for unit in units
        )

    def _is_code(self, record: Record, position: QueuePosition, unit: Unit) -> bool:
        """Whether the tags code of a unit is right."""
        code = unit[2]
        if is_ext_address(code):
            return code + _EXT_ADDRESSES < self._ext_ends.get(position[:2], 0)
        level = delay_level(record.topic, record.properties_block)
        if level:
            delay_ms = code - record.store_timestamp_ms
            if self._levels is not None:
                return delay_ms == self._levels.delay_ms(level)
            return delay_ms == self._learned_delays.setdefault(level, delay_ms)
        tags = find_property(record.properties_block, TAGS)
        return code == (tags_code(tags) if tags else 0)

    def _agrees(self, name: QueueName, queue_offset: int, unit: Unit) -> bool:
        """Whether the record of a unit has this queue offset."""
        view = self._log.record_at(unit[0])
        if view is None or len(view) != unit[1]:
            return False
        try:
            record = decode_record(view)
        except RecordError:
            return False
        position = QueuePosition(*name, queue_offset)
        return is_in_queue(record, position) and self._is_code(record, position, unit)

    def finish(self, disk: Disk) -> None:
        """Report missing units, and units without a record."""
        for name, progress in self._progress.items():
            if progress.missing:
                position = QueuePosition(*name, progress.first_missing)
                self._report(
                    position, f"units of {progress.missing} messages in the log", "the end of the queue"
                )
        for found in self._survey.queues:
            queue = self._queues.get((found.topic, found.queue_id))
            if queue is not None:
                self._check_units(disk, found, queue)

    def _check_units(self, disk: Disk, found: FoundQueue, queue: ConsumeQueue) -> None:
        """Check every unit; if their number differs from that of the records, against the records again."""
        name = found.topic, found.queue_id
        progress = self._progress.get(name) or _Progress()
        last, live = -1, 0
        for queue_offset, unit in self._units(disk, found, queue):
            if unit[1] == BLANK_SIZE:
                if unit != _BLANK or last >= 0:
                    self._report_unit(name, queue_offset, "a blank unit before all others", unit)
                continue
            if unit[1] == LOST_SIZE and unit[0] >= last:
                continue
            if unit[0] <= last:
                self._report_unit(name, queue_offset, f"a unit of more than {last}", unit)
            last = max(last, unit[0])
            live += unit[0] >= self._log.min_offset
        if live == progress.matched:
            return
        for queue_offset, unit in self._units(disk, found, queue):
            if (
                queue_offset not in progress.reported
                and unit[0] >= self._log.min_offset
                and unit[1] not in (BLANK_SIZE, LOST_SIZE)
                and not self._agrees(name, queue_offset, unit)
            ):
                self._report_unit(name, queue_offset, "a unit of a message in the log", unit)

    def _units(self, disk: Disk, found: FoundQueue, queue: ConsumeQueue) -> Iterator[tuple[int, Unit]]:
        """Every unit of a queue with its offset; reports bytes after the last one."""
        end = queue.max_offset * UNIT_SIZE
        for each in found.files:
            if not each.size:
                continue
            with closing(disk.open(each.path, writable=False, scattered=True)) as file:
                start = int(each.path.name)
                wrote = min(max(end - start, 0), file.size)
                for at in range(0, wrote, _BYTES_AT_ONCE):
                    chunk = file.buffer[at : min(at + _BYTES_AT_ONCE, wrote)]
                    yield from enumerate(UNIT.iter_unpack(chunk), (start + at) // UNIT_SIZE)
                self._expect_nothing(each.path, file.buffer, wrote, file.size)

    def _expect_nothing(self, path: Path, buffer: Buffer, start: int, end: int) -> None:
        found_at = first_set_byte(buffer, start, end)
        if found_at is not None and (path, found_at) not in self._leftovers:
            self._leftovers.add((path, found_at))
            found = f"{buffer[found_at]:#04x}"
            self._findings.add(path, found_at, "nothing after the end of the queue", found)

    def _report_unit(self, name: QueueName, queue_offset: int, expected: str, unit: Unit) -> None:
        self._progress.setdefault(name, _Progress()).reported.add(queue_offset)
        self._report(QueuePosition(*name, queue_offset), expected, unit)

    def _report(self, position: QueuePosition, expected: str, found: object) -> None:
        at = position.queue_offset * UNIT_SIZE
        size = self._survey.queue_file_size
        start = at - at % size if size else 0
        folder = self._survey.root / QUEUE_FOLDER / position.topic / str(position.queue_id)
        self._findings.add(folder / f"{start:020}", at - start, expected, found)


def _end_of(found: FoundQueue) -> int:
    """The end of the last file."""
    return max((int(file.path.name) + file.size for file in found.files), default=0)
