"""Send requests: messages are checked, get their ids, and are encoded, alone or as batches.

Rules kept here:
- Messages that no broker would take are refused before anything is sent.
- A body is compressed from `compress_body_over_bytes` on; a batch never is.
- A batch has one topic, one wait flag, at most one sharding key and no delays. It is split so that no request
  exceeds `max_message_size` or `MAX_BATCH_MESSAGES`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from cometmq.client.instance.identity import MessageIds
from cometmq.client.producer.settings import ProducerSettings
from cometmq.model import message_properties as names
from cometmq.model.errors import MessageError
from cometmq.model.message import Message
from cometmq.model.names import RETRY_PREFIX
from cometmq.model.sysflag import CompressionType, with_compression
from cometmq.ports.clock import Clock
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Payload
from cometmq.wire.record.batch import MIN_ITEM_SIZE, BatchItem, encode_batch
from cometmq.wire.record.compression import compress
from cometmq.wire.record.properties import MAX_PROPERTIES_LENGTH, encode_properties, format_properties

MAX_BATCH_MESSAGES: Final = 4_000
"""A larger batch becomes several requests. The response header names each message, which takes 132 KB for a
full batch; older versions of this client read headers of up to 256 KiB.
"""
_MAX_BYTES_PER_CHARACTER: Final = 4
_SEND: Final = RequestCode.SEND_MESSAGE_V2.value
_SEND_BATCH: Final = RequestCode.SEND_BATCH_MESSAGE.value


class SendRequest(msgspec.Struct, gc=False):
    """One message or batch, encoded."""

    body: Payload
    properties: str
    msg_id: str
    born_timestamp_ms: int
    flag: int = 0
    sys_flag: int = 0
    code: int = _SEND


class SystemFields(msgspec.Struct, frozen=True):
    """System properties, flags and request code of a half message, a request or a reply."""

    properties: Mapping[str, str]
    """Properties that only the system may write."""
    sys_flag: int = 0
    code: int = _SEND


class SendRequestBuilder:
    """Encodes messages."""

    def __init__(self, settings: ProducerSettings, namespace: str, ids: MessageIds, clock: Clock) -> None:
        self._max_size = settings.max_message_size
        self._compress_over = settings.compress_body_over_bytes
        self._compression = CompressionType[settings.compression]
        self._level = settings.compression_level
        self._namespace = namespace
        self._ids = ids
        self._now_ms = clock.now_ms

    def of(
        self, message: Message, compressed: bytes | None = None, system: SystemFields | None = None
    ) -> SendRequest:
        """The request of one message, whose body may be compressed already."""
        body = message.body
        self._check_body(body)
        now_ms = self._now_ms()
        properties, msg_id = self._properties(message, now_ms)
        sys_flag, code = 0, _SEND
        if system is not None:
            properties.update(system.properties)
            sys_flag, code = system.sys_flag, system.code
        text = format_properties(properties)
        if len(text) * _MAX_BYTES_PER_CHARACTER > MAX_PROPERTIES_LENGTH:
            encode_properties(properties)  # raises if they are too long
        if len(body) >= self._compress_over:
            body = compressed if compressed is not None else self.compressed(body)
            sys_flag = with_compression(sys_flag, self._compression)
        return SendRequest(body, text, msg_id, now_ms, message.flag, sys_flag, code)

    def is_compressed(self, message: Message) -> bool:
        """Whether the body will be sent compressed."""
        return self._compress_over <= len(message.body) <= self._max_size

    def compressed(self, body: bytes) -> bytes:
        return compress(body, self._compression, self._level)

    def _check_body(self, body: bytes) -> None:
        if not body:
            raise MessageError("a message needs a body", code=ResponseCode.MESSAGE_ILLEGAL)
        if len(body) > self._max_size:
            raise MessageError(
                f"a body of {len(body)} bytes is over max_message_size ({self._max_size}); send less",
                code=ResponseCode.MESSAGE_ILLEGAL,
            )

    def _properties(self, message: Message, now_ms: int) -> tuple[dict[str, str], str]:
        msg_id = self._ids.next_id(now_ms)
        properties = message.all_properties()
        properties[names.UNIQ_KEY] = msg_id
        if self._namespace:
            properties[names.INSTANCE_ID] = self._namespace
        return properties, msg_id

    # Batches.

    def of_batch(self, messages: Sequence[Message]) -> Iterator[tuple[SendRequest, list[str]]]:
        """The requests of a batch, each with the ids of its messages."""
        wait = format_properties({names.WAIT: "true" if messages[0].wait_store_ok else "false"})
        now_ms = self._now_ms()
        for items, msg_ids in self._split(messages, now_ms):
            body = encode_batch(items)
            yield SendRequest(body, wait, ",".join(msg_ids), now_ms, code=_SEND_BATCH), msg_ids

    def _split(self, messages: Iterable[Message], now_ms: int) -> Iterator[tuple[list[BatchItem], list[str]]]:
        items: list[BatchItem] = []
        msg_ids: list[str] = []
        size = 0
        for message in messages:
            self._check_body(message.body)
            properties, msg_id = self._properties(message, now_ms)
            item = BatchItem(message.body, encode_properties(properties), message.flag)
            item_size = MIN_ITEM_SIZE + len(item.body) + len(item.properties_block)
            if items and (size + item_size > self._max_size or len(items) >= MAX_BATCH_MESSAGES):
                yield items, msg_ids
                items, msg_ids, size = [], [], 0
            items.append(item)
            msg_ids.append(msg_id)
            size += item_size
        if items:
            yield items, msg_ids


def not_a_message(given: object) -> MessageError:
    """Why something else than a message cannot be sent."""
    return MessageError(f"{type(given).__name__} cannot be sent; write Message(topic, body)")


def check_batch(messages: Sequence[Message]) -> None:
    """Refuse messages that cannot share a batch."""
    if not messages:
        raise MessageError("a batch needs at least one message")
    for message in messages:
        if not isinstance(message, Message):
            raise not_a_message(message)
    first = messages[0]
    for message in messages:
        if message.topic != first.topic:
            raise MessageError(f"a batch has one topic, and not {first.topic!r} and {message.topic!r}")
        if message.wait_store_ok != first.wait_store_ok:
            raise MessageError("the messages of a batch have the same wait_store_ok")
        if message.sharding_key != first.sharding_key:
            raise MessageError("the messages of a batch have the same sharding_key, or none")
        if message.is_delayed:
            raise MessageError("a batch cannot be delayed; send these messages one by one")
    if first.topic.startswith(RETRY_PREFIX):
        raise MessageError("a batch cannot go to a retry topic; send these messages one by one")
