"""Messages that are alike: what is the same in all of a batch is found out once, instead of for each of them.

Rules kept here:
- What one producer sends to one topic mostly has properties of the same names and lengths, in the same order.
  Then a property is a block of columns in a table of bytes. Whether that is so is looked at in every batch,
  byte by byte; where it is not, the answer is None and who asks takes the way that is always right.
- What counts as a property is as in `wire/record/properties.py`. Blocks that leave room for doubt are not
  alike.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cometmq.spark.arrow.gather import Places, as_text

Bytes = npt.NDArray[np.uint8]
Spans = dict[bytes, tuple[int, int]]
"""Where the value of each property begins and ends in a block, by name."""

_NAME_END: Final = 1
_ITEM_END: Final = 2


def common_piece(content: Bytes, starts: Places, ends: Places) -> bytes | None:
    """The piece that all pieces are the same as, of which there is one at least; None if they differ."""
    table = _table(content, starts, ends)
    if table is None or (table != table[0]).any():
        return None
    piece: bytes = table[0].tobytes()
    return piece


def alike_properties(content: Bytes, starts: Places, ends: Places) -> AlikeProperties | None:
    """The properties in blocks that differ in nothing but values of the same lengths; None if they do."""
    table = _table(content, starts, ends)
    spans = None if table is None else _spans(table[0].tobytes())
    if table is None or spans is None:
        return None
    varying = np.flatnonzero((table != table[0]).any(axis=0))
    in_value = np.zeros(table.shape[1], np.bool_)
    for start, end in spans.values():
        in_value[start:end] = True
    if not in_value[varying].all() or (table[:, varying] <= _ITEM_END).any():
        return None
    return AlikeProperties(table, spans)


def _table(content: Bytes, starts: Places, ends: Places) -> Bytes | None:
    """Pieces of one length, each as a row; None if they have several lengths."""
    lengths = ends - starts
    length = int(lengths[0])
    if (lengths != length).any():
        return None
    if not length:
        return np.empty((len(starts), 0), np.uint8)
    kind = np.dtype(f"V{length}")
    windows = np.ndarray((len(content) - length + 1,), kind, content, strides=(1,))
    rows: Bytes = windows[starts].view(np.uint8).reshape(len(starts), length)
    return rows


def _spans(block: bytes) -> Spans | None:
    """Where the values are in a block that has names and values and nothing else, in their order.

    Of a name that occurs twice the last one counts; batches have some.
    """
    spans: Spans = {}
    at = 0
    for item in block.removesuffix(b"\x02").split(b"\x02") if block else ():
        name, found, value = item.partition(b"\x01")
        if not name or not found or not value or b"\x01" in value or b"\0" in item:
            return None
        spans.pop(name, None)
        spans[name] = at + len(name) + 1, at + len(item)
        at += len(item) + 1
    return spans


class AlikeProperties:
    """The properties of messages whose blocks are rows of a table."""

    def __init__(self, table: Bytes, spans: Spans) -> None:
        self._table = table
        self._spans = spans

    def __len__(self) -> int:
        return len(self._table)

    def values(self, name: str) -> pa.StringArray:
        """The values of one property; null if the messages do not have it."""
        span = self._spans.get(name.encode())
        if span is None:
            return pa.nulls(len(self), pa.string())
        width = span[1] - span[0]
        offsets = np.arange(0, width * len(self) + 1, width, dtype=np.int32)
        return _texts(self._table[:, span[0] : span[1]], offsets)

    def maps(self, kind: pa.MapType, without: Collection[str] = ()) -> pa.MapArray:
        """All properties of each message, but for those that are not wanted."""
        decoded = {name.decode("utf-8", "replace"): span for name, span in self._spans.items()}
        spans = {name: span for name, span in decoded.items() if name not in without}
        count = len(spans)
        names = pa.array(list(spans), pa.string())
        places = pa.array(np.tile(np.arange(count, dtype=np.int32), len(self)))
        in_value = np.zeros(self._table.shape[1], np.bool_)
        for start, end in spans.values():
            in_value[start:end] = True
        widths = np.array([end - start for start, end in spans.values()], np.int64)
        value_ends = np.zeros(count * len(self) + 1, np.int32)
        np.cumsum(np.tile(widths, len(self)), out=value_ends[1:])
        values = _texts(self._table[:, in_value], value_ends)
        offsets = np.arange(0, count * len(self) + 1, count, dtype=np.int32) if count else _zeros(len(self))
        items = pa.StructArray.from_arrays(
            [names.take(places), values], fields=[kind.key_field, kind.item_field]
        )
        return pa.Array.from_buffers(kind, len(self), [None, pa.py_buffer(offsets)], children=[items])


def _zeros(rows: int) -> npt.NDArray[np.int32]:
    return np.zeros(rows + 1, np.int32)


def _texts(content: Bytes, offsets: npt.NDArray[np.int32]) -> pa.StringArray:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(content).reshape(-1))]
    return as_text(pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, buffers))
