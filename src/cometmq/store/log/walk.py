"""Walking the commit log, record by record, from file to file.

Rules kept here:
- A walk goes on behind the filler at the end of a file, and behind a file that is filled to its last byte.
- A record is believed only where its own physical offset says that it is. What an earlier use of a truncated
  file left behind is therefore not taken for the log.
- A walk ends at its limit or at the first place where no record can be read; it says where and why.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from cometmq.store.log.mapped_files import MappedFile, MappedFiles
from cometmq.wire.record.codec import Record, decode_record
from cometmq.wire.record.crc import record_is_intact
from cometmq.wire.record.layout import HEAD, FillerError, RecordError
from cometmq.wire.record.walk import WalkEnd

T = TypeVar("T")


class FileWalk(Generic[T]):
    """Iterate over what lies between one offset and another, or the end of what is written.

    `position` is the offset of the next record; after the last one it is where the walk ended. `end` says why
    then: `LIMIT` at the limit or behind the last file, `FILLER` if a filler was there and no file behind it,
    and `MALFORMED` with the `error`. With `verify_record_crc` every record needs a right checksum of its own,
    which takes the place of the body's.
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
        """What is in one file before a limit; `end` is set if the walk ends with it."""
        raise NotImplementedError

    def _read_one(self, mapped: MappedFile, limit: int) -> Record | None:
        """The next record; None at the end of the file, or of the walk."""
        at = self.position - mapped.start
        self.error = None
        if at == limit:
            if limit < mapped.size:
                self.end = WalkEnd.LIMIT
            return None
        try:
            record = decode_record(mapped.view, at, limit, check_crc=self._check_crc)
            if record.physical_offset != self.position:
                raise RecordError(self.position, "a record of this place", f"one of {record.physical_offset}")
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
        """Whether a filler is as long as what is left of its file."""
        size: int = HEAD.unpack_from(mapped.buffer, at)[0]
        return size == mapped.size - at


class LogWalk(FileWalk[Record]):
    """The same, record by record."""

    def _walk_file(self, mapped: MappedFile, limit: int) -> Iterator[Record]:
        while (record := self._read_one(mapped, limit)) is not None:
            yield record
