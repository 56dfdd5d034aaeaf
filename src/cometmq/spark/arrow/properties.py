"""Properties of many messages: single ones as columns, all of them as a map.

Rules kept here:
- Messages of one producer mostly have properties of the same names and lengths, in the same order. Then a
  property is a slice of a table of bytes (`UniformProperties`). Every batch is checked byte by byte; if
  blocks differ, or their reading is ambiguous, `Properties` splits all blocks together at their separators.
- Which items are properties, and which of two with one name counts, is as in `wire/record/properties.py`.
- Only a message with a separator inside a value is decoded by itself.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cometmq.model.message_properties import KEY_SEPARATOR
from cometmq.spark.arrow.gather import Mask, Positions, as_text, content_of, gather
from cometmq.wire.record.properties import decode_properties

Bytes = npt.NDArray[np.uint8]
Spans = dict[bytes, tuple[int, int]]
"""Start and end of each value in a block, by name."""

_NAME_END: Final = 1
_ITEM_END: Final = 2
_KEY_SEPARATOR: Final = ord(KEY_SEPARATOR)
_NAME_KINDS: Final = {4: "<u4", 8: "<u8"}
_LONGEST_NAME: Final = 8
"""Bytes that may be read after the last separator."""


def common_value(content: Bytes, starts: Positions, ends: Positions) -> bytes | None:
    """The value that all ranges have; None if they differ."""
    table = _table(content, starts, ends)
    if table is None or (table != table[0]).any():
        return None
    value: bytes = table[0].tobytes()
    return value


def uniform_properties(content: Bytes, starts: Positions, ends: Positions) -> UniformProperties | None:
    """The properties of blocks that differ only in values of equal length; None otherwise."""
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
    return UniformProperties(table, spans)


def _table(content: Bytes, starts: Positions, ends: Positions) -> Bytes | None:
    """Ranges of equal length as rows; None if their lengths differ."""
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
    """The values of a block; None if it is ambiguous. Of two equal names the last counts."""
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


class UniformProperties:
    """Properties of messages whose blocks are rows of a table."""

    def __init__(self, table: Bytes, spans: Spans) -> None:
        self._table = table
        self._spans = spans

    def __len__(self) -> int:
        return len(self._table)

    def values(self, name: str) -> pa.StringArray:
        """The values of a property; null if the messages do not have it."""
        span = self._spans.get(name.encode())
        if span is None:
            return pa.nulls(len(self), pa.string())
        width = span[1] - span[0]
        offsets = np.arange(0, width * len(self) + 1, width, dtype=np.int32)
        return _texts(self._table[:, span[0] : span[1]], offsets)

    def maps(self, kind: pa.MapType, without: Collection[str] = ()) -> pa.MapArray:
        """All properties of each message, except `without`."""
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
        offsets = np.arange(len(self) + 1, dtype=np.int32) * count
        items = pa.StructArray.from_arrays(
            [names.take(places), values], fields=[kind.key_field, kind.item_field]
        )
        return pa.Array.from_buffers(kind, len(self), [None, pa.py_buffer(offsets)], children=[items])


def _texts(content: Bytes, offsets: npt.NDArray[np.int32]) -> pa.StringArray:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(content).reshape(-1))]
    return as_text(pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, buffers))


class Properties:
    """Properties of messages whose blocks lie in a buffer."""

    def __init__(self, buffer: pa.Buffer, starts: Positions, ends: Positions) -> None:
        """The byte before each block is part of its length, and is overwritten by a separator."""
        blocks = gather(buffer, starts - 1, ends)
        content, offsets = content_of(blocks)
        self._row_starts = offsets.astype(np.int64)
        total = int(self._row_starts[-1])
        self._content = np.empty(total + 1 + _LONGEST_NAME, np.uint8)
        self._content[:total] = content[:total]
        self._content[self._row_starts] = _ITEM_END  # before each block, and after the last
        self._buffer = pa.py_buffer(self._content)
        separators = np.flatnonzero(self._content[: total + 1] <= _ITEM_END)
        kinds = self._content[separators]
        if not kinds.all():
            separators, kinds = separators[kinds != 0], kinds[kinds != 0]
        inside = np.flatnonzero(kinds == _NAME_END)
        self._odd_rows = self._rows_of(separators[inside[kinds[inside + 1] == _NAME_END]])
        before, after = separators[inside - 1], separators[inside + 1]
        self._name_starts: Positions = before + 1
        self._name_ends: Positions = separators[inside]
        self._value_ends: Positions = after
        is_item = (before + 1 < self._name_ends) & (self._name_ends + 1 < after)
        is_item &= kinds[inside - 1] == _ITEM_END
        if not is_item.all():
            self._name_starts, self._name_ends = self._name_starts[is_item], self._name_ends[is_item]
            self._value_ends = after[is_item]

    def __len__(self) -> int:
        return len(self._row_starts) - 1

    def values(self, name: str) -> pa.StringArray:
        """The values of a property, null where a message does not have it."""
        starts, ends, missing = self._find(name.encode())
        if missing.all() and not len(self._odd_rows):
            return pa.nulls(len(self), pa.string())
        values = as_text(gather(self._buffer, starts, ends, missing))
        return self._corrected(values, name)

    def _find(self, name: bytes) -> tuple[Positions, Positions, Mask]:
        """The ranges of the values of a property, empty where it is missing."""
        found = self._named(name)
        rows = self._rows_of(self._name_ends[found])
        starts = self._row_starts[:-1].copy()
        ends = starts.copy()
        missing = np.ones(len(self), np.bool_)
        starts[rows] = self._name_ends[found] + 1  # of two equal names in a row the last counts
        ends[rows] = self._value_ends[found]
        missing[rows] = False
        return starts, ends, missing

    def _named(self, name: bytes) -> npt.NDArray[np.intp]:
        """The items with this name, which has 4 or 8 bytes."""
        kind = _NAME_KINDS[len(name)]
        candidates = np.flatnonzero(self._name_ends - self._name_starts == len(name))
        numbers = np.ndarray((len(self._content) - _LONGEST_NAME,), kind, self._content, strides=(1,))
        wanted = int.from_bytes(name, "little")
        found: npt.NDArray[np.intp] = candidates[numbers[self._name_starts[candidates]] == wanted]
        return found

    def _rows_of(self, places: Positions) -> Positions:
        """The messages that positions inside their blocks belong to."""
        row_starts = self._row_starts
        if len(places) == len(self) and (row_starts[:-1] < places).all() and (places < row_starts[1:]).all():
            return np.arange(len(self))  # all messages have the name once
        return np.searchsorted(self._row_starts, places, "right") - 1

    def _corrected(self, values: pa.StringArray, name: str) -> pa.StringArray:
        if not len(self._odd_rows):
            return values
        texts = values.to_pylist()
        for row in set(self._odd_rows.tolist()):
            texts[row] = self._decoded(row).get(name)
        return pa.array(texts, pa.string())

    def _decoded(self, row: int) -> dict[str, str]:
        start, end = self._row_starts[row], self._row_starts[row + 1]
        return decode_properties(self._content[start:end].tobytes())

    def maps(self, kind: pa.MapType, without: Collection[str] = ()) -> pa.MapArray:
        """All properties of each message, except `without`."""
        rows = self._rows_of(self._name_ends)
        names = as_text(gather(self._buffer, self._name_starts, self._name_ends))
        value_starts, value_ends = self._name_ends + 1, self._value_ends
        if without:
            unwanted = pc.is_in(names, value_set=pa.array(sorted(without), pa.string()))
            wanted = ~unwanted.to_numpy(zero_copy_only=False)
            rows, names = rows[wanted], names.filter(pa.array(wanted))
            value_starts, value_ends = value_starts[wanted], value_ends[wanted]
        if len(self._odd_rows) or _has_duplicates(rows, names):
            decoded = (self._decoded(row).items() for row in range(len(self)))
            return pa.array([[item for item in items if item[0] not in without] for items in decoded], kind)
        values = as_text(gather(self._buffer, value_starts, value_ends))
        offsets = np.searchsorted(rows, np.arange(len(self) + 1)).astype(np.int32)
        items = pa.StructArray.from_arrays([names, values], fields=[kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, len(self), [None, pa.py_buffer(offsets)], children=[items])


def _has_duplicates(rows: Positions, names: pa.StringArray) -> bool:
    """Whether a message has two properties of one name."""
    encoded = names.dictionary_encode()
    codes = rows * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy()
    codes.sort()
    return bool((codes[1:] == codes[:-1]).any())


def split_keys(keys: pa.StringArray, kind: pa.ListType) -> pa.ListArray:
    """The property KEYS split into single keys; null where it is missing."""
    if keys.null_count == len(keys):
        return pa.nulls(len(keys), kind)
    content, _ = content_of(keys)
    if not (content == _KEY_SEPARATOR).any():
        present = keys.is_valid()
        offsets = np.zeros(len(keys) + 1, np.int32)
        np.cumsum(present.to_numpy(zero_copy_only=False), out=offsets[1:])
        return _lists(keys.drop_null(), offsets, present, kind)
    split = pc.split_pattern(keys, KEY_SEPARATOR)
    parts, offsets = split.values, split.offsets.to_numpy()
    wanted = pc.not_equal(parts, "").to_numpy(zero_copy_only=False)
    counts = np.concatenate(([0], np.cumsum(wanted)))
    return _lists(parts.filter(pa.array(wanted)), counts[offsets].astype(np.int32), split.is_valid(), kind)


def _lists(
    values: pa.Array, offsets: npt.NDArray[np.int32], present: pa.Array, kind: pa.ListType
) -> pa.Array:
    validity = present.buffers()[1]
    return pa.Array.from_buffers(kind, len(present), [validity, pa.py_buffer(offsets)], children=[values])
