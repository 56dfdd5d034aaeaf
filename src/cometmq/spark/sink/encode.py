"""Arrow columns to encoded messages: items of batch requests, or log records for brokers that take them.

Rules kept here:
- No Python object is made per row: a message is a join of columns of bytes, and all messages of a slice lie
  in one buffer, of which requests are slices.
- A property without a value is left out. Ambiguous rows are refused: separators in a value, blanks in a key,
  a missing body.
- System properties in `properties` are left out, since messages that were read have them.
- A record is what the broker would write, except for fields left to it (`wire/record/preencoded.py`). Rows
  with keys go as items: only the unique key is hashed here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cometmq.model.errors import MessageError
from cometmq.model.message_properties import (
    KEY_SEPARATOR,
    KEYS,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    RESERVED,
    SHARDING_KEY,
    TAGS,
    UNIQ_KEY,
)
from cometmq.store.index.arrays import hashes_of_letters
from cometmq.wire.frame.command import Body
from cometmq.wire.java_hash import java_hash, tags_code
from cometmq.wire.record.batch import MIN_ITEM_SIZE
from cometmq.wire.record.layout import FIXED_V4, MAGIC_V1, numpy_fields
from cometmq.wire.record.properties import MAX_PROPERTIES_LENGTH

BINARY: Final = pa.large_binary()
_TEXT: Final = pa.large_string()
_FIXED: Final = np.dtype(
    [("size", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("flag", ">i4"), ("body", ">i4")]
)
_HEX: Final = np.frombuffer(b"".join(b"%02X" % number for number in range(256)), np.uint16)
_HEX_DIGITS: Final = np.stack([np.repeat(_HEX, 256), np.tile(_HEX, 256)], axis=1).view(np.uint32).reshape(-1)
"""The four hexadecimal digits of each 16-bit number."""
EMPTY: Final = pa.scalar(b"", BINARY)
_RESERVED: Final = pa.array(sorted(RESERVED), _TEXT)
_UNIQ: Final = np.frombuffer(f"{UNIQ_KEY}{NAME_VALUE_SEPARATOR}".encode(), np.uint8)
_END: Final = ord(PROPERTY_SEPARATOR)

_HEAD: Final = np.dtype(numpy_fields("V8"))

Bytes = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]
Integers = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Heads = np.ndarray[tuple[int], np.dtype[np.void]]


class Items(NamedTuple):
    """Encoded items, concatenated."""

    data: memoryview
    ends: Integers
    """The start of the first item, then the end of each."""

    def body(self, first: int, end: int) -> memoryview:
        """The request body for a range of rows."""
        return self.data[self.ends[first] : self.ends[end]]


def unique_ids(prefix: bytes, numbers: Integers) -> Bytes:
    """Unique ids as rows of hexadecimal digits: a prefix and a number of 48 bits."""
    head = np.frombuffer(prefix.hex().upper().encode(), np.uint32)
    ids = np.empty((len(numbers), len(head) + 3), np.uint32)
    ids[:, : len(head)] = head
    for column, shift in enumerate((32, 16, 0), len(head)):
        ids[:, column] = _HEX_DIGITS[numbers >> shift & 0xFFFF]
    return ids.view(np.uint8)


def encode_items(columns: dict[str, pa.Array], ids: Bytes | None) -> Items:
    """Encode rows as items of batch requests."""
    body, body_lengths = checked_bodies(columns["body"])
    block = properties_block(columns, ids)
    block_lengths = numbers(pc.binary_length(block))
    check_blocks(block_lengths)
    fixed = np.zeros(len(body), _FIXED)
    fixed["size"] = body_lengths + block_lengths + MIN_ITEM_SIZE
    fixed["body"] = body_lengths
    lengths = block_lengths.astype(">i2")
    return Items(*_concatenated(rows_of(fixed, 20), body, rows_of(lengths, 2), block))


def _concatenated(*columns: pa.Array) -> tuple[memoryview, Integers]:
    """The columns of all rows in one buffer: the start of the first row, then the end of each."""
    rows = pc.binary_join_element_wise(*columns, EMPTY)
    _, ends, data = rows.buffers()
    return memoryview(data), np.frombuffer(ends, np.int64)[rows.offset : rows.offset + len(rows) + 1]


def checked_bodies(column: pa.Array) -> tuple[pa.Array, Integers]:
    """The bodies and their lengths; a row without a body is refused."""
    body = column.cast(BINARY)
    if body.null_count:
        raise MessageError("a row has no body (null); give every row one, or filter those rows out")
    lengths = numbers(pc.binary_length(body))
    if not lengths.all():
        raise MessageError("a row has an empty body, which no broker takes; filter those rows out")
    return body, lengths


def properties_block(columns: dict[str, pa.Array], ids: Bytes | None) -> pa.Array:
    """The encoded properties of each row, with its unique id if there are `ids`."""
    parts: list[pa.Array] = []
    if "properties" in columns:
        parts.append(_user_properties(columns["properties"]))
    for name, property_name in (("tags", TAGS), ("keys", KEYS), ("shardingKey", SHARDING_KEY)):
        if name in columns:
            values = joined_keys(columns[name]) if name == "keys" else columns[name]
            parts.append(_property(property_name, name, values))
    if ids is None:
        return _joined(parts) if parts else rows_of(np.empty((len(columns["body"]), 0), np.uint8), 0)
    width = len(_UNIQ) + ids.shape[1] + 1
    unique = np.empty((len(ids), width), np.uint8)
    unique[:, : len(_UNIQ)] = _UNIQ
    unique[:, len(_UNIQ) : -1] = ids
    unique[:, -1] = _END
    unique_keys = rows_of(unique, width)
    return _joined([*parts, unique_keys]) if parts else unique_keys


def joined_keys(column: pa.Array) -> pa.Array:
    """The keys of each row, joined with blanks."""
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        return column
    offsets, (flat,) = _flat(column, column.values)
    if flat.null_count:
        raise MessageError("a row has a key that is null; filter those out of keys")
    if pc.any(pc.match_substring(flat, KEY_SEPARATOR)).as_py():
        raise MessageError("a key contains a blank, which separates keys; use two keys or another character")
    return _lists_joined(column, offsets, flat.cast(BINARY), _scalar(KEY_SEPARATOR))


def _property(name: str, what: str, values: pa.Array) -> pa.Array:
    """`name 0x01 value 0x02` for each row; null without a value."""
    clean = _clean(what, values)
    present = pc.if_else(pc.equal(pc.binary_length(clean), 0), pa.scalar(None, BINARY), clean)
    head, end = _scalar(name + NAME_VALUE_SEPARATOR), _scalar(PROPERTY_SEPARATOR)
    return pc.binary_join_element_wise(head, present, end, EMPTY)


def _user_properties(column: pa.Array) -> pa.Array:
    """The map of each row, encoded."""
    offsets, (names, values) = _flat(column, column.keys, column.items)
    encoded_names = _clean("the name of a property", names)
    encoded_values = _clean("the value of a property", values)
    pairs = pc.binary_join_element_wise(
        encoded_names, _scalar(NAME_VALUE_SEPARATOR), encoded_values, _scalar(PROPERTY_SEPARATOR), EMPTY
    )
    is_dropped = pc.or_(
        pc.is_in(names.cast(_TEXT), value_set=_RESERVED),
        pc.or_(
            pc.equal(pc.binary_length(encoded_names), 0),
            pc.fill_null(pc.equal(pc.binary_length(encoded_values), 0), fill_value=True),
        ),
    )
    kept = pc.if_else(is_dropped, EMPTY, pairs)
    return _lists_joined(column, offsets, kept, EMPTY)


def _flat(column: pa.Array, *values: pa.Array) -> tuple[pa.Array, list[pa.Array]]:
    """The offsets of each row, and the flat values of these rows; a slice has the values of all rows."""
    offsets = column.offsets.cast(pa.int64())
    first, end = offsets[0].as_py(), offsets[-1].as_py()
    return pc.subtract(offsets, first), [each.slice(first, end - first) for each in values]


def _lists_joined(column: pa.Array, offsets: pa.Array, items: pa.Array, separator: pa.Scalar) -> pa.Array:
    """The values of each row, joined; null where the row has no list."""
    joined = pc.binary_join(pa.LargeListArray.from_arrays(offsets, items), separator)
    return pc.if_else(column.is_valid(), joined, pa.scalar(None, BINARY)) if column.null_count else joined


def _clean(what: str, values: pa.Array) -> pa.Array:
    """Text as bytes; a separator in it is refused."""
    encoded = values.cast(BINARY)
    for separator in (NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR):
        if pc.any(pc.match_substring(encoded, separator)).as_py():
            raise MessageError(f"{what} contains a separator character (0x01 or 0x02); remove it")
    return encoded


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    return pc.binary_join_element_wise(*parts, EMPTY, null_handling="replace", null_replacement="")


def _scalar(text: str) -> pa.Scalar:
    return pa.scalar(text.encode(), BINARY)


def rows_of(values: np.ndarray[tuple[int, ...], np.dtype[np.generic]], width: int) -> pa.Array:
    """Rows of `width` bytes as a column."""
    count = len(values)
    ends = np.arange(count + 1, dtype=np.int64) * width
    return pa.LargeBinaryArray.from_buffers(BINARY, count, [None, pa.py_buffer(ends), pa.py_buffer(values)])


def numbers(column: pa.Array) -> Integers:
    numbers: Integers = column.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def check_blocks(lengths: Integers) -> None:
    longest = int(lengths.max(initial=0))
    if longest > MAX_PROPERTIES_LENGTH:
        raise MessageError(
            f"the properties of a row take {longest} bytes, {MAX_PROPERTIES_LENGTH} are possible"
        )


class LogRecords(NamedTuple):
    """Encoded records, concatenated, with the tags code and the key hash of each."""

    data: memoryview
    ends: Integers
    """The start of the first record, then the end of each."""
    codes: Integers
    hashes: Integers | None
    beside: int
    """Bytes that a record has more than an item; size limits apply to items."""

    def body(self, first: int, end: int) -> list[Body]:
        """The request body for a range of rows."""
        ends = self.ends[first : end + 1]
        parts: list[Body] = [
            np.diff(ends).astype(">i4").tobytes(),
            self.codes[first:end].astype(">i8").tobytes(),
        ]
        if self.hashes is not None:
            parts.append(self.hashes[first:end].astype(">i4").tobytes())
        return [*parts, self.data[int(ends[0]) : int(ends[-1])]]


def encode_records(columns: dict[str, pa.Array], ids: Bytes | None, topic: str) -> LogRecords:
    """Encode rows of a topic as log records."""
    body, body_lengths = checked_bodies(columns["body"])
    block = properties_block(columns, ids)
    name = topic.encode()
    block_lengths = numbers(pc.binary_length(block))
    check_blocks(block_lengths)
    body_length, block_length = int(body_lengths[0]), int(block_lengths[0])
    if (body_lengths == body_length).all() and (block_lengths == block_length).all():
        data, ends = _one_size(body, body_length, block, block_length, name)
    else:
        data, ends = _any_sizes(body, body_lengths, block, block_lengths, name)
    beside = FIXED_V4.size + 1 + len(name) + 2 - MIN_ITEM_SIZE
    hashes = None if ids is None else hashes_of_letters(java_hash(f"{topic}#"), ids)
    return LogRecords(data, ends, _codes(columns.get("tags"), len(body)), hashes, beside)


def _one_size(
    body: pa.Array, body_length: int, block: pa.Array, block_length: int, name: bytes
) -> tuple[memoryview, Integers]:
    """Records with equal lengths of bodies and of properties: one table of bytes."""
    head, between = _frames(np.array([body_length]), np.array([block_length]), name)
    body_end = FIXED_V4.size + body_length
    size = body_end + between.shape[1] + block_length
    records = np.empty((len(body), size), np.uint8)
    records[:, : FIXED_V4.size] = head.view(np.uint8)
    records[:, FIXED_V4.size : body_end] = _table(body, body_length)
    records[:, body_end : size - block_length] = between
    records[:, size - block_length :] = _table(block, block_length)
    return records.reshape(-1).data, np.arange(len(body) + 1, dtype=np.int64) * size


def _table(column: pa.Array, width: int) -> Bytes:
    """A column of `width` bytes per row as a table."""
    if not width:
        return np.empty((len(column), 0), np.uint8)
    _, ends, data = column.buffers()
    first = int(np.frombuffer(ends, np.int64)[column.offset])
    table: Bytes = np.frombuffer(data, np.uint8, len(column) * width, first).reshape(-1, width)
    return table


def _any_sizes(
    body: pa.Array, body_lengths: Integers, block: pa.Array, block_lengths: Integers, name: bytes
) -> tuple[memoryview, Integers]:
    heads, between = _frames(body_lengths, block_lengths, name)
    return _concatenated(rows_of(heads, FIXED_V4.size), body, rows_of(between, between.shape[1]), block)


def _frames(body_lengths: Integers, block_lengths: Integers, name: bytes) -> tuple[Heads, Bytes]:
    """The bytes before the bodies, and between bodies and properties."""
    count = len(body_lengths)
    heads = np.zeros(count, _HEAD)
    heads["total_size"] = FIXED_V4.size + body_lengths + 1 + len(name) + 2 + block_lengths
    heads["magic"] = MAGIC_V1
    heads["born_timestamp_ms"] = time.time_ns() // 1_000_000
    heads["body_length"] = body_lengths
    between = np.empty((count, 1 + len(name) + 2), np.uint8)
    between[:, 0] = len(name)
    between[:, 1:-2] = np.frombuffer(name, np.uint8)
    between[:, -2:] = block_lengths.astype(">u2").view(np.uint8).reshape(-1, 2)
    return heads, between


def _codes(tags: pa.Array | None, count: int) -> Integers:
    if tags is None:
        return np.zeros(count, np.int64)
    encoded = tags.dictionary_encode()
    known = [tags_code(each) if each else 0 for each in encoded.dictionary.to_pylist()]
    indices = encoded.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
    codes: Integers = np.array([*known, 0], np.int64)[indices]
    return codes
