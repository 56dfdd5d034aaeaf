"""Walking the commit log, record by record, from file to file.

Rules kept here:
- A walk goes on behind the filler at the end of a file, and behind a file that is filled to its last byte.
- A record is believed only where its own physical offset says that it is. What an earlier use of a truncated
  file left behind is therefore not taken for the log.
- A walk ends at its limit or at the first place where no record can be read; it says where and why.
"""

from __future__ import annotations

from collections.abc import Iterator

from cometmq.store.mapped_files import MappedFile, MappedFiles
from cometmq.wire.crc import record_is_intact
from cometmq.wire.record import Record
from cometmq.wire.record_layout import RecordError
from cometmq.wire.record_walk import RecordWalk, WalkEnd


class LogWalk:
    """Iterate over the records from one offset to another, or to the end of what is written.

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

    def __iter__(self) -> Iterator[Record]:
        mapped = self._files.at(self.position)
        while mapped is not None:
            yield from self._walk_file(mapped)
            if self.end is not None:
                return
            following = self._files.after(mapped)
            if following is not None:
                self.position = following.start
            mapped = following
        self.end = WalkEnd.LIMIT if self.error is None else WalkEnd.FILLER

    def _walk_file(self, mapped: MappedFile) -> Iterator[Record]:
        """The records of one file; `end` is set if the walk ends with it."""
        start, limit = mapped.start, mapped.wrote
        if self._limit is not None:
            limit = min(limit, self._limit - start)
        if limit < self.position - start:
            self.end = WalkEnd.LIMIT
            return
        walk = RecordWalk(mapped.view, self.position - start, limit, check_crc=self._check_crc)
        for record in walk:
            error = self._disbelief(mapped, record)
            if error is not None:
                self.end, self.error = WalkEnd.MALFORMED, error
                return
            self.position = start + walk.position
            yield record
        self.error = walk.error
        if walk.end is WalkEnd.MALFORMED or (walk.end is WalkEnd.LIMIT and limit < mapped.size):
            self.end = walk.end

    def _disbelief(self, mapped: MappedFile, record: Record) -> RecordError | None:
        """What speaks against a record that is one by its lengths."""
        if record.physical_offset != self.position:
            return RecordError(self.position, "a record of this place", f"one of {record.physical_offset}")
        if self._verify_record_crc and not record_is_intact(
            mapped.view, self.position - mapped.start, record.total_size
        ):
            return RecordError(self.position, "a record with a right checksum of its own", "another")
        return None
