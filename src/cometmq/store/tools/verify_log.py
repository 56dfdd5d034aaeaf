"""Verifying the commit log: every record of every file, and the bytes between and after them.

Rules kept here:
- A file has records from its beginning on, then a filler for the rest or, only in the last file, nothing. All
  other bytes are zeros.
- After damage the check continues with the next record, so that one damaged range is one finding.
- Every whole record is returned, to be compared with queues and index.
"""

from __future__ import annotations

from collections.abc import Iterator

from cometmq.store.log.damage import is_intact, next_in_file
from cometmq.store.log.mapped_files import MappedFile
from cometmq.store.log.reader import LogReader
from cometmq.store.tools.findings import Findings, first_set_byte
from cometmq.wire.record.codec import Record, decode_record
from cometmq.wire.record.layout import HEAD, FillerError, RecordError


class LogCheck:
    """A walk through the whole log."""

    def __init__(self, log: LogReader, findings: Findings) -> None:
        self._files = log.files
        self._findings = findings
        self.records = 0
        self.last_store_time_ms = 0
        self.end = log.min_offset
        """Where the last record ends."""

    def __iter__(self) -> Iterator[Record]:
        for begin, end in self._files.gaps():
            before = self._files.at(begin - 1)
            if before is not None:
                self._findings.add(before.file.path, before.size, f"a next file from {begin} on", end)
        for mapped in self._files.files:
            for record in self._walk(mapped):
                self.records += 1
                self.last_store_time_ms = max(self.last_store_time_ms, record.store_timestamp_ms)
                self.end = record.physical_offset + record.total_size
                yield record

    def _walk(self, mapped: MappedFile) -> Iterator[Record]:
        position = 0
        while position < mapped.size:
            try:
                record = self._record(mapped, position)
            except FillerError:
                self._check_filler(mapped, position)
                return
            except RecordError as error:
                following = self._after_damage(mapped, position, error)
                if following is None:
                    return
                position = following
                continue
            position += record.total_size
            yield record

    def _record(self, mapped: MappedFile, position: int) -> Record:
        record = decode_record(mapped.view, position, mapped.size, check_crc=True)
        if record.physical_offset != mapped.start + position:
            raise RecordError(
                position, f"a record of offset {mapped.start + position}", f"one of {record.physical_offset}"
            )
        if not is_intact(mapped.view, position, record.total_size):
            raise RecordError(position, "a record with the checksum that it says", "another")
        return record

    def _check_filler(self, mapped: MappedFile, position: int) -> None:
        size, _ = HEAD.unpack_from(mapped.buffer, position)
        path, rest = mapped.file.path, mapped.size - position
        if size != rest:
            self._findings.add(path, position, f"a filler of the {rest} bytes that are left", size)
        after = position + HEAD.size
        expected = "nothing after the end of the log"
        self._findings.expect_nothing(path, mapped.buffer, after, mapped.size, expected)

    def _after_damage(self, mapped: MappedFile, position: int, error: RecordError) -> int | None:
        """Report damage; returns the position of the next record, or None without one."""
        is_last = mapped is self._files.files[-1]
        if is_last and first_set_byte(mapped.buffer, position, mapped.size) is None:
            return None
        if mapped.size - position < HEAD.size and not is_last:
            return None  # the log of another broker may leave too little for a filler
        found = error.message.rpartition(", found ")[2]
        self._findings.add(mapped.file.path, error.offset, error.expected, found)
        return next_in_file(mapped, position + 1)
