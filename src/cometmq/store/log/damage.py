"""Telling whole records from damage in the commit log, and finding the next record after damage.

Rules kept here:
- A record is whole if it lies at the physical offset that it names, its lengths add up, and the checksum of
  its body is right. If it has a checksum property, that has to be right, too; remains of one count as wrong.
- Fields that no checksum covers cannot be judged, such as the born time of a record without the property.
- A damaged range ends at the next whole record of its file, or with the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cometmq.store.log.group_walk import GroupWalk, RecordGroup
from cometmq.store.log.mapped_files import MappedFile
from cometmq.store.log.reader import LogReader
from cometmq.wire.record.codec import Record, decode_record
from cometmq.wire.record.crc import CRC_PROPERTY_LENGTH, record_is_intact, resembles_crc_property
from cometmq.wire.record.layout import HEAD, MAGIC_AT, MAGIC_V1, MAGIC_V2, MIN_RECORD_SIZE, RecordError
from cometmq.wire.record.walk import WalkEnd

_MAGICS: Final = (MAGIC_V1.to_bytes(4, "big"), MAGIC_V2.to_bytes(4, "big"))
_CHUNK: Final = 1024 * 1024
_ZEROS: Final = bytes(_CHUNK + MAGIC_AT)


def whole_record(view: memoryview, physical_offset: int, *, sealed: bool = False) -> Record | None:
    """Decode the record at a physical offset; None unless these bytes are all of it, and whole.

    Pass `sealed` for a log whose records carry checksum properties.
    """
    try:
        record = decode_record(view, check_crc=True)
    except RecordError:
        return None
    is_here = record.total_size == len(view) and record.physical_offset == physical_offset
    return record if is_here and is_intact(view, 0, len(view), sealed=sealed) else None


def is_intact(view: memoryview, offset: int, total_size: int, *, sealed: bool = False) -> bool:
    """Whether the checksum property of a record is right, or was never there."""
    intact = record_is_intact(view, offset, total_size)
    if intact is not None:
        return intact
    end = offset + total_size
    return not resembles_crc_property(bytes(view[end - CRC_PROPERTY_LENGTH : end]), sealed=sealed)


def next_in_file(mapped: MappedFile, position: int, limit: int | None = None) -> int | None:
    """The position of the next whole record in a file, from `position` up to a limit; None without one."""
    limit = mapped.wrote if limit is None else limit
    at = _next_magic(mapped, position, limit)
    while at is not None:
        size, _ = HEAD.unpack_from(mapped.buffer, at)
        if (
            MIN_RECORD_SIZE <= size <= mapped.wrote - at
            and whole_record(mapped.view[at : at + size], mapped.start + at) is not None
        ):
            return at
        at = _next_magic(mapped, at + 1, limit)
    return None


def after_damage(log: LogReader, offset: int) -> int:
    """Where a walk continues that found no record at an offset; the end of the log if nothing follows."""
    mapped = log.files.at(offset)
    if mapped is None:
        return log.max_offset
    position = next_in_file(mapped, offset - mapped.start + 1)
    if position is not None:
        return mapped.start + position
    following = log.files.after(mapped)
    return log.max_offset if following is None else following.start


def walk_over_damage(log: LogReader, start: int, limit: int) -> Iterator[RecordGroup | Record]:
    """Walk all readable records of the log from one offset to another."""
    while start < limit:
        walk = GroupWalk(log.files, start, limit)
        yield from walk
        if walk.end is not WalkEnd.MALFORMED:
            return
        start = after_damage(log, walk.position)


def _next_magic(mapped: MappedFile, start: int, limit: int) -> int | None:
    """The next position where a record could begin. Most bytes after the end of a log are zeros."""
    at = start + MAGIC_AT
    limit = min(limit, mapped.wrote - MIN_RECORD_SIZE + 2 * MAGIC_AT)
    while at < limit:
        end = min(at + _CHUNK + MAGIC_AT, limit)
        mapped.file.fetch(at, end)  # cheaper than a fault for every page
        chunk = mapped.buffer[at:end]
        if chunk != _ZEROS[: end - at]:
            found = [position for position in map(chunk.find, _MAGICS) if position >= 0]
            if found:
                return at + min(found) - MAGIC_AT
        at += _CHUNK
    return None
