"""Walking the commit log record by record, across files.

Rules kept here:
- A walk continues in the next file after a filler, and after a file that is full to its last byte.
- A record counts only at the physical offset that it names, so that leftovers of a truncated file do not
  count.
- A walk ends at its limit, or at the first offset where no record can be read; it says where and why.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from cometmq.store.log.mapped_files import MappedFile, MappedFiles
from cometmq.wire.record.codec import Record, decode_record
from cometmq.wire.record.crc import record_is_intact
from cometmq.wire.record.layout import (
    HEAD,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    FillerError,
    RecordError,
    fields_struct,
)
from cometmq.wire.record.walk import WalkEnd

T = TypeVar("T")


RECORD_START: Final = fields_struct("total_size", "magic", "physical_offset")
_MAGICS: Final = (MAGIC_V1, MAGIC_V2)


class FileWalk(Generic[T]):
    """Iterate from an offset to a limit, or to the end of what is written.

    `position` is the offset of the next record, and at last where the walk ended. `end` then says why:
    `LIMIT` at the limit or after the last file, `FILLER` after a filler without a next file, `MALFORMED` with
    the `error`. With `verify_record_crc` every record needs a right checksum property; the body's is not
    checked.
    """

    def __init__(
        self,
        files: MappedFiles,
        start: int,
        limit: int | None = None,
        *,
        check_crc: bool = False,
        verify_record_crc: bool = False,
    ) -> None:
        self._files = files
        self._limit = limit
        self._check_crc = check_crc and not verify_record_crc
        self._verify_record_crc = verify_record_crc
        self.position = start
        self.end: WalkEnd | None = None
        self.error: RecordError | None = None

    def __iter__(self) -> Iterator[T]:
        mapped = self._files.at(self.position)
        while mapped is not None:
            limit = mapped.wrote
            if self._limit is not None:
                limit = min(limit, self._limit - mapped.start)
            if limit < self.position - mapped.start:
                self.end = WalkEnd.LIMIT
                return
            yield from self._walk_file(mapped, limit)
            if self.end is not None:
                return
            following = self._files.after(mapped)
            if following is not None:
                self.position = following.start
            mapped = following
        self.end = WalkEnd.LIMIT if self.error is None else WalkEnd.FILLER

    def _walk_file(self, mapped: MappedFile, limit: int) -> Iterator[T]:
        """Walk one file up to a limit; sets `end` if the walk ends there."""
        raise NotImplementedError

    def _read_one(self, mapped: MappedFile, limit: int) -> Record | None:
        """Return the next record; None at the end of the file or of the walk."""
        at = self.position - mapped.start
        self.error = None
        if at == limit:
            if limit < mapped.size:
                self.end = WalkEnd.LIMIT
            return None
        try:
            record = decode_record(mapped.view, at, limit, check_crc=self._check_crc)
            if record.physical_offset != self.position:
                raise RecordError(
                    self.position, "a record of this offset", f"one of {record.physical_offset}"
                )
            if self._verify_record_crc and not record_is_intact(mapped.view, at, record.total_size):
                raise RecordError(self.position, "a record with a right checksum of its own", "another")
        except RecordError as error:
            self.error = error
            if not isinstance(error, FillerError) or not self._is_filler(mapped, at):
                self.end = WalkEnd.MALFORMED
            return None
        self.position += record.total_size
        return record

    def _is_filler(self, mapped: MappedFile, at: int) -> bool:
        """Whether a filler is as long as the rest of its file."""
        size: int = HEAD.unpack_from(mapped.buffer, at)[0]
        return size == mapped.size - at


class LogWalk(FileWalk[Record]):
    """Iterate over all records."""

    def _walk_file(self, mapped: MappedFile, limit: int) -> Iterator[Record]:
        while (record := self._read_one(mapped, limit)) is not None:
            yield record


class MarkedWalk(FileWalk[Record]):
    """Iterate over the records whose properties contain `marker`, without decoding the others."""

    def __init__(self, files: MappedFiles, start: int, marker: bytes, limit: int | None = None) -> None:
        super().__init__(files, start, limit)
        self._marker = marker

    def _walk_file(self, mapped: MappedFile, limit: int) -> Iterator[Record]:
        view, marker, unpack = mapped.view, self._marker, RECORD_START.unpack_from
        while True:
            at = self.position - mapped.start
            if at + MIN_RECORD_SIZE <= limit:
                size, magic, physical_offset = unpack(view, at)
                if (
                    magic in _MAGICS
                    and physical_offset == self.position
                    and MIN_RECORD_SIZE <= size <= limit - at
                    and marker not in bytes(view[at : at + size])
                ):
                    self.position += size
                    continue
            record = self._read_one(mapped, limit)
            if record is None:
                return
            if marker in bytes(record.properties_block):
                yield record
