"""Encoded records, from the log or from a pull, to Arrow batches.

Rules kept here:
- No Python loop over messages, except for compressed bodies, inner batches and IPv6 hosts.
- Only the requested columns are made, and the map of properties only with `includeProperties`.
- A batch owns its memory: the buffer may be reused afterwards.
- A malformed record, or a body that cannot be decompressed, is a `RecordError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cometmq.model.errors import ProtocolError
from cometmq.model.message_properties import KEYS, RESERVED, TAGS, UNIQ_KEY
from cometmq.model.sysflag import (
    BORN_HOST_V6,
    COMPRESSED,
    INNER_BATCH,
    NEED_UNWRAP,
    STORE_HOST_V6,
    compression_type,
)
from cometmq.spark.arrow.gather import Mask, as_text, gather, replaced
from cometmq.spark.arrow.properties import (
    Properties,
    UniformProperties,
    common_value,
    split_keys,
    uniform_properties,
)
from cometmq.spark.arrow.record_fields import RecordFields
from cometmq.spark.arrow.record_scan import record_starts
from cometmq.spark.columns import ARROW_FIELDS, ARROW_SCHEMA
from cometmq.spark.options import IncludeProperties
from cometmq.wire.record.batch import decode_batch
from cometmq.wire.record.codec import decode_record, encode_record
from cometmq.wire.record.compression import decompress
from cometmq.wire.record.ids import encode_offset_id, unpack_host
from cometmq.wire.record.layout import RecordError

_HEX: Final = np.frombuffer(b"".join(b"%02X" % byte for byte in range(256)), np.dtype("V2"))
_MS_TO_US: Final = 1000
_INNER: Final = INNER_BATCH | NEED_UNWRAP


def to_batch(
    fields: RecordFields,
    *,
    broker_name: str,
    columns: Sequence[str] | None = None,
    include_properties: IncludeProperties = False,
) -> pa.RecordBatch:
    """Records in ascending order as a batch of these columns, or of all."""
    fields.check()
    names = ARROW_SCHEMA.names if columns is None else columns
    schema = pa.schema([ARROW_FIELDS[name] for name in names])
    is_inner = fields.sys_flags & _INNER == _INNER
    if is_inner.any():
        fields = _unwrapped(fields, is_inner)
    if not len(fields):
        return pa.RecordBatch.from_pylist([], schema)
    made = _Columns(fields, broker_name, include_properties)
    arrays = [_MAKERS[name](made) for name in names]
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(fields), pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _unwrapped(fields: RecordFields, is_inner: Mask) -> RecordFields:
    """The records, with each inner batch replaced by one record for each of its messages."""
    content = bytearray()
    view = memoryview(fields.buffer)
    rows = zip(is_inner.tolist(), fields.starts.tolist(), fields.ends.tolist(), strict=True)
    for is_batch, start, end in rows:
        if not is_batch:
            content += view[start:end]
            continue
        outer = decode_record(view, start, decompress_body=True)
        for number, item in enumerate(decode_batch(outer.body)):
            content += encode_record(
                msgspec.structs.replace(
                    outer,
                    body=item.body,
                    properties_block=item.properties_block,
                    body_crc=None,
                    flag=item.flag,
                    queue_offset=outer.queue_offset + number,
                    sys_flag=outer.sys_flag & ~_INNER,
                )
            )
    unwrapped = bytes(content)
    return RecordFields(unwrapped, record_starts(unwrapped))


class _Columns:
    def __init__(self, fields: RecordFields, broker_name: str, include_properties: IncludeProperties) -> None:
        self._fields = fields
        self._broker_name = broker_name
        self._include_properties = include_properties
        self._buffer = pa.py_buffer(fields.bytes)

    def __len__(self) -> int:
        return len(self._fields)

    @cached_property
    def _properties(self) -> UniformProperties | Properties:
        starts, ends = self._fields.block_starts, self._fields.ends
        uniform = uniform_properties(self._fields.bytes, starts, ends)
        return uniform or Properties(self._buffer, starts, ends)

    def topics(self) -> pa.Array:
        fields = self._fields
        topic = common_value(fields.bytes, fields.topic_starts, fields.topic_ends)
        if topic is not None:
            return pa.repeat(pa.scalar(topic.decode("utf-8", "replace"), pa.string()), len(fields))
        return as_text(gather(self._buffer, fields.topic_starts, fields.topic_ends))

    def broker_names(self) -> pa.Array:
        return pa.repeat(pa.scalar(self._broker_name, pa.string()), len(self._fields))

    def numbers(self, name: str, dtype: type[np.generic]) -> pa.Array:
        return pa.array(self._fields.column(name, dtype))

    def message_ids(self) -> pa.Array:
        """The unique key; without one, the offset message id."""
        unique_ids = self._properties.values(UNIQ_KEY)
        if not unique_ids.null_count:
            return unique_ids
        missing = unique_ids.is_null().to_numpy(zero_copy_only=False)
        return replaced(unique_ids, missing, self._offset_ids(missing))

    def _offset_ids(self, rows: Mask) -> pa.Array:
        fields = self._fields
        if (fields.sys_flags[rows] & STORE_HOST_V6).any():
            offsets = fields.fixed["physical_offset"]
            chosen = np.flatnonzero(rows).tolist()
            ids = [encode_offset_id(fields.store_host(row), int(offsets[row])) for row in chosen]
            return pa.array(ids, pa.string())
        packed = np.empty((int(rows.sum()), 16), np.uint8)
        packed[:, :8] = fields.store_hosts_v4()[rows].view(np.uint8).reshape(-1, 8)
        packed[:, 8:] = fields.fixed["physical_offset"][rows].copy().view(np.uint8).reshape(-1, 8)
        text = pa.py_buffer(_HEX[packed.reshape(-1)])
        offsets = np.arange(0, 32 * (len(packed) + 1), 32, dtype=np.int32)
        return pa.StringArray.from_buffers(len(packed), pa.py_buffer(offsets), text)

    def tags(self) -> pa.Array:
        return self._properties.values(TAGS)

    def keys(self) -> pa.Array:
        return split_keys(self._properties.values(KEYS), ARROW_FIELDS["keys"].type)

    def properties(self) -> pa.Array:
        kind = ARROW_FIELDS["properties"].type
        if not self._include_properties:
            return pa.nulls(len(self._fields), kind)
        return self._properties.maps(kind, RESERVED if self._include_properties == "user" else ())

    def bodies(self) -> pa.Array:
        fields = self._fields
        bodies = gather(self._buffer, fields.body_starts, fields.body_ends)
        compressed = (fields.sys_flags & COMPRESSED != 0) & (fields.body_ends > fields.body_starts)
        if not compressed.any():
            return bodies
        rows = np.flatnonzero(compressed).tolist()
        return replaced(bodies, compressed, pa.array([self._decompressed(row) for row in rows], pa.binary()))

    def _decompressed(self, row: int) -> bytes:
        fields = self._fields
        start, end = int(fields.body_starts[row]), int(fields.body_ends[row])
        try:
            return decompress(fields.bytes[start:end].data, compression_type(int(fields.sys_flags[row])))
        except ProtocolError as error:
            raise RecordError(start, "a body that can be decompressed", error) from error

    def born_times(self) -> pa.Array:
        return _times(self._fields.column("born_timestamp_ms", np.int64))

    def store_times(self) -> pa.Array:
        return _times(self._fields.store_times_ms)

    def born_hosts(self) -> pa.Array:
        """Few hosts send many messages, so each distinct host is formatted once."""
        fields = self._fields
        packed = fields.column("born_host", np.uint64)
        if not fields.has_v6 and (packed == packed[0]).all():
            host = _host_text(packed[:1].tobytes())
            return pa.repeat(pa.scalar(host, pa.string()), len(fields))
        found = pa.array(packed).dictionary_encode()
        hosts = [_host_text(host.to_bytes(8, "little")) for host in found.dictionary.to_pylist()]
        texts = pa.array(hosts, pa.string()).take(found.indices)
        is_v6 = fields.sys_flags & BORN_HOST_V6 != 0
        if not is_v6.any():
            return texts
        others = [_host_text(fields.born_host(row)) for row in np.flatnonzero(is_v6).tolist()]
        return replaced(texts, is_v6, pa.array(others, pa.string()))

    def reconsume_times(self) -> pa.Array:
        return pa.array(self._fields.reconsume_times)


_MAKERS: Final[dict[str, Callable[[_Columns], pa.Array]]] = {
    "topic": _Columns.topics,
    "brokerName": _Columns.broker_names,
    "queueId": lambda columns: columns.numbers("queue_id", np.int32),
    "queueOffset": lambda columns: columns.numbers("queue_offset", np.int64),
    "msgId": _Columns.message_ids,
    "tags": _Columns.tags,
    "keys": _Columns.keys,
    "properties": _Columns.properties,
    "body": _Columns.bodies,
    "bornTimestamp": _Columns.born_times,
    "storeTimestamp": _Columns.store_times,
    "bornHost": _Columns.born_hosts,
    "reconsumeTimes": _Columns.reconsume_times,
    "physicalOffset": lambda columns: columns.numbers("physical_offset", np.int64),
    "error": lambda columns: pa.nulls(len(columns), pa.string()),
}


def _times(times_ms: npt.NDArray[np.generic]) -> pa.Array:
    return pa.array(times_ms * _MS_TO_US).view(ARROW_FIELDS["storeTimestamp"].type)


def _host_text(packed: bytes) -> str | None:
    """A host as text; null if it is invalid, which does not make the message unreadable."""
    try:
        return str(unpack_host(packed))
    except ProtocolError:
        return None
