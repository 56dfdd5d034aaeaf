"""The send family: SEND_MESSAGE in its forms, CONSUMER_SEND_MSG_BACK, SEND_REPLY_MESSAGE and RECALL_MESSAGE.

Rules kept here:
- A message that a consumer sends back is put again with a delay, or among the dead letters of its group.
- A reply is pushed to the waiting client, and stored with `storeReplyMessageEnable`, whether it was taken or
  not. Its sender hears of success when the client has taken it.
- A recall is a message of its own, for the same slot of the timer wheel; an answered recall is reliable, as
  long as the slot is not being delivered already.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from typing import Final, cast

from cometmq.broker.cluster.addresses import announced
from cometmq.broker.context import BrokerContext
from cometmq.broker.send.checks import AnySend, SendRefused, SendTarget
from cometmq.broker.send.group_send import GroupSender
from cometmq.broker.send.pending_replies import PendingReplies
from cometmq.broker.send.retries import (
    FIRST_RETRY_LEVEL,
    group_not_found,
    most_retries,
    sent_back,
)
from cometmq.broker.timers.delay_levels import put_aside
from cometmq.broker.timers.schedule import RecallHandle, cancel_key, read_handle
from cometmq.model.errors import CometError, MessageError
from cometmq.model.message_properties import (
    BORN_TIMESTAMP,
    PGROUP,
    PUSH_REPLY_TIME,
    REPLY_TO_CLIENT,
    RETRY_TOPIC,
    TAGS,
    TIMER_DEL_UNIQKEY,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
)
from cometmq.model.names import dead_letter_topic, retry_topic
from cometmq.model.topic import MAX_QUEUES, PERM_WRITE
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import DEFERRED, Answer, Deferred, GroupResult, Result, handles, handles_groups
from cometmq.store.status import PutStatus
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.header.schema import encode_fields
from cometmq.wire.headers.send import (
    ConsumerSendMsgBackRequest,
    RecallMessageRequest,
    RecallMessageResponse,
    ReplyMessageRequest,
    SendMessageRequest,
    SendMessageRequestV2,
    SendMessageResponse,
)
from cometmq.wire.record.codec import Record, decode_record
from cometmq.wire.record.properties import find_property, format_properties, parse_properties

log = logging.getLogger("cometmq.broker")

PUSH_S: Final = 10.0
"""How long a client may take to accept a reply."""
RECALL_TAG: Final = "_RECALL_TAG_"
_NOT_AVAILABLE: Final = "recall failed, broker service not available"


class SendHandlers:
    """SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE."""

    def __init__(self, context: BrokerContext) -> None:
        self._sender = context.sender
        self._group_sender = GroupSender(context.settings, context.store, context.traffic, context.sender)

    @handles(RequestCode.SEND_MESSAGE, SendMessageRequest)
    def send_long(
        self, header: SendMessageRequest, request: Command, connection: Connection
    ) -> Answer | Deferred:
        """The form with long field names, of old clients."""
        return self._sender.send(header, request, connection)

    @handles(RequestCode.SEND_MESSAGE_V2, SendMessageRequestV2)
    @handles(RequestCode.SEND_BATCH_MESSAGE, SendMessageRequestV2)
    def send(
        self, header: SendMessageRequestV2, request: Command, connection: Connection
    ) -> Answer | Deferred:
        """Put a message, or a batch if the header says that it is one."""
        request.typed = header
        (result,) = self._group_sender.send((request,), connection, framed=False)
        return cast(Answer | Deferred, result)

    @handles_groups(RequestCode.SEND_MESSAGE_V2)
    def send_group(self, requests: Sequence[Command], connection: Connection) -> Sequence[GroupResult]:
        """Put the messages of requests that came together."""
        return self._group_sender.send(requests, connection)


class SendBackHandlers:
    """CONSUMER_SEND_MSG_BACK."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    @handles(RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequest)
    def send_back(
        self, header: ConsumerSendMsgBackRequest, request: Command, connection: Connection
    ) -> Answer | Deferred:
        """Put the message once more, for later or among the dead letters."""
        context = self._context
        group = context.groups.find(header.group)
        if group is None:
            raise group_not_found(header.group)
        config = context.settings.broker
        if not config.is_writable:
            remark = f"the broker[{config.broker_ip1}] sending message is forbidden"
            raise SendRefused(ResponseCode.NO_PERMISSION, remark)
        if group.retry_queue_nums <= 0:
            return Answer()  # the group wants nothing tried again
        made_before = context.topics.generation
        retries = context.topics.ensure_retry_topic(
            header.group, group.retry_queue_nums, has_unit_sub=header.unit_mode
        )
        if retries is None:
            raise SendRefused(
                ResponseCode.TOPIC_NOT_EXIST, context.topics.no_room_for(retry_topic(header.group))
            )
        if not retries.perm & PERM_WRITE:
            remark = f"the topic[{retries.topic_name}] sending message is forbidden"
            raise SendRefused(ResponseCode.NO_PERMISSION, remark)
        stored = self._stored(header.offset)
        most = most_retries(group, request.version, header.max_reconsume_times)
        status = self._put_again(
            header, stored, most, random.randrange(min(group.retry_queue_nums, MAX_QUEUES))
        )
        if status is not PutStatus.PUT_OK:
            return Answer(ResponseCode.SYSTEM_ERROR, remark=status.value)
        context.traffic.note_sent_back(
            find_property(stored.properties_block, RETRY_TOPIC) or stored.topic, header.group
        )
        if context.topics.generation != made_before:
            context.topic_file.when_saved(lambda _: connection.answer(request, Answer()))
            return DEFERRED
        return Answer()

    def _stored(self, offset: int) -> Record:
        view = self._context.store.lookup.at(offset)
        if view is None:
            raise SendRefused(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")
        return decode_record(view)

    def _put_again(
        self, header: ConsumerSendMsgBackRequest, stored: Record, most: int, queue_id: int
    ) -> PutStatus:
        context, level = self._context, header.delay_level
        is_dead = stored.reconsume_times >= most or level < 0
        if is_dead:
            context.topics.ensure_dead_letter_topic(header.group)
            record, _ = sent_back(stored, dead_letter_topic(header.group), 0, 0)
        else:
            level = level or FIRST_RETRY_LEVEL + stored.reconsume_times
            record, properties = sent_back(stored, retry_topic(header.group), queue_id, level)
            put_aside(record, properties, level, context.delays.levels)
        status = context.store.put(record).status
        if not is_dead:
            context.delays.stored(record)
        if is_dead and status is PutStatus.PUT_OK:
            context.traffic.gave_up(header.origin_topic or stored.topic, header.group)
            log.info(
                "a message of %s at %d is put among the dead letters of %s",
                *(header.origin_topic or stored.topic, header.offset, header.group),
            )
        return status


class ReplyHandlers:
    """SEND_REPLY_MESSAGE in its forms."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._sender = context.sender
        self._answers = context.sender.answers
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
            target = self._sender.checks.target(header, connection.remote_address)
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
            block = (header.properties or "").encode()
            record = self._sender.record(header, target, connection, queue_id, request.body, block)
            result = self._context.store.put(record)
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


class RecallHandlers:
    """RECALL_MESSAGE."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._sender = context.sender

    @handles(RequestCode.RECALL_MESSAGE, RecallMessageRequest)
    def recall(
        self, header: RecallMessageRequest, request: Command, connection: Connection
    ) -> Answer | Deferred:
        """Take back the message of a handle."""
        sender, answers = self._sender, self._context.sender.answers
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

        if sender.answers_wait:
            return sender.answer_when_copied(result, request, connection, answer)
        return answer(result.status)

    def _check_broker(self, topic: str) -> None:
        context, config = self._context, self._context.settings.broker
        if not config.recall_message_enable:
            raise SendRefused(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if context.settings.is_slave:
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
            handle.topic, b"0", born_timestamp_ms=now_ms, born_host=self._sender.born_host(connection)
        )
        self._context.timers.set(record, properties)
        return record
