"""Rows handed on no faster than a rate, for a sink that must not run its readers over.

Rules kept here: rows come in pieces of at most a tenth of a second, each when it is due; how they are cut
follows from the rate and the batches alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

_PIECES_A_SECOND: Final = 10


def paced(
    batches: Iterator[pa.RecordBatch],
    rate: int | None,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[pa.RecordBatch]:
    """The same rows, so many a second; None lets them pass."""
    if rate is None:
        yield from batches
        return
    most = max(rate // _PIECES_A_SECOND, 1)
    began, sent = clock(), 0
    for batch in batches:
        for start in range(0, batch.num_rows, most):
            early = sent / rate - (clock() - began)
            if early > 0:
                sleep(early)
            piece = batch.slice(start, most)
            yield piece
            sent += piece.num_rows
