"""Verifying index files: header, slots and chains, and the entries against the records of the log.

Rules kept here:
- The entries of a file, in order, determine its slots and links: each entry refers to the one before it in
  its slot, and a slot to the last. Nothing else is in the file.
- Entries have the order of the records, and every record of the log has an entry for each of its keys.
  Retention deletes an index file only after all of its records; records stored without an index are indexed
  by the next start with one.
- A record may have its entries twice: Apache's recovery repeats those of the last indexed one.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from cometmq.ports.disk import Buffer, Disk
from cometmq.store.dispatch_rules import index_keys, is_indexed
from cometmq.store.index.file import ENTRY, HEADER, SLOT, IndexHeader, IndexLayout, read_header
from cometmq.store.index.key_hash import key_hashes
from cometmq.store.tools.findings import Findings
from cometmq.store.tools.survey import FoundFile
from cometmq.wire.java_hash import java_hash
from cometmq.wire.record.codec import Record

_BYTES_AT_ONCE: Final = 4096 * ENTRY.size
_SECONDS_AT: Final = 12
_BEGIN_OFFSET_AT: Final = 16
_END_OFFSET_AT: Final = 24
_USED_SLOTS_AT: Final = 32
_MAX_SECONDS: Final = 0x7FFFFFFF


class IndexEntry(NamedTuple):
    """An entry and its position."""

    physical_offset: int
    key_hash: int
    path: Path
    position: int
    number: int
    seconds: int
    header: IndexHeader
    previous_end_ms: int | None
    """The end time of the file before it; None without one."""


class IndexCheck:
    """Compares the index with the records of the log, given in order."""

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        files: list[FoundFile],
        layout: IndexLayout,
        log_start: int,
        findings: Findings,
    ) -> None:
        self._findings = findings
        self._folder = folder
        self._log_start = log_start
        self._files = [found for found in files if found.size == layout.file_size]
        self._layout = layout
        self._disk = disk
        self.entries = 0
        for found in self._files:
            self._check_structure(found)
        self._coming = _in_order(self._all_entries())
        self._next = next(self._coming, None)
        self._missing: tuple[IndexEntry | None, int, int] = (None, 0, 0)
        self._last: IndexEntry | None = None
        self._wrong_times: set[Path] = set()

    def see(self, record: Record) -> None:
        """Compare a record with its entries."""
        self._pass_over(record.physical_offset)
        if not is_indexed(record.sys_flag):
            return
        self._compare(record, key_hashes(java_hash(f"{record.topic}#"), *index_keys(record)))

    def _compare(self, record: Record, hashes: list[int]) -> None:
        """Compare the entries of a record, and note missing ones."""
        at = 0
        while True:
            entry = self._next
            found = (
                None if entry is None or entry.physical_offset != record.physical_offset else entry.key_hash
            )
            if entry is not None and at < len(hashes) and found == hashes[at]:
                self._check_time(entry, record.store_timestamp_ms)
                self._take()
                at += 1
            elif at and found == hashes[0]:
                at = 0
            elif at < len(hashes):
                self._miss(record.physical_offset)
                at += 1
            else:
                return

    def finish(self) -> None:
        """Report entries without a record, and missing entries."""
        self._pass_over(None)
        self._report_missing()

    def _check_time(self, entry: IndexEntry, store_time_ms: int) -> None:
        """Compare the times in an entry and in the header with the record."""
        header = entry.header
        begin_ms, end_ms = header.begin_time_ms, header.end_time_ms
        if entry.number == 1 and begin_ms != store_time_ms:
            self._wrong_times.add(entry.path)
            self._findings.add(entry.path, 0, f"the time {store_time_ms} of the first message", begin_ms)
        if entry.number == header.next_number - 1 and end_ms != store_time_ms:
            self._findings.add(entry.path, 8, f"the time {store_time_ms} of the last message", end_ms)
        base_ms = begin_ms if entry.number > 1 else entry.previous_end_ms
        if base_ms is None or entry.path in self._wrong_times:
            return
        seconds = min(max((store_time_ms - base_ms) // 1000, 0), _MAX_SECONDS) if base_ms > 0 else 0
        if seconds != entry.seconds:
            position = entry.position + _SECONDS_AT
            self._findings.add(entry.path, position, f"a time of {seconds} seconds", entry.seconds)

    def _take(self) -> None:
        self._last = self._next
        self.entries += 1
        self._next = next(self._coming, None)

    def _pass_over(self, physical_offset: int | None) -> None:
        """Move on to the entries of a record; report those before it."""
        while (entry := self._next) is not None:
            if physical_offset is not None and entry.physical_offset >= physical_offset:
                return
            if entry.physical_offset >= self._log_start:
                found = f"one of {entry.physical_offset} with hash {entry.key_hash}"
                self._findings.add(entry.path, entry.position, "an entry of a message in the log", found)
            self._take()

    def _miss(self, physical_offset: int) -> None:
        """Note a missing entry; adjacent ones are reported together."""
        after, first, count = self._missing
        if count and after is not self._last:
            self._report_missing()
            first, count = physical_offset, 0
        self._missing = self._last, first if count else physical_offset, count + 1

    def _report_missing(self) -> None:
        after, first, count = self._missing
        if count:
            first_path = self._files[0].path if self._files else self._folder
            first_position = self._layout.entries_at + ENTRY.size if self._files else 0
            path = first_path if after is None else after.path
            position = first_position if after is None else after.position + ENTRY.size
            expected = f"entries for {count} keys of messages from {first} on"
            self._findings.add(path, position, expected, "none of them")
        self._missing = (None, 0, 0)

    def _all_entries(self) -> Iterator[IndexEntry]:
        # The first file ever counts from 0; the end of an expired file is unknown.
        end_ms = 0 if self._log_start == 0 else None
        for found in self._files:
            with closing(self._disk.open(found.path, writable=False)) as file:
                header = read_header(file.buffer)
                for number, position, (key_hash, offset, seconds, _) in _entries(
                    file.buffer, self._layout, header
                ):
                    yield IndexEntry(offset, key_hash, found.path, position, number, seconds, header, end_ms)
                end_ms = header.end_time_ms

    def _check_structure(self, found: FoundFile) -> None:
        with closing(self._disk.open(found.path, writable=False)) as file:
            header = read_header(file.buffer)
            if not 0 <= header.next_number <= self._layout.entries:
                expected = f"a number of entries up to {self._layout.entries}"
                self._findings.add(found.path, HEADER.size - SLOT.size, expected, header.next_number)
            slots = self._check_chains(found.path, file.buffer, header)
            self._check_slots(found.path, file.buffer, slots, header)
            end_of_entries = self._layout.entries_at + max(header.next_number, 1) * ENTRY.size
            for start, end in (
                (self._layout.entries_at, self._layout.entries_at + ENTRY.size),
                (end_of_entries, file.size),
            ):
                expected = "nothing where no entry is"
                self._findings.expect_nothing(found.path, file.buffer, start, min(end, file.size), expected)

    def _check_chains(self, path: Path, buffer: Buffer, header: IndexHeader) -> array[int]:
        """Follow the entries in order; returns the expected slots."""
        slots = array("i", bytes(self._layout.slots * SLOT.size))
        last_offset = header.begin_offset
        for number, position, (key_hash, physical_offset, seconds, previous) in _entries(
            buffer, self._layout, header
        ):
            if number == 1 and physical_offset != header.begin_offset:
                expected = f"the offset {physical_offset} of the first entry"
                self._findings.add(path, _BEGIN_OFFSET_AT, expected, header.begin_offset)
            if key_hash < 0 or seconds < 0:
                expected = "an entry with a hash and a time that are not negative"
                self._findings.add(path, position, expected, f"{key_hash} and {seconds}")
            slot = key_hash % self._layout.slots
            if previous != slots[slot]:
                expected = f"a link to entry {slots[slot]} of slot {slot}"
                self._findings.add(path, position + ENTRY.size - SLOT.size, expected, previous)
            slots[slot] = number
            if not last_offset <= physical_offset <= header.end_offset:
                expected = f"an offset from {last_offset} to {header.end_offset}"
                self._findings.add(path, position + SLOT.size, expected, physical_offset)
            else:
                last_offset = physical_offset
        if header.next_number > 1 and last_offset != header.end_offset:
            expected = f"the offset {last_offset} of the last entry"
            self._findings.add(path, _END_OFFSET_AT, expected, header.end_offset)
        return slots

    def _check_slots(self, path: Path, buffer: Buffer, slots: array[int], header: IndexHeader) -> None:
        expected_slots = array("i", slots)
        if sys.byteorder == "little":
            expected_slots.byteswap()
        end = self._layout.entries_at
        if bytes(buffer[HEADER.size : end]) != expected_slots.tobytes():
            for slot, (number,) in enumerate(SLOT.iter_unpack(buffer[HEADER.size : end])):
                if number != slots[slot]:
                    position = HEADER.size + slot * SLOT.size
                    self._findings.add(path, position, f"entry {slots[slot]} in slot {slot}", number)
        used = self._layout.slots - slots.count(0)
        if header.used_slots != used:
            self._findings.add(path, _USED_SLOTS_AT, f"{used} slots in use", header.used_slots)


def _entries(
    buffer: Buffer, layout: IndexLayout, header: IndexHeader
) -> Iterator[tuple[int, int, tuple[int, int, int, int]]]:
    """Number, position and fields of every entry."""
    end = layout.entries_at + min(header.next_number, layout.entries) * ENTRY.size
    number = 1
    for start in range(layout.entries_at + ENTRY.size, end, _BYTES_AT_ONCE):
        chunk = buffer[start : min(start + _BYTES_AT_ONCE, end)]
        for entry in ENTRY.iter_unpack(chunk):
            yield number, layout.entries_at + number * ENTRY.size, entry
            number += 1


def _in_order(entries: Iterator[IndexEntry]) -> Iterator[IndexEntry]:
    """Leave out damaged entries that are out of order: nothing after them could be compared."""
    last_offset = -1
    current = next(entries, None)
    while current is not None:
        following = next(entries, None)
        is_last = following is None or following.physical_offset < last_offset
        if last_offset <= current.physical_offset and (
            is_last or current.physical_offset <= following.physical_offset  # type: ignore[union-attr]
        ):
            last_offset = current.physical_offset
            yield current
        current = following
