"""Reading the commit log: offsets, records as views of the mapped files, walks.

Rules kept here:
- A record is handed out as a view of its file, without a copy. The view stays good when the file is removed.
- Nothing behind what is written is handed out, and nothing that is not a record where the caller only has an
  offset to show for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from cometmq.store.log.group_walk import GroupWalk
from cometmq.store.log.mapped_files import MappedFiles
from cometmq.store.log.walk import LogWalk
from cometmq.wire.record.layout import (
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    fields_struct,
    peek_store_timestamp,
)

_START: Final = fields_struct("total_size", "magic", "physical_offset")
_NEAR: Final = 16 * 1024
"""Records this near to each other are fetched together."""


class LogReader:
    """The files of a commit log, for reading."""

    def __init__(self, files: MappedFiles) -> None:
        self.files = files

    def load(self) -> None:
        """Map the files that are there; all of them count as written to their ends."""
        self.files.load()

    @property
    def min_offset(self) -> int:
        return self.files.min_offset

    @property
    def max_offset(self) -> int:
        return self.files.max_offset

    def view(self, offset: int, size: int) -> memoryview | None:
        """The bytes of a record whose place and size are known; None if they are not, or no longer, there."""
        mapped = self.files.at(offset)
        if mapped is None:
            return None
        at = offset - mapped.start
        end = at + size
        return mapped.view[at:end] if end <= mapped.wrote else None

    def on_disk(self, places: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Those of these records, given by offset and size, whose bytes the disk may have to be asked for."""
        found: list[tuple[int, int]] = []
        for offset, size in places:
            mapped = self.files.at(offset)
            if mapped is not None:
                at = offset - mapped.start
                if not mapped.file.is_in_memory(at, at + size):
                    found.append((offset, size))
        return found

    def fetch(self, places: Iterable[tuple[int, int]]) -> None:
        """Bring records, given by offset and size, into memory; those that are no longer there do not matter.

        Blocks, but holds up nobody else. Records near each other are read together: beside a busy interpreter
        every single call is a wait.
        """
        for offset, size in _joined(places, self.files.file_size):
            mapped = self.files.at(offset)
            if mapped is not None:
                at = offset - mapped.start
                with suppress(FileNotFoundError):
                    mapped.file.fetch(at, min(at + size, mapped.wrote))

    def record_at(self, offset: int) -> memoryview | None:
        """The bytes of the record that begins at an offset; None if none does."""
        mapped = self.files.at(offset)
        if mapped is None:
            return None
        at = offset - mapped.start
        if at + MIN_RECORD_SIZE > mapped.wrote:
            return None
        size, magic, place = _START.unpack_from(mapped.buffer, at)
        if (
            magic not in (MAGIC_V1, MAGIC_V2)
            or place != offset
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
        """The records from an offset to a limit, or to the end of what is written; see `LogWalk`."""
        return LogWalk(self.files, start, limit, check_crc=check_crc, verify_record_crc=verify_record_crc)

    def walk_groups(
        self,
        start: int,
        limit: int | None = None,
        *,
        check_crc: bool = False,
        verify_record_crc: bool = False,
        one_by_one: bool = False,
        with_arrivals: bool = False,
    ) -> GroupWalk:
        """The same as far as dispatch wants to know it, many records at a time; see `GroupWalk`."""
        return GroupWalk(
            self.files,
            start,
            limit,
            check_crc=check_crc,
            verify_record_crc=verify_record_crc,
            one_by_one=one_by_one,
            with_arrivals=with_arrivals,
        )


def _joined(places: Iterable[tuple[int, int]], file_size: int) -> Iterator[tuple[int, int]]:
    """Places in their order, those near each other in one file as one, with what lies between them."""
    begin = end = -1
    for offset, size in sorted(places):
        if begin >= 0 and (offset - end > _NEAR or offset // file_size != begin // file_size):
            yield begin, end - begin
            begin = -1
        if begin < 0:
            begin = end = offset
        end = max(end, offset + size)
    if begin >= 0:
        yield begin, end - begin
