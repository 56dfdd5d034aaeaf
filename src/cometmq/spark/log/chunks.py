"""Records of a commit log file in pieces that fit into memory, from any place on, past damage.

Rules kept here:
- A file is read with plain reads of a few megabytes: what a broker removes meanwhile does not kill a reader,
  and the memory that is needed does not depend on the size of the file.
- A place in the middle of a file is found by walking from a record before it. Where none is known, a record
  is one that has the magic, a size that fits, and says itself that it is where it is.
- What is no record is told with where it begins and where the next record does, once, by whoever reads the
  range that it begins in.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import TracebackType
from typing import Final, NamedTuple, Self

import msgspec
import numpy as np

from cometmq.model.errors import StoreError
from cometmq.spark.arrow.gather import Places
from cometmq.spark.arrow.record_scan import HEAD_DTYPE, scan_records
from cometmq.wire.record.layout import (
    HEAD,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    FillerError,
    RecordError,
    peek_physical_offset,
)

CHUNK: Final = 4 * 1024 * 1024
_LOOK_BACKS: Final = (64 * 1024, 8 * 1024 * 1024)
"""How far before a place a record is looked for; the second is more than the largest record takes."""
_MAGIC_TAIL: Final = HEAD.size - 1
_FIRST_MAGIC_BYTE: Final = MAGIC_V1 >> 24


class LogFile(msgspec.Struct, frozen=True):
    """A file of a commit log, as far as it may be read."""

    path: str
    start: int
    """The offset of its first byte in the log."""
    limit: int
    """The offset behind the last byte that may be read."""


class Piece(NamedTuple):
    """Records in one buffer; good until the next piece is asked for."""

    buffer: bytes | memoryview
    starts: Places
    places: Places
    """Where in the log each of them is."""


class Damage(NamedTuple):
    """Bytes that are no record."""

    start: int
    end: int
    """Where the next record begins, or nothing more is to be read."""
    error: RecordError


class LogFileReader:
    """One file, open."""

    def __init__(self, file: LogFile) -> None:
        self.file = file
        self._room = bytearray()
        try:
            self._handle = os.open(file.path, os.O_RDONLY)
        except FileNotFoundError:
            raise StoreError(
                f"{file.path} is gone: retention removed it while it was read; read again, or read a copy"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._handle)

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the log, as many of them as may be read."""
        at = offset - self.file.start
        size = min(size, self.file.limit - offset)
        parts = []
        while size > 0 and (part := os.pread(self._handle, size, at)):
            parts.append(part)
            at += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def records(self, start: int, stop: int, *, up_to_damage: bool = False) -> Iterator[Piece | Damage]:
        """Everything that begins from an offset on, at which something does begin, and before another.

        With `up_to_damage` the first damage is the last that comes, and how long it is is not looked for.
        """
        position, size = start, CHUNK
        stop = min(stop, self.file.limit)
        while position < stop:
            buffer = self._look(position, size)
            scan = scan_records(buffer, 0, stop - position)
            if len(scan.starts):
                yield Piece(buffer, scan.starts, scan.starts + position)
                position += scan.position
                size = CHUNK
            elif isinstance(scan.error, FillerError):
                return
            elif size < (needed := self._size_at(buffer, position)):
                size = needed
            else:
                end = position if up_to_damage else self.next_record(position + 1)
                yield Damage(position, end, _placed(scan.error, position))
                if up_to_damage:
                    return
                position = end

    def _look(self, offset: int, size: int) -> memoryview:
        """The same in memory that is used again and again, which takes less time than new memory."""
        size = min(size, self.file.limit - offset)
        if len(self._room) < size:
            self._room = bytearray(max(size, min(CHUNK, self.file.limit - self.file.start)))
        view = memoryview(self._room)[:size]
        filled = 0
        while filled < size and (
            count := os.preadv(self._handle, [view[filled:]], offset + filled - self.file.start)
        ):
            filled += count
        return view[:filled]

    def _size_at(self, buffer: memoryview, offset: int) -> int:
        """How long the record is that seems to begin here; 0 if it would not fit."""
        if len(buffer) < HEAD.size:
            return 0
        size, magic = HEAD.unpack_from(buffer)
        return size if magic in (MAGIC_V1, MAGIC_V2) and size <= self.file.limit - offset else 0

    def beginning_from(self, offset: int) -> int:
        """Where the first record that begins at or behind an offset does, or damage that it may be under."""
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
        # What ends before it ends at the filler, behind which there is nothing.
        return position if position >= offset else self.file.limit

    def next_record(self, offset: int) -> int:
        """Where the first record is that is believed, from an offset on; the end of the file if none is."""
        while offset < self.file.limit:
            buffer = self.read(offset, CHUNK)
            found = self._believed(buffer, offset)
            if found is not None:
                return found
            if len(buffer) < CHUNK:
                break
            offset += len(buffer) - MIN_RECORD_SIZE
        return self.file.limit

    def _believed(self, buffer: bytes, base: int) -> int | None:
        content = np.frombuffer(buffer, np.uint8)
        if len(content) < MIN_RECORD_SIZE or not content.any():
            return None
        places = np.flatnonzero(content[4 : len(content) - MIN_RECORD_SIZE + 5] == _FIRST_MAGIC_BYTE)
        heads = np.ndarray((len(content) - _MAGIC_TAIL,), HEAD_DTYPE, content, strides=(1,))[places]
        is_magic = (heads["magic"] == MAGIC_V1) | (heads["magic"] == MAGIC_V2)
        for place, size in zip(
            places[is_magic].tolist(), heads["total_size"][is_magic].tolist(), strict=True
        ):
            offset: int = base + place
            fits = MIN_RECORD_SIZE <= size <= self.file.limit - offset
            if fits and peek_physical_offset(buffer, place) == offset:
                return offset
        return None


def _end_of(piece: Piece) -> int:
    size: int = HEAD.unpack_from(piece.buffer, int(piece.starts[-1]))[0]
    return int(piece.places[-1]) + size


def _placed(error: RecordError | None, base: int) -> RecordError:
    """An error of a buffer, with its place in the log."""
    if error is None:
        return RecordError(base, "a record", "the end of what may be read")
    text = error.message.partition("found ")[2]
    return RecordError(base + error.offset, error.expected, text)
