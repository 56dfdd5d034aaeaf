"""The timer log: one record a timer, chained backwards to the previous timer of the same moment.

Rules kept here:
- A record has 52 bytes and lies in one file. It leaves at least 16 bytes of it free; a filler there says that
  the log continues in the next file.
- The size makes a record and is written last, so that a process killed at any instant leaves a whole record
  or none. A record whose second half was lost by the disk has no message size, and does not count.
- Anything after the end is erased, on the disk too, before something is appended there: old records never
  come back between new ones.
- At a start the log counts as far as its records are whole and their messages exist; the wheel is made to
  contain exactly these.
- One thread appends and reads; `sync` and `erase` block and belong on a worker thread; `load`, `scan`,
  `truncate` and `recover_timers` belong to the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from cometmq.model.errors import StoreError
from cometmq.ports.disk import Disk
from cometmq.store.log.mapped_files import MappedFile, MappedFiles, erase_after
from cometmq.store.timer.wheel import TimerWheel
from cometmq.wire.record.layout import MAGIC_FILLER

RECORD_SIZE: Final = 52
NO_POSITION: Final = -1
"""Stands for "no previous record"."""

MAGIC_DEFAULT: Final = 1
MAGIC_ROLL: Final = 2
"""The message is too far away, and is put into the wheel once more."""
MAGIC_DELETE: Final = 4
"""The message cancels another one."""

_MAGIC_BITS: Final = 0xF
_FILLER_SIZE: Final = 16
_RESERVE_STEP: Final = 64 * 1024
_NO_END: Final = 2**63

_SIZE: Final = Struct(">i")
_RECORD: Final = Struct(">iqIqiqii8x")
_FIELDS: Final = Struct(">qIqiqii8x")
"""A record after its size."""
_FILLER: Final = Struct(">qI")


MARGIN: Final = 1024 * 1024
"""How far before the position of the checkpoint the wheel is revised."""


class TimerRecord(NamedTuple):
    """A timer in the log."""

    position: int
    previous: int
    """The position of the previous timer of the same moment, or `NO_POSITION`."""
    magic: int
    write_time_ms: int
    delay_ms: int
    """The time from its write time until it is due."""
    commit_log_offset: int
    message_size: int
    topic_hash: int
    """Java's hash of the real topic of the message."""

    @property
    def due_ms(self) -> int:
        return self.write_time_ms + self.delay_ms


class TimerLog:
    """All timers whose messages still exist."""

    def __init__(self, disk: Disk, folder: Path, file_size: int) -> None:
        if file_size < RECORD_SIZE + _FILLER_SIZE:
            raise StoreError(f"{folder}: a timer log file of {file_size} bytes holds no record")
        self._disk = disk
        self._files = MappedFiles(disk, folder, file_size)
        self._last: MappedFile | None = None
        self._named_to = 0

    @property
    def min_position(self) -> int:
        return self._files.min_offset

    @property
    def end(self) -> int:
        """The position after the last record."""
        return self._files.max_offset

    def load(self) -> None:
        """Map the files; where the log ends is known after `scan` and `truncate`."""
        self._files.load()
        for mapped in self._files.files:
            mapped.flushed = 0  # an earlier process may have left them in memory only
        self._last = self._files.files[-1] if self._files.files else None

    def append(
        self,
        previous: int,
        magic: int,
        write_time_ms: int,
        delay_ms: int,
        commit_log_offset: int,
        message_size: int,
        topic_hash: int,
    ) -> int:
        """Append a record; returns its position."""
        mapped = self._last
        if mapped is None or mapped.wrote + RECORD_SIZE + _FILLER_SIZE > mapped.size:
            mapped = self._roll(mapped)
        at = mapped.wrote
        end = at + RECORD_SIZE
        if end > mapped.reserved:
            mapped.reserve(end, _RESERVE_STEP)
        _FIELDS.pack_into(
            mapped.buffer, at + 4, previous, magic, write_time_ms, delay_ms, commit_log_offset, message_size,
            topic_hash,
        )  # fmt: skip
        mapped.file.wrote(at + 4, end)
        _SIZE.pack_into(mapped.buffer, at, RECORD_SIZE)
        mapped.file.wrote(at, at + 4)
        mapped.wrote = end
        return mapped.start + at

    def _roll(self, full: MappedFile | None) -> MappedFile:
        """Begin the next file; a failure leaves everything as it was."""
        if full is None:
            self._last = self._files.add(self._files.create(0))
            return self._last
        at = full.wrote
        if not full.is_full:
            full.reserve(at + _FILLER_SIZE, _RESERVE_STEP)
        fresh = self._files.create(full.end)
        if not full.is_full:
            _FILLER.pack_into(full.buffer, at + 4, 0, MAGIC_FILLER)
            _SIZE.pack_into(full.buffer, at, full.size - at)
            full.file.wrote(at, at + _FILLER_SIZE)
            full.wrote = full.size
        self._last = self._files.add(fresh)
        return fresh

    def read(self, position: int) -> TimerRecord | None:
        """The record at a position; None without one."""
        mapped = self._files.at(position)
        if mapped is None:
            return None
        at = position - mapped.start
        if at + RECORD_SIZE > mapped.wrote:
            return None
        size, *fields = _RECORD.unpack_from(mapped.buffer, at)
        record = TimerRecord(position, *fields)
        return record if _is_record(size, record.magic, record.message_size) else None

    def last(self) -> TimerRecord | None:
        """The newest record; None without one."""
        for mapped in reversed(self._files.files):
            count = min(mapped.wrote, mapped.size - _FILLER_SIZE) // RECORD_SIZE
            if count:
                return self.read(mapped.start + (count - 1) * RECORD_SIZE)
        return None

    def walk(self, last: int) -> Iterator[TimerRecord]:
        """The timers of one moment, from the last to the first, without those in deleted files."""
        position = last
        while position >= self._files.min_offset:
            record = self.read(position)
            if record is None or record.previous >= position:
                raise StoreError(
                    f"{self._files.folder}: the chain of timers that begins at {last} is broken at {position}"
                )
            yield record
            position = record.previous

    def scan(self, start: int, message_end: int | None = None) -> TimerLogScan:
        """All records from the file of a position on, oldest first.

        With `message_end`, the end of the commit log, the scan ends before the first record whose message was
        lost.
        """
        return TimerLogScan(self._files, start, message_end)

    def truncate(self, end: int) -> None:
        """Let the log end at a position, and erase the rest; the first file stays, even empty."""
        later = [mapped for mapped in self._files.files[1:] if mapped.start >= end]
        for mapped in later:
            self._files.remove(mapped)
        if later:
            self._disk.sync_folder(self._files.folder)  # none may come back under the name of a new one
        self._last = last = self._files.files[-1] if self._files.files else None
        if last is not None:
            last.wrote = min(last.wrote, max(end - last.start, 0))
            last.flushed = min(last.flushed, last.wrote)
            if erase_after(last.file, last.wrote):
                last.file.sync()
                last.flushed = last.wrote

    def sync(self) -> int:
        """Sync everything appended so far; returns up to which position."""
        newest = self._files.files[-1:]
        synced = self._files.sync()
        if newest and newest[0].start >= self._named_to:
            for folder in (self._files.folder, self._files.folder.parent):
                self._disk.sync_folder(folder)
            self._named_to = newest[0].end
        return synced

    def detach_expired(self, min_commit_log_offset: int) -> list[MappedFile]:
        """Detach the oldest files whose messages are all deleted, never the last one."""
        at = ((self._files.file_size - _FILLER_SIZE) // RECORD_SIZE - 1) * RECORD_SIZE
        expired: list[MappedFile] = []
        for mapped in self._files.files[:-1]:
            record = self.read(mapped.start + at)
            if record is None or record.commit_log_offset >= min_commit_log_offset:
                break
            expired.append(mapped)
        for mapped in expired:
            self._files.detach(mapped)
        return expired

    def erase(self, detached: Iterable[MappedFile]) -> None:
        """Delete detached files."""
        for mapped in detached:
            self._files.erase(mapped)

    def close(self) -> None:
        self._files.close()
        self._last = None


class TimerLogScan:
    """Iterate over `(position, due_ms, magic)`; `end` is after the last good record so far."""

    def __init__(self, files: MappedFiles, start: int, message_end: int | None) -> None:
        self._message_end = _NO_END if message_end is None else message_end
        later = [mapped for mapped in files.files if mapped.end > start]
        self._files = later or files.files[-1:]
        self.end = self._files[0].start if self._files else files.min_offset

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        for index, mapped in enumerate(self._files):
            if index and mapped.start != self.end:
                return  # the file before this one ends too early, or one is missing
            yield from self._scan(mapped)

    def _scan(self, mapped: MappedFile) -> Iterator[tuple[int, int, int]]:
        position = mapped.start
        self.end = position
        whole = mapped.wrote - mapped.wrote % RECORD_SIZE
        message_end = self._message_end
        for size, _, magic, write_time_ms, delay_ms, offset, message_size, _ in _RECORD.iter_unpack(
            mapped.view[:whole]
        ):
            if not _is_record(size, magic, message_size) or offset + message_size > message_end:
                break
            self.end = position + RECORD_SIZE
            yield position, write_time_ms + delay_ms, magic
            position = self.end
        self._pass_filler(mapped)

    def _pass_filler(self, mapped: MappedFile) -> None:
        at = self.end - mapped.start
        if at + _FILLER_SIZE <= mapped.wrote and mapped is not self._files[-1]:
            _, magic = _FILLER.unpack_from(mapped.buffer, at + 4)
            if magic == MAGIC_FILLER:
                self.end = mapped.end


def _is_record(size: int, magic: int, message_size: int) -> bool:
    return size == RECORD_SIZE and magic | _MAGIC_BITS == _MAGIC_BITS and message_size > 0


def recover_timers(log: TimerLog, wheel: TimerWheel, start: int, message_end: int | None = None) -> int:
    """Find the end of the log from a position on, and bring the wheel up to it; blocks.

    `message_end` is the end of the commit log.
    """
    scan = log.scan(start, message_end)
    for _ in scan:
        pass
    log.truncate(scan.end)
    cut_from = wheel.cut(log.end)
    unsure_from = max(start - MARGIN, 0) if cut_from is None else min(start, cut_from)
    for position, due_ms, magic in log.scan(unsure_from):
        if position >= unsure_from:
            wheel.revise(due_ms, position, -1 if magic & MAGIC_DELETE else 1)
    return log.end
