"""Pieces of one buffer as Arrow arrays: gathered in C, not one by one in Python.

Rules kept here:
- The pieces follow one another in the buffer: none begins before the one before it ends. Pieces and what lies
  between them then are the values of one Arrow array over the buffer, of which every other one is taken.
- What ought to be text and is not UTF-8 gets replacement characters, as everywhere in this package.
- A buffer is smaller than 2 GiB: Spark's arrays have offsets of 32 bits.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

MAX_BUFFER: Final = 2**31 - 1


def gather(buffer: pa.Buffer, starts: Places, ends: Places, missing: Mask | None = None) -> pa.BinaryArray:
    """The pieces from `starts` to `ends`; where one is `missing`, null."""
    count = len(starts)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2] = starts
    offsets[1::2] = ends
    offsets[-1] = ends[-1] if count else 0
    pieces = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), buffer])
    wanted = pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=missing)
    return pieces.take(wanted)


def as_text(pieces: pa.BinaryArray) -> pa.StringArray:
    """The same as text."""
    try:
        return pieces.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if piece is None else piece.decode("utf-8", "replace") for piece in pieces.to_pylist()]
        return pa.array(texts, pa.string())


def content_of(pieces: pa.BinaryArray) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """The bytes of all pieces behind one another, and where each begins, and the last ends."""
    count = len(pieces)
    _, offsets, content = pieces.buffers()
    places = np.frombuffer(offsets, np.int32, count + 1, pieces.offset * 4)
    if content is None:
        return np.empty(0, np.uint8), places
    return np.frombuffer(content, np.uint8), places


def replaced(values: pa.Array, rows: Mask, others: pa.Array) -> pa.Array:
    """The values, with the others in the place of those in `rows`."""
    if rows.all():
        return others
    places = np.arange(len(values))
    places[rows] = len(values) + np.arange(len(others))
    return pa.concat_arrays([values, others]).take(pa.array(places))
