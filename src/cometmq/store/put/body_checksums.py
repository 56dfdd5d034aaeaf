"""The checksums of many bodies that lie in one piece of bytes.

Rules kept here:
- The checksum of a body is its CRC-32 without the sign, as records have it.
- Bodies of one length, of which most topics have many, are taken out together: for short ones, making a slice
  of each takes longer than its checksum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from zlib_ng.zlib_ng import crc32

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]
    Bytes = npt.NDArray[np.uint8]

_SIGN_CLEARED: Final = 0x7FFFFFFF
_SHORT: Final = 1024
"""Longer bodies are not copied."""
_FEW: Final = 8
"""So many bodies of one length are not worth the trouble."""


def body_checksums(content: Bytes, starts: Numbers, ends: Numbers) -> Numbers:
    """The checksums of the bodies between these places, none of which is empty."""
    import numpy as np

    found = np.empty(len(starts), np.int64)
    view = content.data
    for length, rows in _by_length(ends - starts):
        if length > _SHORT or len(rows) < _FEW:
            places = zip(starts[rows].tolist(), ends[rows].tolist(), strict=True)
            found[rows] = [crc32(view[start:end]) for start, end in places]
        else:
            windows = np.ndarray((len(content) - length + 1,), f"V{length}", content, strides=(1,))
            found[rows] = _each(windows[starts[rows]])
    found &= _SIGN_CLEARED
    return found


def even_checksums(content: Bytes, start: int, length: int, step: int) -> Numbers:
    """The same for bodies of one length that begin in even steps, the last of them in the last step."""
    import numpy as np

    count = len(content) // step
    if length > _SHORT:
        starts = np.arange(start, start + count * step, step)
        return body_checksums(content, starts, starts + length)
    return _each(np.ndarray((count,), f"V{length}", content, start, (step,))) & _SIGN_CLEARED


def _each(bodies: np.ndarray[tuple[int], np.dtype[np.void]]) -> Numbers:
    import numpy as np

    return np.fromiter(map(crc32, bodies.tolist()), np.int64, len(bodies))


def _by_length(lengths: Numbers) -> Iterator[tuple[int, Numbers]]:
    """Lengths, and which rows have them."""
    import numpy as np

    if not len(lengths):
        return
    if (lengths == lengths[0]).all():
        yield int(lengths[0]), np.arange(len(lengths))
        return
    order = np.argsort(lengths, kind="stable")
    edges = np.flatnonzero(np.diff(lengths[order])) + 1
    for rows in np.split(order, edges):
        yield int(lengths[rows[0]]), rows
