"""REGISTER_BROKER bodies: a broker's topics, their data version, its filter servers.

Three forms exist: the bare topic table of brokers before 3.0.11, JSON, and a compressed layout with fewer
fields of each topic. Rules kept here: the form follows the sender's version and its `compressed` flag; a
compressed body that claims to be plain, as Apache's brokers send it, is recognised by its first byte; the
decompressed size is limited.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable
from struct import Struct
from typing import Final

import msgspec

from cometmq.model.errors import HeaderError
from cometmq.model.java_numbers import java_int
from cometmq.model.topic import DataVersion, TopicConfig, TopicQueueMappingInfo
from cometmq.wire.bodies.json_body import decode_json_body
from cometmq.wire.codes import V3_0_11, V5_0_0
from cometmq.wire.frame.command import Body

MAX_PLAIN_BYTES: Final = 32 * 1024 * 1024
"""A body that decompresses to more is refused."""
MAX_TOPICS: Final = 100_000
"""A registration of more topics is refused; brokers can send them in several (`enableSplitRegistration`)."""
_ZLIB_FIRST_BYTE: Final = 0x78
_INT32: Final = Struct(">i")


class Registration(msgspec.Struct):
    data_version: DataVersion = DataVersion()
    topics: dict[str, TopicConfig] = msgspec.field(default_factory=dict)
    filter_servers: list[str] | None = None
    """None keeps the known ones; an empty list removes them."""
    mappings: dict[str, TopicQueueMappingInfo] = msgspec.field(default_factory=dict)


class _TopicTable(msgspec.Struct, rename="camel"):
    data_version: DataVersion | None = None
    topic_config_table: dict[str, TopicConfig] | None = None
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] | None = None


class _Body(msgspec.Struct, rename="camel"):
    topic_config_serialize_wrapper: _TopicTable | None = None
    filter_server_list: list[str] | None = msgspec.field(default_factory=list)  # absent is empty in Java too


def decode_registration(body: Body, *, version: int, compressed: bool) -> Registration:
    registration = _decode(body, version, compressed)
    _refuse_many(max(len(registration.topics), len(registration.mappings)))
    return registration


def _refuse_many(topics: int) -> None:
    if topics > MAX_TOPICS:
        raise HeaderError(
            f"{topics} topics are over the limit of {MAX_TOPICS} of one registration; send several, with "
            "enableSplitRegistration=true"
        )


def _decode(body: Body, version: int, compressed: bool) -> Registration:
    if not body:
        return Registration(filter_servers=[])
    if version < V3_0_11:
        return _from_table(decode_json_body(_TopicTable, body), None)
    if compressed or body[0] == _ZLIB_FIRST_BYTE:
        return _decode_compressed(_inflate(body), version)
    whole = decode_json_body(_Body, body)
    return _from_table(whole.topic_config_serialize_wrapper or _TopicTable(), whole.filter_server_list)


def _from_table(table: _TopicTable, filter_servers: list[str] | None) -> Registration:
    return Registration(
        table.data_version or DataVersion(),
        table.topic_config_table or {},
        filter_servers,
        table.topic_queue_mapping_info_map or {},
    )


def _inflate(body: Body) -> bytes:
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(body, MAX_PLAIN_BYTES)
    except zlib.error as error:
        raise HeaderError(f"the compressed body cannot be read: {error}") from None
    if inflater.unconsumed_tail or not inflater.eof:
        raise HeaderError(f"the compressed body is incomplete or larger than {MAX_PLAIN_BYTES} bytes")
    return plain


class _Reader:
    """Reads length-prefixed items."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._pos = 0

    def number(self) -> int:
        if self._pos + _INT32.size > len(self._data):
            raise HeaderError(f"the compressed body ends at {len(self._data)} inside a number")
        value = int(_INT32.unpack_from(self._data, self._pos)[0])
        self._pos += _INT32.size
        return value

    def count(self) -> int:
        count = self.number()
        _refuse_many(count)
        return count

    def item(self) -> bytes:
        size = self.number()
        if size < 0 or self._pos + size > len(self._data):
            raise HeaderError(f"an item of {size} bytes at {self._pos} does not fit the compressed body")
        item = self._data[self._pos : self._pos + size]
        self._pos += size
        return item


def _decode_compressed(data: bytes, version: int) -> Registration:
    reader = _Reader(data)
    registration = Registration(decode_json_body(DataVersion, reader.item()))
    for _ in range(reader.count()):
        topic = _topic_from_text(reader.item())
        registration.topics[topic.topic_name] = topic
    registration.filter_servers = decode_json_body(list[str], reader.item())
    if version >= V5_0_0:
        for _ in range(reader.count()):
            mapping = decode_json_body(TopicQueueMappingInfo, reader.item())
            registration.mappings[mapping.topic] = mapping
    return registration


def _topic_from_text(item: bytes) -> TopicConfig:
    try:
        words = item.decode().split(" ", 5)
        name, read, write, perm = words[0], java_int(words[1]), java_int(words[2]), java_int(words[3])
    except (UnicodeDecodeError, IndexError):
        read = write = perm = None
    if read is None or write is None or perm is None:
        raise HeaderError(f"a topic of the compressed body cannot be read: {item[:80]!r}") from None
    attributes = decode_json_body(dict[str, str], words[5].encode()) if len(words) > 5 else None
    kind = words[4] if len(words) > 4 else "SINGLE_TAG"
    return TopicConfig(name, read, write, perm, kind, attributes=attributes)


def encode_registration(
    topics: Iterable[TopicConfig],
    data_version: DataVersion,
    filter_servers: Iterable[str] = (),
) -> bytes:
    return msgspec.json.encode(
        {
            "filterServerList": list(filter_servers),
            "topicConfigSerializeWrapper": {
                "dataVersion": data_version,
                "topicConfigTable": {
                    topic.topic_name: msgspec.structs.replace(topic, attributes=topic.attributes or {})
                    for topic in topics
                },
            },
        }
    )


def encode_compressed_registration(topics: Collection[TopicConfig], data_version: DataVersion) -> bytes:
    """The compressed form; it has name, queues, permission, filter type and attributes of each topic."""
    parts = [_item(msgspec.json.encode(data_version)), _INT32.pack(len(topics))]
    parts.extend(_item(_topic_as_text(topic)) for topic in topics)
    parts += [_item(b"[]"), _INT32.pack(0)]  # neither filter servers nor queue mappings
    return zlib.compress(b"".join(parts), 9)


def _item(data: bytes) -> bytes:
    return _INT32.pack(len(data)) + data


def _topic_as_text(topic: TopicConfig) -> bytes:
    numbers = f"{topic.read_queue_nums} {topic.write_queue_nums} {topic.perm}"
    attributes = msgspec.json.encode(topic.attributes or {}).decode()
    return f"{topic.topic_name} {numbers} {topic.topic_filter_type} {attributes}".encode()
