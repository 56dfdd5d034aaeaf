"""Going on behind bytes of the commit log that are no records.

Rules kept here:
- What follows damage counts as a record only if it is whole: at the offset that it says, with lengths that
  add up and a right checksum of its body.
- A range of damage ends with the next such record of its file, or with the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cometmq.store.log.group_walk import RecordGroup
from cometmq.store.log.mapped_files import MappedFile
from cometmq.store.log.reader import LogReader
from cometmq.store.log.record_check import whole_record
from cometmq.wire.record.codec import Record
from cometmq.wire.record.layout import HEAD, MAGIC_AT, MAGIC_V1, MAGIC_V2, MIN_RECORD_SIZE
from cometmq.wire.record.walk import WalkEnd

_MAGICS: Final = (MAGIC_V1.to_bytes(4, "big"), MAGIC_V2.to_bytes(4, "big"))
_CHUNK: Final = 1024 * 1024
_ZEROS: Final = bytes(_CHUNK + MAGIC_AT)


def next_in_file(mapped: MappedFile, position: int, limit: int | None = None) -> int | None:
    """The place in a file, from `position` up to a limit, of the next whole record; None if there is none."""
    limit = mapped.wrote if limit is None else limit
    place = _next_magic(mapped, position, limit)
    while place is not None:
        size, _ = HEAD.unpack_from(mapped.buffer, place)
        if (
            MIN_RECORD_SIZE <= size <= mapped.wrote - place
            and whole_record(mapped.view[place : place + size], mapped.start + place) is not None
        ):
            return place
        place = _next_magic(mapped, place + 1, limit)
    return None


def behind_damage(log: LogReader, offset: int) -> int:
    """Where a walk goes on that found no record at an offset; the end of the log if there is no more."""
    mapped = log.files.at(offset)
    if mapped is None:
        return log.max_offset
    place = next_in_file(mapped, offset - mapped.start + 1)
    if place is not None:
        return mapped.start + place
    following = log.files.after(mapped)
    return log.max_offset if following is None else following.start


def walk_over_damage(log: LogReader, start: int, limit: int) -> Iterator[RecordGroup | Record]:
    """Everything that can be read in the log from one offset to another."""
    while start < limit:
        walk = log.walk_groups(start, limit)
        yield from walk
        if walk.end is not WalkEnd.MALFORMED:
            return
        start = behind_damage(log, walk.position)


def _next_magic(mapped: MappedFile, start: int, limit: int) -> int | None:
    """The next place where a record could begin. Most of what follows the end of a log are zeros."""
    at = start + MAGIC_AT
    limit = min(limit, mapped.wrote - MIN_RECORD_SIZE + 2 * MAGIC_AT)
    while at < limit:
        end = min(at + _CHUNK + MAGIC_AT, limit)
        mapped.file.fetch(at, end)  # cheaper than a fault for every page
        chunk = mapped.buffer[at:end]
        if chunk != _ZEROS[: end - at]:
            places = [place for place in map(chunk.find, _MAGICS) if place >= 0]
            if places:
                return at + min(places) - MAGIC_AT
        at += _CHUNK
    return None
