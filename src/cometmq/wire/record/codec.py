"""Encoding and decoding of a message record, as brokers store and replicate it and consumers get it.

Rules kept here:
- Decoding copies neither body nor properties: they are views of the buffer, which has to stay unchanged while
  they are in use. A decompressed body is a copy.
- A record is valid only if its lengths add up to its total size and stay inside the given limit. Everything
  else is a `RecordError` that says where, and what was expected.
- Version 2, with 16 bits for the topic's length, is chosen only for topics longer than 127 bytes.
- The log's own writers (`store/put`) pack records by the same layout, without a call for each message.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from cometmq.model.errors import MessageError, ProtocolError
from cometmq.model.sysflag import COMPRESSED, HOST_V6_MASK, compression_type, without_compression
from cometmq.wire.record.compression import MAX_BODY_SIZE, decompress
from cometmq.wire.record.crc import checksum
from cometmq.wire.record.ids import PACKED_IPV4_LENGTH
from cometmq.wire.record.layout import (
    FIXED_PARTS,
    FIXED_V4,
    HEAD,
    HOST_BITS,
    MAGIC_FILLER,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TOPIC_LENGTH_V1,
    MAX_TOPIC_LENGTH_V2,
    MIN_RECORD_SIZE,
    PROPERTIES_LENGTH_SIZE,
    FillerError,
    RecordError,
    topic_field,
)
from cometmq.wire.record.properties import MAX_PROPERTIES_LENGTH, decode_properties

if TYPE_CHECKING:
    from cometmq.wire.record.layout import ReadableBuffer

_NO_HOST: Final = bytes(PACKED_IPV4_LENGTH)


class Record(msgspec.Struct, gc=False):
    """One record. After the first three, the fields have the names and the order of `layout.FIELDS`.

    Encoding ignores `total_size`, chooses the version if `magic` is 0 and computes `body_crc` if it is None.
    Hosts are packed (`ids.pack_host`); the two host bits of `sys_flag` follow from them.
    """

    topic: str
    body: bytes | bytearray | memoryview
    properties_block: bytes | memoryview = b""
    total_size: int = 0
    magic: int = 0
    body_crc: int | None = None
    queue_id: int = 0
    flag: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    born_host: bytes = _NO_HOST
    store_timestamp_ms: int = 0
    store_host: bytes = _NO_HOST
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0

    def properties(self) -> dict[str, str]:
        """Returns the properties, decoded anew at every call."""
        return decode_properties(self.properties_block)


def encode_record(record: Record) -> bytearray:
    """Returns the bytes of a record; raises `MessageError` for one that cannot be written."""
    topic, body, block = _topic_bytes(record.topic), record.body, record.properties_block
    properties_length = len(block)
    if properties_length > MAX_PROPERTIES_LENGTH:
        raise MessageError(
            f"the properties take {properties_length} bytes, {MAX_PROPERTIES_LENGTH} are possible"
        )
    magic = _version_for(record, len(topic))
    name = topic_field(topic, magic)
    host_bits = _host_bits(record)
    fixed = FIXED_PARTS[host_bits]
    try:
        head = fixed.pack(
            fixed.size + len(body) + len(name) + PROPERTIES_LENGTH_SIZE + properties_length,
            magic,
            checksum(body) if record.body_crc is None else record.body_crc,
            record.queue_id,
            record.flag,
            record.queue_offset,
            record.physical_offset,
            record.sys_flag & ~HOST_V6_MASK | host_bits,
            record.born_timestamp_ms,
            record.born_host,
            record.store_timestamp_ms,
            record.store_host,
            record.reconsume_times,
            record.prepared_transaction_offset,
            len(body),
        )
    except struct.error as error:
        raise MessageError(f"a field of the record does not fit into its bits: {error}") from None
    lengths = properties_length.to_bytes(PROPERTIES_LENGTH_SIZE, "big")
    return bytearray().join((head, body, name, lengths, block))


def _topic_bytes(topic: str) -> bytes:
    try:
        return topic.encode("utf-8")
    except UnicodeEncodeError:
        raise MessageError(f"topic {topic!r} cannot be written as UTF-8") from None


def _version_for(record: Record, topic_length: int) -> int:
    if topic_length <= MAX_TOPIC_LENGTH_V1:
        return record.magic or MAGIC_V1
    if topic_length > MAX_TOPIC_LENGTH_V2:
        raise MessageError(
            f"a topic of {topic_length} bytes does not fit; {MAX_TOPIC_LENGTH_V2} are possible"
        )
    return MAGIC_V2


def _host_bits(record: Record) -> int:
    born_host, store_host = record.born_host, record.store_host
    try:
        return HOST_BITS[len(born_host), len(store_host)]
    except KeyError:
        raise MessageError(
            f"hosts of {len(born_host)} and {len(store_host)} bytes cannot be written; pack them first"
        ) from None


def decode_record(
    buffer: ReadableBuffer,
    offset: int = 0,
    limit: int | None = None,
    *,
    check_crc: bool = False,
    decompress_body: bool = False,
    max_body_size: int = MAX_BODY_SIZE,
) -> Record:
    """Returns the record at this offset. Nothing at or after `limit`, by default the buffer's end, is read.

    `decompress_body` decompresses a compressed body, to at most `max_body_size` bytes, and clears the flag.
    """
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    fields, body_at = _decode_fixed_part(view, offset, len(view) if limit is None else limit)
    end = offset + fields[0]
    body_length = fields[14]
    tail_at = body_at + body_length
    if body_length < 0 or tail_at > end:
        raise RecordError(body_at - 4, f"the length of a body that ends before {end}", body_length)
    topic, properties_block = _decode_tail(view, tail_at, end, fields[1])
    record = Record(topic, view[body_at:tail_at], properties_block, *fields[:14])
    if check_crc and body_length and checksum(record.body) != record.body_crc:
        raise RecordError(body_at, f"a body with checksum {record.body_crc}", checksum(record.body))
    if decompress_body and record.sys_flag & COMPRESSED and body_length:
        _decompress_body(record, body_at, max_body_size)
    return record


def _decode_fixed_part(view: memoryview, offset: int, limit: int) -> tuple[tuple[Any, ...], int]:
    """Returns the fixed fields and where the body begins."""
    if offset < 0 or limit > len(view) or limit - offset < MIN_RECORD_SIZE:
        _refuse_head(view, offset, limit)
    fields = FIXED_V4.unpack_from(view, offset)
    total_size, magic, host_bits = fields[0], fields[1], fields[7] & HOST_V6_MASK
    if (magic != MAGIC_V1 and magic != MAGIC_V2) or not MIN_RECORD_SIZE <= total_size <= limit - offset:
        _refuse_head(view, offset, limit)
    if not host_bits:
        return fields, offset + FIXED_V4.size
    fixed = FIXED_PARTS[host_bits]
    if fixed.size > total_size:
        raise RecordError(offset, f"a record with IPv6 hosts, of at least {fixed.size} bytes", total_size)
    return fixed.unpack_from(view, offset), offset + fixed.size


def _decode_tail(view: memoryview, tail_at: int, end: int, magic: int) -> tuple[str, memoryview]:
    """Returns topic and properties, which have to reach exactly to the end of the record."""
    topic_at = tail_at + (1 if magic == MAGIC_V1 else 2)
    if topic_at > end:
        raise RecordError(tail_at, "the length of a topic", "the end of the record")
    topic_length = view[tail_at] if magic == MAGIC_V1 else view[tail_at] << 8 | view[tail_at + 1]
    topic_end = topic_at + topic_length
    properties_at = topic_end + 2
    if properties_at > end or topic_length > (
        MAX_TOPIC_LENGTH_V1 if magic == MAGIC_V1 else MAX_TOPIC_LENGTH_V2
    ):
        raise RecordError(tail_at, f"the length of a topic that ends before {end}", topic_length)
    properties_length = view[topic_end] << 8 | view[topic_end + 1]
    if properties_at + properties_length != end or properties_length > MAX_PROPERTIES_LENGTH:
        raise RecordError(topic_end, f"the length of properties that end at {end}", properties_length)
    try:
        return str(view[topic_at:topic_end], "utf-8"), view[properties_at:end]
    except UnicodeDecodeError:
        raise RecordError(topic_at, "a topic in UTF-8", bytes(view[topic_at:topic_end])) from None


def _decompress_body(record: Record, body_at: int, max_body_size: int) -> None:
    try:
        record.body = decompress(record.body, compression_type(record.sys_flag), max_body_size)
    except ProtocolError as error:
        raise RecordError(body_at, "a body that can be decompressed", error) from error
    record.sys_flag = without_compression(record.sys_flag)


def _refuse_head(view: memoryview, offset: int, limit: int) -> NoReturn:
    """Say why no record can begin here."""
    if not 0 <= offset <= limit <= len(view):
        raise RecordError(offset, f"a place inside {len(view)} bytes", f"{offset} to {limit}")
    if limit - offset < HEAD.size:
        raise RecordError(offset, f"a record of {MIN_RECORD_SIZE} bytes or more", f"{limit - offset} bytes")
    total_size, magic = HEAD.unpack_from(view, offset)
    if magic == MAGIC_FILLER:
        raise FillerError(offset, "a record", f"the filler at the end of a file, of {total_size} bytes")
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise RecordError(offset + 4, f"the magic {MAGIC_V1:#x} or {MAGIC_V2:#x}", f"{magic:#x}")
    if total_size < MIN_RECORD_SIZE:
        raise RecordError(offset, f"a total size of {MIN_RECORD_SIZE} or more", total_size)
    raise RecordError(offset, f"a record that ends at or before {limit}", f"a total size of {total_size}")
