"""Reading the commit log: records as views of the mapped files, walks, cold ranges.

Rules kept here:
- A record is returned as a view of its file, without a copy. The view stays valid when the file is removed.
- Nothing after the end of what is written is returned. An offset without a size has to be that of a record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from cometmq.store.log.mapped_files import MappedFiles
from cometmq.store.log.walk import RECORD_START, LogWalk
from cometmq.wire.record.layout import MAGIC_V1, MAGIC_V2, MIN_RECORD_SIZE, peek_store_timestamp

_NEAR: Final = 16 * 1024
"""Records this close to each other are fetched together."""
_NOTHING: Final = memoryview(b"")


class LogReader:
    """The files of a commit log, for reading."""

    def __init__(self, files: MappedFiles) -> None:
        self.files = files

    def load(self) -> None:
        """Map the existing files; all of them count as written to their ends."""
        self.files.load()

    @property
    def min_offset(self) -> int:
        return self.files.min_offset

    @property
    def max_offset(self) -> int:
        return self.files.max_offset

    def view(self, offset: int, size: int) -> memoryview | None:
        """The bytes of a range of the log; None if they are not, or no longer, there."""
        mapped = self.files.at(offset)
        if mapped is None:
            return None
        at = offset - mapped.start
        end = at + size
        return mapped.view[at:end] if end <= mapped.wrote else None

    @property
    def file_size(self) -> int:
        return self.files.file_size

    def readable(self, offset: int, most: int) -> memoryview:
        """The written bytes from an offset on, in one file and at most so many; empty if there are none."""
        mapped = self.files.at(offset)
        if mapped is None:
            return _NOTHING
        at = offset - mapped.start
        return mapped.view[at : min(at + most, mapped.wrote)]

    def on_disk(self, ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """The ranges, given by offset and size, that may have to be read from the disk."""
        found: list[tuple[int, int]] = []
        for offset, size in ranges:
            mapped = self.files.at(offset)
            if mapped is not None:
                at = offset - mapped.start
                if not mapped.file.is_in_memory(at, at + size):
                    found.append((offset, size))
        return found

    def fetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Read ranges, given by offset and size, into memory; ignores removed ones. Blocks without the GIL.

        Ranges close to each other are read together, because every call waits for a busy interpreter.
        """
        for offset, size in _joined(ranges, self.files.file_size):
            mapped = self.files.at(offset)
            if mapped is not None:
                at = offset - mapped.start
                with suppress(FileNotFoundError):
                    mapped.file.fetch(at, min(at + size, mapped.wrote))

    def record_at(self, offset: int) -> memoryview | None:
        """The record that begins at an offset; None if none does."""
        mapped = self.files.at(offset)
        if mapped is None:
            return None
        at = offset - mapped.start
        if at + MIN_RECORD_SIZE > mapped.wrote:
            return None
        size, magic, physical_offset = RECORD_START.unpack_from(mapped.buffer, at)
        if (
            magic not in (MAGIC_V1, MAGIC_V2)
            or physical_offset != offset
            or not MIN_RECORD_SIZE <= size <= mapped.wrote - at
        ):
            return None
        return mapped.view[at : at + size]

    def store_time(self, offset: int) -> int | None:
        """When the record at an offset was stored."""
        record = self.record_at(offset)
        return None if record is None else peek_store_timestamp(record, 0)

    def walk(
        self,
        start: int,
        limit: int | None = None,
        *,
        check_crc: bool = False,
        verify_record_crc: bool = False,
    ) -> LogWalk:
        """Walk the records from an offset to a limit, or to the end; see `FileWalk`."""
        return LogWalk(self.files, start, limit, check_crc=check_crc, verify_record_crc=verify_record_crc)


def _joined(ranges: Iterable[tuple[int, int]], file_size: int) -> Iterator[tuple[int, int]]:
    """Sort ranges, and join those close to each other in one file."""
    begin = end = -1
    for offset, size in sorted(ranges):
        if begin >= 0 and (offset - end > _NEAR or offset // file_size != begin // file_size):
            yield begin, end - begin
            begin = -1
        if begin < 0:
            begin = end = offset
        end = max(end, offset + size)
    if begin >= 0:
        yield begin, end - begin
