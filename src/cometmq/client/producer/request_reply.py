"""Request and reply: a producer sends a message and waits for the reply of its consumer.

Rules kept here:
- A request is an ordinary message with a correlation id and the id of the waiting client. A broker pushes the
  reply to that client, which matches it by the correlation id.
- Pending requests are limited; a further one is refused. Each waits within its timeout, and not beyond the
  stop of its producer.
- A reply that nobody waits for is logged and dropped; to the broker it counts as delivered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from uuid import uuid4

from cometmq.client.producer.send_request import SystemFields
from cometmq.model import message_properties as names
from cometmq.model.errors import CallTimeoutError, ClientError, CometError, StateError, TooManyRequestsError
from cometmq.model.message import Host, StoredMessage
from cometmq.model.names import reply_topic
from cometmq.model.sysflag import compression_type, is_compressed, without_compression
from cometmq.remoting.client import split_address
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.send import ReplyMessageRequest
from cometmq.wire.record.compression import Body, decompress
from cometmq.wire.record.properties import parse_properties

log = logging.getLogger("cometmq.client")

REQUEST_TIMEOUT: Final = 10006
NO_REQUEST: Final = 10007
"""Codes of Java's client: no reply in time, and not a request."""

_REPLY: Final = "reply"
_NOWHERE: Final = Host("0.0.0.0", 0)


def request_fields(client_id: str, timeout_s: float) -> SystemFields:
    """The properties that make a message a request."""
    return SystemFields(
        {
            names.CORRELATION_ID: str(uuid4()),
            names.REPLY_TO_CLIENT: client_id,
            names.TTL: str(max(1, int(timeout_s * 1000))),
        }
    )


def reply_fields(request: StoredMessage) -> tuple[str, SystemFields]:
    """The topic of the reply to a message, and the properties that make it one."""
    properties = request.properties
    cluster, correlation_id = properties.get(names.CLUSTER), properties.get(names.CORRELATION_ID)
    if not cluster or not correlation_id or names.REPLY_TO_CLIENT not in properties:
        raise ClientError(
            f"message {request.msg_id} was not sent as a request; nobody waits for a reply to it",
            code=NO_REQUEST,
        )
    copied = (names.CORRELATION_ID, names.REPLY_TO_CLIENT, names.TTL)
    system = {name: properties[name] for name in copied if name in properties}
    system[names.MSG_TYPE] = _REPLY
    return reply_topic(cluster), SystemFields(system, code=RequestCode.SEND_REPLY_MESSAGE_V2.value)


class PendingReplies:
    """The pending requests of one client instance."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[asyncio.Future[StoredMessage], object]] = {}
        """The future of each reply and the producer that waits for it, by correlation id."""

    def __len__(self) -> int:
        return len(self._waiting)

    @contextmanager
    def expect(
        self, correlation_id: str, owner: object, limit: int
    ) -> Iterator[asyncio.Future[StoredMessage]]:
        """Expect the reply with this id until the end of the block."""
        if len(self._waiting) >= limit:
            raise TooManyRequestsError(f"{len(self._waiting)} requests wait for their replies; ask slower")
        reply = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = reply, owner
        try:
            yield reply
        finally:
            del self._waiting[correlation_id]
            if reply.done() and not reply.cancelled():
                reply.exception()  # the send may have failed first
            else:
                reply.cancel()

    def arrived(self, reply: StoredMessage) -> bool:
        """Hand a reply to its request; False if nobody waits for it."""
        correlation_id = reply.properties.get(names.CORRELATION_ID, "")
        waiting, _ = self._waiting.get(correlation_id, (None, None))
        if waiting is None or waiting.done():
            log.warning(
                "a reply from %s came too late, or was not asked for here; it is dropped (correlation id %s)",
                reply.born_host,
                correlation_id or "missing",
            )
            return False
        waiting.set_result(reply)
        return True

    def abandon(self, owner: object) -> None:
        """Fail the pending requests of a producer that stops."""
        for reply, waiting in self._waiting.values():
            if waiting is owner and not reply.done():
                reply.set_exception(StateError("the producer was stopped before the reply came"))


async def await_reply(
    reply: asyncio.Future[StoredMessage], deadline: float, topic: str, timeout_s: float
) -> StoredMessage:
    """Wait for the reply until the deadline."""
    try:
        async with asyncio.timeout_at(deadline):
            return await reply
    except TimeoutError:
        raise CallTimeoutError(
            f"the request was sent to topic {topic}, but no reply came within {timeout_s:g} s; "
            "see whether somebody consumes and answers it",
            code=REQUEST_TIMEOUT,
        ) from None


def reply_message(header: ReplyMessageRequest, body: Body, now_ms: int) -> StoredMessage:
    """Decode a reply that a broker pushes."""
    properties = parse_properties(header.properties or "")
    properties[names.ARRIVE_TIME] = str(now_ms)
    sys_flag = header.sys_flag
    plain = bytes(body)
    if is_compressed(sys_flag):
        plain = decompress(body, compression_type(sys_flag))
        sys_flag = without_compression(sys_flag)
    return StoredMessage(
        topic=header.topic,
        body=plain,
        properties=properties,
        broker_name=header.target_broker_name or "",
        queue_id=header.queue_id,
        queue_offset=0,
        commit_log_offset=0,
        store_size=len(body),
        body_crc=0,
        flag=header.flag,
        sys_flag=sys_flag,
        born_timestamp_ms=header.born_timestamp,
        born_host=_host(header.born_host),
        store_timestamp_ms=header.store_timestamp,
        store_host=_host(header.store_host),
        reconsume_times=header.reconsume_times or 0,
        prepared_transaction_offset=0,
        offset_msg_id="",
    )


def _host(text: str) -> Host:
    """Parse an address such as `/127.0.0.1:5000` or `name/127.0.0.1:5000`."""
    try:
        return Host(*split_address(text.rpartition("/")[2]))
    except CometError:
        return _NOWHERE
