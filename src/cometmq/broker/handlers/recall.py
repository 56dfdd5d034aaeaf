"""RECALL_MESSAGE: taking back a timed message before its time.

Rules kept here: what takes a message back is a message of its own, for the same slot of the timer wheel;
whoever is told of success can rely on it, as long as the slot is not being delivered already.
"""

from __future__ import annotations

from typing import Final

from cometmq.broker.context import BrokerContext
from cometmq.broker.send.checks import SendRefused
from cometmq.broker.timers.schedule import RecallHandle, cancel_key, read_handle
from cometmq.model.errors import MessageError
from cometmq.model.message_properties import (
    BORN_TIMESTAMP,
    PGROUP,
    TAGS,
    TIMER_DEL_UNIQKEY,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
)
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, Deferred, handles
from cometmq.store.status import PutStatus
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.send import RecallMessageRequest, RecallMessageResponse
from cometmq.wire.record.record import Record

RECALL_TAG: Final = "_RECALL_TAG_"
_NOT_AVAILABLE: Final = "recall failed, broker service not available"


class RecallHandlers:
    """RECALL_MESSAGE."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._sending = context.sending

    @handles(RequestCode.RECALL_MESSAGE, RecallMessageRequest)
    def recall(
        self, header: RecallMessageRequest, request: Command, connection: Connection
    ) -> Answer | Deferred:
        """Take back the message of a handle."""
        sending, answers = self._sending, self._context.sending.answers
        try:
            self._check_broker(header.topic)
            handle = self._handle(header)
        except SendRefused as refusal:
            return answers.refuse(refusal.code or ResponseCode.SYSTEM_ERROR, refusal.message)
        try:
            cancellation = self._cancellation(header, handle, connection)
        except (SendRefused, MessageError):
            return answers.refuse(ResponseCode.SYSTEM_ERROR, "recall failed, execute error")
        result = self._context.store.put(cancellation)
        if result.status is not PutStatus.PUT_OK:
            return answers.refuse(ResponseCode.SYSTEM_ERROR, "recall failed, execute error")

        def answer(_: PutStatus) -> Answer:
            return Answer(header=RecallMessageResponse(msg_id=handle.unique_key), fields=answers.fields)

        if sending.waits_for_flush:
            return sending.answer_when_flushed(result, request, connection, answer)
        return answer(result.status)

    def _check_broker(self, topic: str) -> None:
        context, config = self._context, self._context.settings.broker
        if not config.recall_message_enable:
            raise SendRefused(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if context.settings.store.broker_role == "SLAVE":
            raise SendRefused(ResponseCode.SLAVE_NOT_AVAILABLE, _NOT_AVAILABLE)
        is_too_early = context.clock.now_ms() < config.start_accept_send_request_time_stamp
        if is_too_early or not (config.is_writable or config.allow_recall_when_broker_not_writeable):
            raise SendRefused(ResponseCode.SERVICE_NOT_AVAILABLE, _NOT_AVAILABLE)
        if context.topics.get(topic) is None:
            raise SendRefused(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic}] not exist")

    def _handle(self, header: RecallMessageRequest) -> RecallHandle:
        handle = read_handle(header.recall_handle)
        if handle is None:
            raise SendRefused(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid")
        if handle.topic != header.topic:
            raise SendRefused(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker_name != self._context.settings.broker.broker_name:
            raise SendRefused(ResponseCode.ILLEGAL_OPERATION, _NOT_AVAILABLE)
        left_ms = handle.deliver_ms - self._context.clock.now_ms()
        if not 0 < left_ms < self._context.settings.store.timer_max_delay_sec * 1000:
            raise SendRefused(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        return handle

    def _cancellation(
        self, header: RecallMessageRequest, handle: RecallHandle, connection: Connection
    ) -> Record:
        now_ms = self._context.clock.now_ms()
        properties = {
            TAGS: RECALL_TAG,
            TIMER_DEL_UNIQKEY: cancel_key(handle.topic, handle.unique_key),
            UNIQ_KEY: handle.unique_key,
            TIMER_DELIVER_MS: str(handle.deliver_ms),
            BORN_TIMESTAMP: str(now_ms),
        }
        if header.producer_group:
            properties[PGROUP] = header.producer_group
        record = Record(
            handle.topic, b"0", born_timestamp_ms=now_ms, born_host=self._sending.born_host(connection)
        )
        self._context.timers.set(record, properties)
        return record
