"""CONSUMER_SEND_MSG_BACK: messages that a consumer could not consume, for a later retry."""

from __future__ import annotations

import logging
import random

from cometmq.broker.context import BrokerContext
from cometmq.broker.send.checks import SendRefused
from cometmq.broker.send.retries import (
    FIRST_RETRY_LEVEL,
    group_not_found,
    most_retries,
    sent_back,
)
from cometmq.broker.timers.delay_levels import put_aside
from cometmq.broker.topics.names import dead_letter_topic, retry_topic
from cometmq.model.message_properties import RETRY_TOPIC
from cometmq.model.topic import MAX_QUEUES, PERM_WRITE
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import DEFERRED, Answer, Deferred, handles
from cometmq.store.status import PutStatus
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.send import ConsumerSendMsgBackRequest
from cometmq.wire.record.properties import find_property
from cometmq.wire.record.record import Record, decode_record

log = logging.getLogger("cometmq.broker")


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
