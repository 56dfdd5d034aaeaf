"""Walking the commit log for the few records that have certain bytes in them.

Rules kept here: a record is believed under the same conditions as in any walk over the log; those that are
passed over are looked at no further than to know where the next one begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cometmq.store.log.mapped_files import MappedFile
from cometmq.store.log.reader import LogReader
from cometmq.store.log.walk import FileWalk
from cometmq.wire.record.codec import Record
from cometmq.wire.record.layout import MAGIC_V1, MAGIC_V2, MIN_RECORD_SIZE, fields_struct

_START: Final = fields_struct("total_size", "magic", "physical_offset")
_MAGICS: Final = (MAGIC_V1, MAGIC_V2)


class MarkedWalk(FileWalk[Record]):
    """Iterate over the records that contain `marker`; see `FileWalk` for where it ends."""

    def __init__(self, log: LogReader, start: int, marker: bytes, limit: int | None = None) -> None:
        super().__init__(log.files, start, limit)
        self._marker = marker

    def _walk_file(self, mapped: MappedFile, limit: int) -> Iterator[Record]:
        view, marker, unpack = mapped.view, self._marker, _START.unpack_from
        while True:
            at = self.position - mapped.start
            if at + MIN_RECORD_SIZE <= limit:
                size, magic, place = unpack(view, at)
                if (
                    magic in _MAGICS
                    and place == self.position
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
