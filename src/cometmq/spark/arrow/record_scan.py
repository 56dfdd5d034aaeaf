"""Starts of records in a buffer: the response of a pull, or a chunk of the log.

Rules kept here:
- The result is that of a walk from record to record, whatever bodies contain. Records of one size are checked
  at once. Short records are found by a search for their magic, which counts only as far as sizes agree; a
  record inside a body costs time and nothing else.
- A scan ends at its limit or at the first bytes that are not a record, with the reason. Only size and magic
  are checked here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from cometmq.spark.arrow.gather import Positions
from cometmq.wire.record.layout import (
    HEAD,
    MAGIC_AT,
    MAGIC_FILLER,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    FillerError,
    RecordError,
    numpy_fields,
)

if TYPE_CHECKING:
    from cometmq.wire.record.layout import ReadableBuffer

HEAD_DTYPE: Final = np.dtype(numpy_fields("V8")[:2])
_HEAD_BYTES: Final = np.dtype(f"V{HEAD.size}")
_FIRST_MAGIC_BYTE: Final = MAGIC_V1 >> 24
_WINDOW: Final = 256 * 1024
"""Bytes per search; after a mismatch the rest of the window is walked."""
_PROBED: Final = 32
_SHORT: Final = 700
"""Up to this average size a search is faster than a walk."""


class Scan(NamedTuple):
    """The result of a scan."""

    starts: Positions
    position: int
    """Where the next record would start."""
    error: RecordError | None
    """Why there is none; None at the limit."""


def record_starts(buffer: ReadableBuffer) -> Positions:
    """The starts of the records in a buffer; anything else in it is an error."""
    scan = scan_records(buffer)
    if scan.error is not None:
        raise scan.error
    return scan.starts


def scan_records(buffer: ReadableBuffer, stop: int | None = None) -> Scan:
    """The complete records that start before `stop`."""
    stop = len(buffer) if stop is None else min(stop, len(buffer))
    walked, position, error = _walk(buffer, 0, stop, _PROBED)
    parts = [walked]
    if error is None and position < stop and len(walked) > 1 and len(set(np.diff(walked).tolist())) == 1:
        found, position = _step(buffer, position, stop, int(walked[1] - walked[0]))
        parts.append(found)
    if error is None and position < stop and position // max(sum(map(len, parts)), 1) <= _SHORT:
        while error is None and position < stop:
            window_end = min(position + _WINDOW, stop)
            found, position = _search(buffer, position, window_end)
            parts.append(found)
            if position < window_end:
                walked, position, error = _walk(buffer, position, window_end)
                parts.append(walked)
    elif error is None and position < stop:
        walked, position, error = _walk(buffer, position, stop)
        parts.append(walked)
    return Scan(np.concatenate(parts), position, error)


def _walk(
    buffer: ReadableBuffer, position: int, stop: int, count: int | None = None
) -> tuple[Positions, int, RecordError | None]:
    """Walk from record to record."""
    starts: list[int] = []
    error, limit = None, len(buffer)
    unpack, last = HEAD.unpack_from, min(stop - 1, limit - MIN_RECORD_SIZE)
    while position <= last and len(starts) != count:
        size, magic = unpack(buffer, position)
        if magic not in (MAGIC_V1, MAGIC_V2) or not MIN_RECORD_SIZE <= size <= limit - position:
            error = _no_record(position, size, magic, limit)
            break
        starts.append(position)
        position += size
    else:
        if position < stop and len(starts) != count:
            error = _too_short(buffer, position)
    return np.array(starts, np.int64), position, error


def _step(buffer: ReadableBuffer, position: int, stop: int, size: int) -> tuple[Positions, int]:
    """Check all records of one size at once."""
    most = min(-(-(stop - position) // size), (len(buffer) - position) // size)
    if most <= 0:
        return np.empty(0, np.int64), position
    heads = np.ndarray((most,), HEAD_DTYPE, buffer, position, strides=(size,))
    magics = heads["magic"]
    good = (heads["total_size"] == size) & ((magics == MAGIC_V1) | (magics == MAGIC_V2))
    count = most if good.all() else int(good.argmin())
    return position + size * np.arange(count, dtype=np.int64), position + size * count


def _search(buffer: ReadableBuffer, position: int, stop: int) -> tuple[Positions, int]:
    """Search for magics at once; may return fewer records than there are, or none."""
    # Up to the head of a record that starts just before `stop`.
    view = np.frombuffer(buffer, np.uint8, min(stop - 1 + HEAD.size, len(buffer)) - position, position)
    if len(view) < HEAD.size:
        return np.empty(0, np.int64), position
    found = np.flatnonzero(view[MAGIC_AT:-3] == _FIRST_MAGIC_BYTE)
    heads = np.ndarray((len(view) - HEAD.size + 1,), _HEAD_BYTES, view, strides=(1,))[found].view(HEAD_DTYPE)
    magics, sizes = heads["magic"], heads["total_size"].astype(np.int64)
    good = ((magics == MAGIC_V1) | (magics == MAGIC_V2)) & (sizes >= MIN_RECORD_SIZE)
    found, sizes = found[good], sizes[good]
    if not len(found) or found[0] != 0:
        return np.empty(0, np.int64), position
    ends = found + sizes
    astray = np.flatnonzero(ends[:-1] != found[1:])
    count = int(astray[0]) + 1 if len(astray) else len(found)
    if int(ends[count - 1]) > len(buffer) - position:
        count -= 1
    if count == 0:
        return np.empty(0, np.int64), position
    return found[:count] + position, position + int(ends[count - 1])


def _no_record(position: int, size: int, magic: int, limit: int) -> RecordError:
    if magic == MAGIC_FILLER:
        return FillerError(position, "a record", f"the filler at the end of a file, of {size} bytes")
    if magic not in (MAGIC_V1, MAGIC_V2):
        return RecordError(position + 4, f"the magic {MAGIC_V1:#x} or {MAGIC_V2:#x}", f"{magic:#x}")
    return RecordError(
        position, f"a size of {MIN_RECORD_SIZE} or more that ends at or before {limit}", f"a size of {size}"
    )


def _too_short(buffer: ReadableBuffer, position: int) -> RecordError:
    """The error where fewer bytes are left than a record has."""
    left = len(buffer) - position
    if left < HEAD.size:
        return RecordError(position, f"a record of {MIN_RECORD_SIZE} bytes or more", f"{left}")
    size, magic = HEAD.unpack_from(buffer, position)
    return _no_record(position, size, magic, len(buffer))
