"""Ranges of one buffer as Arrow arrays, gathered in C.

Rules kept here:
- Ranges are in ascending order and do not overlap. Ranges and gaps then are the values of one Arrow array
  over the buffer, and every other value is taken.
- Text that is not UTF-8 gets replacement characters.
- A buffer is smaller than 2 GiB: Spark's arrays have offsets of 32 bits.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def gather(
    buffer: pa.Buffer, starts: Positions, ends: Positions, missing: Mask | None = None
) -> pa.BinaryArray:
    """The ranges from `starts` to `ends`; null where `missing`."""
    count = len(starts)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2] = starts
    offsets[1::2] = ends
    offsets[-1] = ends[-1] if count else 0
    values = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), buffer])
    wanted = pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=missing)
    return values.take(wanted)


def as_text(values: pa.BinaryArray) -> pa.StringArray:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if value is None else value.decode("utf-8", "replace") for value in values.to_pylist()]
        return pa.array(texts, pa.string())


def content_of(values: pa.BinaryArray) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """The bytes of all values, concatenated, and their offsets."""
    _, offsets, content = values.buffers()
    starts = np.frombuffer(offsets, np.int32, len(values) + 1, values.offset * 4)
    return np.frombuffer(b"" if content is None else content, np.uint8), starts


def replaced(values: pa.Array, rows: Mask, others: pa.Array) -> pa.Array:
    """The values, with `others` in `rows`."""
    if rows.all():
        return others
    indices = np.arange(len(values))
    indices[rows] = len(values) + np.arange(len(others))
    return pa.concat_arrays([values, others]).take(pa.array(indices))
