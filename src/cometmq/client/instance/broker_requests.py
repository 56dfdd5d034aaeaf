"""Requests from brokers to a client, on the connections that the client opened.

Rules kept here:
- Each request goes to the consumer or producer of the group that it names; a missing group is answered with
  an error that says so.
- Nothing here takes long: transaction checks run elsewhere, replies are only handed over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cometmq.client.producer.request_reply import PendingReplies, reply_message
from cometmq.model.errors import ClientError
from cometmq.model.message_properties import PGROUP
from cometmq.ports.clock import Clock
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, handles
from cometmq.wire.bodies.consumer_info import encode_consume_directly_result, encode_running_info
from cometmq.wire.bodies.queue_table import decode_queue_table, encode_queue_table
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.offset import ResetOffsetRequest
from cometmq.wire.headers.send import CheckTransactionStateRequest, ReplyMessageRequest
from cometmq.wire.headers.session import (
    ConsumeMessageDirectlyResultRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusRequest,
    NotifyConsumerIdsChangedRequest,
)
from cometmq.wire.record.codec import decode_record
from cometmq.wire.record.walk import to_stored_message

if TYPE_CHECKING:
    from cometmq.client.instance.members import ConsumerMember, TransactionMember

log = logging.getLogger("cometmq.client")


@dataclass(eq=False, repr=False)
class BrokerRequests:
    """The handlers of one client instance."""

    _find_consumer: Callable[[str], ConsumerMember | None]
    _find_transactions: Callable[[str], TransactionMember | None]
    _replies: PendingReplies
    _clock: Clock

    def _consumer(self, group: str) -> ConsumerMember:
        consumer = self._find_consumer(group)
        if consumer is None:
            raise ClientError(f"this client has no consumer of group {group}", code=ResponseCode.SYSTEM_ERROR)
        return consumer

    @handles(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, NotifyConsumerIdsChangedRequest)
    def ids_changed(
        self, header: NotifyConsumerIdsChangedRequest, request: Command, connection: Connection
    ) -> Answer:
        self._consumer(header.consumer_group).consumer_ids_changed()
        return Answer()

    @handles(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ResetOffsetRequest)
    async def reset_offsets(
        self, header: ResetOffsetRequest, request: Command, connection: Connection
    ) -> Answer:
        consumer = self._consumer(header.group)
        await consumer.reset_offsets(header.topic, decode_queue_table(request.body, "offsetTable"))
        return Answer()

    @handles(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, GetConsumerStatusRequest)
    def status(self, header: GetConsumerStatusRequest, request: Command, connection: Connection) -> Answer:
        offsets = self._consumer(header.group).status(header.topic)
        return Answer(body=encode_queue_table("messageQueueTable", offsets))

    @handles(RequestCode.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfoRequest)
    async def running_info(
        self, header: GetConsumerRunningInfoRequest, request: Command, connection: Connection
    ) -> Answer:
        consumer = self._consumer(header.consumer_group)
        return Answer(body=encode_running_info(await consumer.running_info(header.jstack_enable)))

    @handles(RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyResultRequest)
    async def consume_directly(
        self, header: ConsumeMessageDirectlyResultRequest, request: Command, connection: Connection
    ) -> Answer:
        consumer = self._consumer(header.consumer_group)
        broker_name = header.broker_name or ""
        record = decode_record(request.body, decompress_body=True)
        result = await consumer.consume_directly(to_stored_message(record, broker_name), broker_name)
        return Answer(body=encode_consume_directly_result(result))

    @handles(RequestCode.CHECK_TRANSACTION_STATE, CheckTransactionStateRequest)
    def check_transaction(
        self, header: CheckTransactionStateRequest, request: Command, connection: Connection
    ) -> Answer:
        record = decode_record(request.body, decompress_body=True)
        message = to_stored_message(record, header.target_broker_name or "")
        group = message.properties.get(PGROUP, "")
        producer = self._find_transactions(group)
        if producer is None:  # nobody reads the response to a one-way request
            log.warning(
                "%s asks about a transaction of group %r, which is not here", connection.remote_address, group
            )
            raise ClientError(f"this client has no producer of group {group} that sends in transactions")
        producer.check_transaction(connection.remote_address, header, message)
        return Answer()

    @handles(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ReplyMessageRequest)
    def reply(self, header: ReplyMessageRequest, request: Command, connection: Connection) -> Answer:
        self._replies.arrived(reply_message(header, request.body, self._clock.now_ms()))
        return Answer()
