"""Decoding the messages in the answer to a pull, for consumers.

Rules kept here:
- Messages do not refer to the buffer. Their properties are decoded at first use, which many consumers never
  make.
- An inner batch is split into its messages, as by Java's clients.
- Decoding stops at the first unreadable record. The messages before it are good, and the result says why it
  stopped, so that the caller can go on after it.
- Tags are compared as texts: a broker compares hashes and may let other tags through.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from cometmq.model.errors import ProtocolError
from cometmq.model.message import StoredMessage
from cometmq.model.message_properties import TAGS
from cometmq.model.queue import MessageQueue
from cometmq.model.sysflag import COMPRESSED, HOST_V6_MASK, INNER_BATCH, NEED_UNWRAP
from cometmq.wire.frame.command import Body
from cometmq.wire.record.batch import decode_batch
from cometmq.wire.record.codec import decode_record
from cometmq.wire.record.ids import encode_offset_id, unpack_host
from cometmq.wire.record.layout import FIXED_V4, MAGIC_V1
from cometmq.wire.record.properties import decode_properties, find_property
from cometmq.wire.record.walk import to_stored_message

_UNUSUAL: Final = COMPRESSED | HOST_V6_MASK | INNER_BATCH | NEED_UNWRAP
_INNER: Final = INNER_BATCH | NEED_UNWRAP
_FIXED_SIZE: Final = FIXED_V4.size
_PROPERTIES_LENGTH: Final = struct.Struct(">H")


class LazyProperties(Mapping[str, str]):
    """Properties that are decoded at first use."""

    __slots__ = ("_block", "_read")

    def __init__(self, block: bytes) -> None:
        self._block = block
        self._read: dict[str, str] | None = None

    def _all(self) -> dict[str, str]:
        read = self._read
        if read is None:
            read = self._read = decode_properties(self._block)
        return read

    def __getitem__(self, name: str) -> str:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __contains__(self, name: object) -> bool:
        return name in self._all()

    def __repr__(self) -> str:
        return repr(self._all())

    def __reduce__(self) -> tuple[type[LazyProperties], tuple[bytes]]:
        return LazyProperties, (self._block,)


class Pulled(NamedTuple):
    """The messages in the body of an answer."""

    messages: list[StoredMessage]
    error: ProtocolError | None
    """Why reading stopped before the end of the body; None if it did not."""


def decode_pulled(
    body: Body, queue: MessageQueue, tags: Collection[str] = (), *, offset_delta: int = 0
) -> Pulled:
    """Returns the messages pulled from a queue; with `tags`, only those with one of them."""
    view = memoryview(body)
    end = len(view)
    messages: list[StoredMessage] = []
    at = 0
    try:
        while at < end:
            message = _usual_message(view, at, end, queue)
            if message is None:
                record = decode_record(view, at, decompress_body=True)
                at += record.total_size
                message = to_stored_message(record, queue.broker_name)
                if message.sys_flag & _INNER == _INNER:
                    messages += _inner_messages(message)
                    continue
            else:
                at += message.store_size
            messages.append(message)
    except ProtocolError as error:
        return Pulled(_wanted(messages, tags, offset_delta), error)
    return Pulled(_wanted(messages, tags, offset_delta) if tags or offset_delta else messages, None)


def _usual_message(view: memoryview, at: int, end: int, queue: MessageQueue) -> StoredMessage | None:
    """Returns the message of a record in the usual form; None for all others."""
    if end - at < _FIXED_SIZE:
        return None
    (
        size, magic, crc, queue_id, flag, queue_offset, log_offset, sys_flag, born_ms, born_host,
        store_ms, store_host, reconsume_times, prepared_offset, body_size,
    ) = FIXED_V4.unpack_from(view, at)  # fmt: skip
    if magic != MAGIC_V1 or sys_flag & _UNUSUAL or size > end - at or body_size < 0:
        return None
    body_at = at + _FIXED_SIZE
    topic_at = body_at + body_size + 1
    record_end = at + size
    if topic_at + 2 > record_end:
        return None
    topic_end = topic_at + view[topic_at - 1]
    properties_at = topic_end + 2
    if (
        properties_at > record_end
        or properties_at + _PROPERTIES_LENGTH.unpack_from(view, topic_end)[0] != record_end
    ):
        return None
    try:
        topic = str(view[topic_at:topic_end], "utf-8")
    except UnicodeDecodeError:
        return None
    return StoredMessage(
        topic=topic,
        body=bytes(view[body_at : topic_at - 1]),
        properties=LazyProperties(bytes(view[properties_at:record_end])),
        broker_name=queue.broker_name,
        queue_id=queue_id,
        queue_offset=queue_offset,
        commit_log_offset=log_offset,
        store_size=size,
        body_crc=crc,
        flag=flag,
        sys_flag=sys_flag,
        born_timestamp_ms=born_ms,
        born_host=unpack_host(born_host),
        store_timestamp_ms=store_ms,
        store_host=unpack_host(store_host),
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_offset,
        offset_msg_id=encode_offset_id(store_host, log_offset),
    )


def _inner_messages(outer: StoredMessage) -> list[StoredMessage]:
    """Returns the messages of an inner batch, numbered from its queue offset on."""
    return [
        msgspec.structs.replace(
            outer,
            body=bytes(item.body),
            properties=LazyProperties(bytes(item.properties_block)),
            flag=item.flag,
            queue_offset=outer.queue_offset + index,
        )
        for index, item in enumerate(decode_batch(outer.body))
    ]


def _wanted(messages: list[StoredMessage], tags: Collection[str], offset_delta: int) -> list[StoredMessage]:
    if offset_delta:  # a static topic counts its logical queue, the record its physical one
        messages = [
            msgspec.structs.replace(message, queue_offset=message.queue_offset + offset_delta)
            for message in messages
        ]
    return [message for message in messages if _tag_of(message) in tags] if tags else messages


def _tag_of(message: StoredMessage) -> str | None:
    properties = message.properties
    if isinstance(properties, LazyProperties):
        return find_property(properties._block, TAGS)
    return properties.get(TAGS)
