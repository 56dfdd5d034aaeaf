"""Request-reply: replies are pushed to the waiting client, and stored with `storeReplyMessageEnable`.

Rules kept here: who replies hears of success when the client that asked has taken the reply. The reply is
stored whether it was taken or not.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Final

from cometmq.broker.cluster.addresses import announced
from cometmq.broker.context import BrokerContext
from cometmq.broker.send.checks import AnySend, SendRefused, SendTarget
from cometmq.broker.send.pending_replies import PendingReplies
from cometmq.model.errors import CometError
from cometmq.model.message_properties import PUSH_REPLY_TIME, REPLY_TO_CLIENT
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, Result, handles
from cometmq.store.status import PutStatus
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.header.header import encode_fields
from cometmq.wire.headers.send import (
    ReplyMessageRequest,
    SendMessageRequest,
    SendMessageRequestV2,
    SendMessageResponse,
)
from cometmq.wire.record.properties import format_properties, parse_properties
from cometmq.wire.record.record import Record

log = logging.getLogger("cometmq.broker")

PUSH_S: Final = 10.0
"""How long a client may take to accept a reply."""


class ReplyHandlers:
    """SEND_REPLY_MESSAGE in its forms."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._sending = context.sending
        self._answers = context.sending.answers
        self._pending_replies = PendingReplies(context.clients)

    @handles(RequestCode.SEND_REPLY_MESSAGE, SendMessageRequest)
    def reply_long(self, header: SendMessageRequest, request: Command, connection: Connection) -> Result:
        """The form with long field names."""
        return self._reply(header, request, connection)

    @handles(RequestCode.SEND_REPLY_MESSAGE_V2, SendMessageRequestV2)
    def reply(self, header: SendMessageRequestV2, request: Command, connection: Connection) -> Result:
        """Bring a reply to the client that its properties name."""
        return self._reply(header, request, connection)

    def _reply(self, header: AnySend, request: Command, connection: Connection) -> Result:
        try:
            target = self._sending.checks.target(header, connection.remote_address)
        except SendRefused as refusal:
            return self._answers.refuse(refusal.code or ResponseCode.SYSTEM_ERROR, refusal.message)
        queue_id = _queue_id(header, target)
        stored = SendMessageResponse(msg_id="0", queue_id=queue_id, queue_offset=0)
        if self._context.settings.broker.store_reply_message_enable:
            stored = self._store(header, request, connection, target, queue_id) or stored
        properties = parse_properties(header.properties or "")
        client_id = properties.get(REPLY_TO_CLIENT)
        if client_id is None:
            return self._failed(stored, "reply message properties[REPLY_TO_CLIENT] is null")
        requester = self._pending_replies.find(client_id)
        if requester is None:
            return self._failed(stored, f"push reply message fail, channel of <{client_id}> not found.")
        pushed = self._push(requester, header, request, connection, properties)

        return self._taken(pushed, client_id, stored)

    async def _taken(
        self, pushed: asyncio.Future[Command], client_id: str, stored: SendMessageResponse
    ) -> Answer:
        """Whether the client took the reply; an orderly stop of the broker waits for that."""
        failure: object = "it answered so"
        try:
            if (await pushed).code == ResponseCode.SUCCESS:
                return Answer(header=stored, fields=self._answers.fields)
        except CometError as error:
            failure = error
        log.warning("%s did not take a reply: %s", client_id, failure)
        return self._failed(stored, f"push reply message to {client_id}fail.")

    def _push(
        self,
        requester: Connection,
        header: AnySend,
        request: Command,
        connection: Connection,
        properties: dict[str, str],
    ) -> asyncio.Future[Command]:
        now_ms = self._context.clock.now_ms()
        properties[PUSH_REPLY_TIME] = str(now_ms)
        pushed = ReplyMessageRequest(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=format_properties(properties),
            reconsume_times=header.reconsume_times,
            unit_mode=bool(header.unit_mode),
            born_host=connection.remote_address,
            store_host=announced(*self._context.host),
            store_timestamp=now_ms,
        )
        fields = encode_fields(pushed)
        code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        return requester.call(code, fields, request.body, timeout_s=PUSH_S)

    def _store(
        self, header: AnySend, request: Command, connection: Connection, target: SendTarget, queue_id: int
    ) -> SendMessageResponse | None:
        """Put the reply into its topic; returns its position, None if that failed."""
        try:
            result = self._context.store.put(
                Record(
                    header.topic,
                    request.body,
                    (header.properties or "").encode(),
                    queue_id=queue_id,
                    flag=header.flag,
                    sys_flag=header.sys_flag | target.sys_flag,
                    born_timestamp_ms=header.born_timestamp,
                    born_host=self._sending.born_host(connection),
                    reconsume_times=header.reconsume_times or 0,
                )
            )
        except (CometError, UnicodeEncodeError) as error:
            log.warning("a reply was not stored: %s", error)
            return None
        if result.status is not PutStatus.PUT_OK:
            log.warning("a reply was not stored: %s", result.status.value)
            return None
        return SendMessageResponse(
            msg_id=result.offset_ids, queue_id=queue_id, queue_offset=result.queue_offset
        )

    def _failed(self, stored: SendMessageResponse, remark: str) -> Answer:
        return Answer(ResponseCode.SYSTEM_ERROR, header=stored, remark=remark, fields=self._answers.fields)


def _queue_id(header: AnySend, target: SendTarget) -> int:
    return header.queue_id if header.queue_id >= 0 else random.randrange(max(target.write_queues, 1))
