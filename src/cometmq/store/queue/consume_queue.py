"""One consume queue: the physical offsets of a queue's messages, in order.

Rules kept here:
- The unit of queue offset n is at byte 20 × n of the files. A unit is written once; writing it again only
  repairs what a crash tore, so that recovery may dispatch a record twice.
- A queue that does not begin with offset 0 has blank units before its first message. Nobody reads them.
- One thread writes, reads and detaches files. `sync` and `erase` block and belong on another, one after the
  other; everything else that blocks belongs to start and stop.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Final

from cometmq.ports.disk import Disk
from cometmq.store.log.mapped_files import MappedFile
from cometmq.store.queue.extension import ConsumeQueueExt, is_ext_address
from cometmq.store.queue.files import (
    BLANK_SIZE,
    LOST_SIZE,
    UNIT,
    UNIT_SIZE,
    FolderFiles,
    QueueFiles,
    Unit,
    sum_of_sizes,
)
from cometmq.store.queue.open_files import OpenFiles
from cometmq.store.skipped import Skipped
from cometmq.wire.record.layout import MIN_RECORD_SIZE

log = logging.getLogger("cometmq.store")

_SHORT: Final = 2048
"""Up to this size, units are written in memory: a system call would cost more."""

_LOST = "the commit log has lost them"

StoreTime = Callable[[int, int], int]
"""The store time of the record at a physical offset, of a size; -1 if it is gone."""

_AFTER_EVERYTHING: Final = 2**63 - 1
UnitCheck = Callable[[int, Unit], bool]
"""Whether the record of a unit has this queue offset."""


class Boundary(Enum):
    """Which message around a point in time is meant."""

    LOWER = "LOWER"
    """The first at or after it."""
    UPPER = "UPPER"
    """The last at or before it."""


class ConsumeQueue:
    """The queue of one topic and queue id."""

    __slots__ = (
        "_files",
        "_found_last",
        "_min_physical_offset",
        "_skipped",
        "ext",
        "max_offset",
        "max_physical_offset",
        "min_offset",
        "next_offset",
        "queue_id",
        "shift",
        "topic",
        "written_size",
    )

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        file_size: int,
        *,
        ext: ConsumeQueueExt | None = None,
        writable: bool = True,
        skipped: Skipped | None = None,
        open_files: OpenFiles | None = None,
    ) -> None:
        """The folder is `<topic>/<queue id>` in the folder of all queues; for `open_files` see there."""
        self.topic = folder.parent.name
        self.queue_id = int(folder.name)
        self.min_offset = 0
        """The offset of the first unit whose message still exists."""
        self._min_physical_offset = -1
        """The physical offset of that message; -1 if unknown."""
        self._found_last: tuple[int, Unit] | None = None
        """The last unit found at the start, with its offset."""
        self.max_offset = 0
        """The offset after the last unit."""
        self.next_offset = 0
        """The offset of the next message; ahead of `max_offset` while units wait to be written."""
        self.max_physical_offset = -1
        """Where the record of the last unit ends in the log; -1 without a unit."""
        self.written_size = 0
        """The total size of the messages queued since the start."""
        self.shift = 0
        """Offsets in records minus those of their units; Apache's queues can have such a shift."""
        self.ext = ext
        self._skipped = skipped
        self._files = QueueFiles(disk, folder, file_size, writable=writable, open_files=open_files)

    # Writing

    def append(self, physical_offset: int, size: int, tags_code: int, queue_offset: int) -> bool:
        """Write the unit of a message; False if the queue has it already."""
        end = physical_offset + size
        files = self._files
        if end <= self.max_physical_offset:
            files.repair(queue_offset, UNIT.pack(physical_offset, size, tags_code))
            return False
        last = files.last
        if last is None or queue_offset != self.max_offset or last.wrote >= files.full_at:
            last = self._make_room(queue_offset, (physical_offset, size, tags_code))
            if last is None:
                return False
        at = last.wrote
        UNIT.pack_into(last.buffer, at, physical_offset, size, tags_code)
        last.wrote = after = at + UNIT_SIZE
        if last.report is not None:
            last.report(at, after)
        self.max_offset += 1
        self.max_physical_offset = end
        self.written_size += size
        return True

    def append_many(
        self, queue_offset: int, starts: Sequence[int], sizes: Sequence[int], tags_codes: Sequence[int]
    ) -> None:
        """Write the units of messages with consecutive offsets, by columns."""
        self.append_packed(queue_offset, b"".join(map(UNIT.pack, starts, sizes, tags_codes)))

    def append_packed(self, queue_offset: int, units: bytes) -> None:
        """Write packed units."""
        done, count = 0, len(units) // UNIT_SIZE
        while done < count:
            last = self._files.last
            room = 0 if last is None else -(-(self._files.full_at - last.wrote) // UNIT_SIZE)
            physical_offset, size, code = UNIT.unpack_from(units, done * UNIT_SIZE)
            if (
                last is None
                or room <= 0
                or queue_offset + done != self.max_offset
                or physical_offset < self.max_physical_offset
            ):
                self.append(physical_offset, size, code, queue_offset + done)
                done += 1
                continue
            upto = min(done + room, count)
            at, written = last.wrote, units[done * UNIT_SIZE : upto * UNIT_SIZE]
            last.wrote = after = at + len(written)
            if len(written) <= _SHORT:
                last.buffer[at:after] = written
                last.file.wrote(at, after)
            else:
                last.file.write_through(at, written)
            self.written_size += sum_of_sizes(written)
            self.max_offset += upto - done
            physical_offset, size, _ = UNIT.unpack_from(units, (upto - 1) * UNIT_SIZE)
            self.max_physical_offset = physical_offset + size
            done = upto

    def _make_room(self, queue_offset: int, unit: Unit) -> MappedFile | None:
        """The file with room for a unit of a queue offset; None if the queue has that offset already."""
        if queue_offset != self.max_offset:
            if self.max_physical_offset < 0:
                self._files.begin_at(queue_offset)
                self._min_physical_offset = -1
                self.min_offset = self.max_offset = queue_offset
            elif queue_offset == 0:  # the topic was deleted and made anew
                self._files.remove_all()
                self._min_physical_offset = -1
                self.min_offset = self.max_offset = 0
            elif queue_offset < self.max_offset and self._files.repair(queue_offset, UNIT.pack(*unit)):
                self.max_physical_offset = unit[0] + unit[1]
                return None
            elif 0 < queue_offset < self.max_offset:
                return None
            elif 0 < queue_offset - self.max_offset <= self._could_be_lost(unit[0]) and not self.shift:
                self.lose_up_to(queue_offset)
            elif queue_offset - self.max_offset != self.shift:
                # Apache's queues append such a unit, whatever its offset is.
                self.shift = queue_offset - self.max_offset
                log.error(
                    "queue %s-%d expected the unit of offset %d and got that of %d",
                    *(self.topic, self.queue_id, self.max_offset, queue_offset),
                )
        return self._files.make_room()

    def _could_be_lost(self, physical_offset: int) -> int:
        """How many messages can have been between the last one and a physical offset."""
        return (physical_offset - self.max_physical_offset) // MIN_RECORD_SIZE

    def lose_up_to(self, queue_offset: int) -> None:
        """Extend the queue to an offset with lost units."""
        if self._skipped is not None:
            count = queue_offset - self.max_offset
            self._skipped.message(self.topic, self.queue_id, self.max_offset, _LOST, count=count)
        if self.max_physical_offset < 0:
            self._files.begin_at(queue_offset)
            self._min_physical_offset = -1
            self.min_offset = self.max_offset = queue_offset
            return
        unit = UNIT.pack(self.max_physical_offset, LOST_SIZE, 0)
        while self.max_offset < queue_offset:
            last = self._files.make_room()
            at = last.wrote
            last.buffer[at : at + UNIT_SIZE] = unit
            last.wrote = at + UNIT_SIZE
            last.file.wrote(at, last.wrote)
            self.max_offset += 1

    def detach(self) -> None:
        """Take no more units, because the files are about to be removed."""
        self.max_physical_offset = _AFTER_EVERYTHING

    # Reading

    def read(self, queue_offset: int, count: int) -> bytes | bytearray:
        """The packed units from an offset on, at most `count`, up to the end of their file."""
        if not self.min_offset <= queue_offset < self.max_offset:
            return b""
        at = queue_offset * UNIT_SIZE
        mapped = self._files.at(at)
        if mapped is None:
            return b""
        at -= mapped.start
        try:
            return mapped.buffer[at : min(at + count * UNIT_SIZE, mapped.wrote)]
        except ValueError:  # the writing thread, which is another one, has just unmapped the file
            return b""

    def units(self, queue_offset: int, count: int) -> Iterator[Unit]:
        """The units from an offset on, as `read` returns them."""
        return UNIT.iter_unpack(self.read(queue_offset, count))

    def unit(self, queue_offset: int) -> Unit | None:
        """The unit of an offset; None without one."""
        return next(self.units(queue_offset, 1), None)

    def offset_by_time(self, time_ms: int, store_time: StoreTime, boundary: Boundary = Boundary.LOWER) -> int:
        """The offset of the message at a point in time.

        If all messages are before it, LOWER is the next offset; if all are after it, UPPER is 0.
        """
        offsets = range(self.min_offset, self.max_offset)

        def time_of(queue_offset: int) -> int:
            physical_offset, size, _ = self._files.unit(queue_offset)
            return store_time(physical_offset, size)

        if boundary is Boundary.LOWER:
            return offsets.start + bisect_left(offsets, time_ms, key=time_of)
        if not offsets:
            return max(self.max_offset - 1, 0)
        not_later = bisect_right(offsets, time_ms, key=time_of)
        return offsets.start + not_later - 1 if not_later else 0

    # Retention

    def correct_min_offset(self, log_start: int) -> None:
        """Let the queue begin with its first message that is still in the commit log."""
        if 0 <= log_start <= self._min_physical_offset:
            return  # without touching the files, which may not be mapped
        if 0 <= self.max_physical_offset <= log_start:
            self.min_offset = self.max_offset
            return
        first = max(self.min_offset, self._files.first_unit)
        offsets = range(first, self.max_offset)
        # A blank unit is at -1, before every log.
        self.min_offset = first + bisect_left(offsets, log_start, key=self._files.physical_offset)
        if self.min_offset < self.max_offset:
            self._min_physical_offset = self._files.physical_offset(self.min_offset)

    def begin_with(self, queue_offset: int) -> None:
        """Let the queue begin later; its files stay until the log has lost their messages."""
        self.min_offset = max(self.min_offset, min(queue_offset, self.max_offset))
        if self.min_offset < self.max_offset:
            self._min_physical_offset = self._files.physical_offset(self.min_offset)

    def detach_expired(self, log_start: int) -> list[MappedFile]:
        """Detach the files whose messages are all before the start of the log; `erase` deletes them."""
        self.correct_min_offset(log_start)
        expired = []
        for mapped in self._files.files[:-1]:
            if UNIT.unpack_from(self._files.map(mapped).buffer, mapped.size - UNIT_SIZE)[0] >= log_start:
                break
            self._files.detach(mapped)
            expired.append(mapped)
        return expired

    def erase(self, expired: Iterable[MappedFile]) -> None:
        """Delete detached files; blocks."""
        for mapped in expired:
            self._files.erase(mapped)
        unit = self.unit(self.min_offset)
        if self.ext is not None and unit is not None and is_ext_address(unit[2]):
            self.ext.remove_before(unit[2])

    # Upkeep: everything below blocks

    def load(self, *, crashed: bool = False) -> None:
        """Map the files and find the end of the queue; anything after it is dropped."""
        if crashed:
            self._files.forget_after_hole()
        self._files.load()
        self._end_at(self._files.find_end())
        if self.ext is not None:
            self.ext.load()
            self.ext.cut_after(self._last_ext_address())
        self.correct_min_offset(0)

    def truncate(self, log_end: int, is_right: UnitCheck | None = None) -> None:
        """Drop the units of all records from the end of the commit log on.

        The units before it are in order. Units after it may be torn, so that one seems to be before it: with
        `is_right`, the last unit that stays is one that its record agrees with.
        """
        found = self._found_last
        if (
            found is not None
            and found[0] == self.max_offset - 1
            and self.max_physical_offset <= log_end
            and (is_right is None or is_right(*found))
        ):
            return  # without touching the files, which may not be mapped any more
        files = self._files
        first = files.first_unit
        end = first + bisect_left(range(first, self.max_offset), log_end, key=files.physical_offset)
        while end > first:
            unit = files.unit(end - 1)
            if unit[1] == BLANK_SIZE or (unit[0] < log_end and (is_right is None or is_right(end - 1, unit))):
                break
            end -= 1
        if end < self.max_offset:
            self._end_at(end * UNIT_SIZE)
            self.min_offset = min(self.min_offset, end)
            if self.ext is not None:
                self.ext.cut_after(self._last_ext_address())

    def _end_at(self, end: int) -> None:
        self._files.end_at(end)
        self._min_physical_offset = -1
        self.max_offset = self.next_offset = end // UNIT_SIZE
        self.max_physical_offset = -1
        self._found_last = None
        if self.max_offset > self._files.first_unit:
            physical_offset, size, _ = unit = self._files.unit(self.max_offset - 1)
            if size != BLANK_SIZE:
                self.max_physical_offset = physical_offset + (0 if size == LOST_SIZE else size)
                self._found_last = self.max_offset - 1, unit

    def _last_ext_address(self) -> int | None:
        for queue_offset in range(self.max_offset - 1, self._files.first_unit - 1, -1):
            tags_code = self._files.unit(queue_offset)[2]
            if is_ext_address(tags_code):
                return tags_code
        return None

    @property
    def unsynced(self) -> int:
        """How many bytes may not be on the disk yet."""
        return self._files.unsynced

    def sync(self, renamed: list[FolderFiles] | None = None) -> None:
        """Sync everything written so far; for `renamed` see `FolderFiles.sync`."""
        if self.ext is not None:
            self.ext.sync(renamed)  # first, because units refer to it
        self._files.sync(renamed)

    def close(self) -> None:
        self._files.close()
        if self.ext is not None:
            self.ext.close()

    def destroy(self) -> None:
        """Remove the queue's files and folder."""
        self._files.destroy()
        if self.ext is not None:
            self.ext.destroy()
