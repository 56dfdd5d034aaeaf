"""Commit log files read in chunks of records, from any offset, past damage.

Rules kept here:
- Files are read with plain reads of `CHUNK_BYTES`: retention may remove a file meanwhile, and memory does not
  depend on the file size.
- To start inside a file, the reader walks from an earlier record. If none is known, it accepts bytes as a
  record if magic, size and the physical offset in the record agree.
- Damage is reported once, from its start to the next record, by the reader of the range that it starts in.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple, Self

import msgspec
import numpy as np

from cometmq.model.errors import StoreError
from cometmq.spark.arrow.gather import Positions
from cometmq.spark.arrow.record_scan import HEAD_DTYPE, scan_records
from cometmq.wire.record.layout import (
    HEAD,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    FillerError,
    RecordError,
    peek_head,
    peek_physical_offset,
)

CHUNK_BYTES: Final = 4 * 1024 * 1024
_LOOK_BACKS: Final = (64 * 1024, 8 * 1024 * 1024)
"""Distances to look back for a record; the second exceeds the largest record."""
_MAGIC_TAIL: Final = HEAD.size - 1
_FIRST_MAGIC_BYTE: Final = MAGIC_V1 >> 24


class LogFile(msgspec.Struct, frozen=True):
    """A commit log file, as far as it may be read."""

    path: str
    start: int
    """Physical offset of the first byte."""
    limit: int
    """Physical offset of the end of what may be read."""


class LogChunk(NamedTuple):
    """Records in one buffer, which is valid until the next chunk is read."""

    buffer: bytes | memoryview
    starts: Positions
    physical_offsets: Positions


class Damage(NamedTuple):
    """Bytes that are not a record."""

    start: int
    end: int
    """The next record, or the end of what may be read."""
    error: RecordError


class LogFileReader:
    """An open file."""

    def __init__(self, file: LogFile) -> None:
        self.file = file
        self._buffer = bytearray()
        try:
            self._file = open(file.path, "rb", buffering=0)  # noqa: SIM115 - closed by `__exit__`
        except FileNotFoundError:
            raise StoreError(
                f"{file.path} is gone: retention removed it while it was read; read again, or read a copy"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, offset: int, size: int) -> bytes:
        """Read bytes at a physical offset, up to the limit."""
        at = offset - self.file.start
        size = min(size, self.file.limit - offset)
        parts = []
        self._file.seek(at)
        while size > 0 and (part := self._file.read(size)):
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def record_size(self, offset: int) -> int | None:
        """The size of the record at a physical offset; None if there is none."""
        head = self.read(offset, MIN_RECORD_SIZE)
        with suppress(RecordError):
            if peek_physical_offset(head, 0) == offset:
                return peek_head(head, 0)[0]
        return None

    def records(self, start: int, stop: int, *, up_to_damage: bool = False) -> Iterator[LogChunk | Damage]:
        """Everything that starts in a range of offsets; a record or damage starts at `start`.

        With `up_to_damage` reading ends at the first damage, whose end is not searched for.
        """
        position, size = start, CHUNK_BYTES
        stop = min(stop, self.file.limit)
        while position < stop:
            buffer = self._read_shared(position, size)
            scan = scan_records(buffer, stop - position)
            if len(scan.starts):
                yield LogChunk(buffer, scan.starts, scan.starts + position)
                position += scan.position
                size = CHUNK_BYTES
            elif isinstance(scan.error, FillerError):
                return
            elif size < (needed := self._size_at(buffer, position)):
                size = needed
            else:
                end = position if up_to_damage else self.next_record(position + 1)
                yield Damage(position, end, _in_log(scan.error, position))
                if up_to_damage:
                    return
                position = end

    def _read_shared(self, offset: int, size: int) -> memoryview:
        """Read into one buffer that is reused: allocating a new one takes longer."""
        size = min(size, self.file.limit - offset)
        if len(self._buffer) < size:
            self._buffer = bytearray(max(size, min(CHUNK_BYTES, self.file.limit - self.file.start)))
        view = memoryview(self._buffer)[:size]
        filled = 0
        self._file.seek(offset - self.file.start)
        while filled < size and (count := self._file.readinto(view[filled:])):
            filled += count
        return view[:filled]

    def _size_at(self, buffer: memoryview, offset: int) -> int:
        """The size of the record that seems to start here; 0 if it does not fit."""
        if len(buffer) < HEAD.size:
            return 0
        size, magic = HEAD.unpack_from(buffer)
        return size if magic in (MAGIC_V1, MAGIC_V2) and size <= self.file.limit - offset else 0

    def beginning_from(self, offset: int) -> int:
        """The start of the first record at or after an offset, or of damage there."""
        if offset <= self.file.start:
            return self.file.start
        position = offset
        for look_back in _LOOK_BACKS:
            position = max(offset - look_back, self.file.start)
            if position > self.file.start:
                position = self.next_record(position)
            if position < offset:
                break
        for found in self.records(position, offset):
            position = found.end if isinstance(found, Damage) else _end_of(found)
        # Reading that stops earlier has met the filler, and nothing follows it.
        return position if position >= offset else self.file.limit

    def next_record(self, offset: int) -> int:
        """The first plausible record from an offset on; the limit if there is none."""
        while offset < self.file.limit:
            buffer = self.read(offset, CHUNK_BYTES)
            found = self._first_plausible(buffer, offset)
            if found is not None:
                return found
            if len(buffer) < CHUNK_BYTES:
                break
            offset += len(buffer) - MIN_RECORD_SIZE
        return self.file.limit

    def _first_plausible(self, buffer: bytes, base: int) -> int | None:
        content = np.frombuffer(buffer, np.uint8)
        if len(content) < MIN_RECORD_SIZE or not content.any():
            return None
        starts = np.flatnonzero(content[4 : len(content) - MIN_RECORD_SIZE + 5] == _FIRST_MAGIC_BYTE)
        heads = np.ndarray((len(content) - _MAGIC_TAIL,), HEAD_DTYPE, content, strides=(1,))[starts]
        is_magic = (heads["magic"] == MAGIC_V1) | (heads["magic"] == MAGIC_V2)
        for start, size in zip(
            starts[is_magic].tolist(), heads["total_size"][is_magic].tolist(), strict=True
        ):
            offset: int = base + start
            fits = MIN_RECORD_SIZE <= size <= self.file.limit - offset
            if fits and peek_physical_offset(buffer, start) == offset:
                return offset
        return None


def _end_of(chunk: LogChunk) -> int:
    size: int = HEAD.unpack_from(chunk.buffer, int(chunk.starts[-1]))[0]
    return int(chunk.physical_offsets[-1]) + size


def _in_log(error: RecordError | None, base: int) -> RecordError:
    """An error in a buffer, with its physical offset."""
    if error is None:
        return RecordError(base, "a record", "the end of what may be read")
    text = error.message.partition("found ")[2]
    return RecordError(base + error.offset, error.expected, text)
