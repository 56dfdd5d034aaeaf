"""Offsets: those of queues, and those that groups have reached."""

from __future__ import annotations

from typing import Final

from cometmq.broker.context import BrokerContext
from cometmq.broker.groups.offsets import TOO_MANY_OFFSETS
from cometmq.broker.handlers.refusals import raise_if
from cometmq.broker.query.messages import Queries
from cometmq.model.names import OWN_GROUPS
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, handles
from cometmq.store.queue.consume_queue import Boundary
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.offset import (
    GetEarliestMsgStoretimeRequest,
    GetEarliestMsgStoretimeResponse,
    GetMaxOffsetRequest,
    GetMaxOffsetResponse,
    GetMinOffsetRequest,
    GetMinOffsetResponse,
    QueryConsumerOffsetRequest,
    QueryConsumerOffsetResponse,
    SearchOffsetRequest,
    SearchOffsetResponse,
    UpdateConsumerOffsetRequest,
)

_DO_NOT_SET: Final = "Not found, do not set to zero, maybe this group boot first"
_UNKNOWN: Final = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"


def has_queue(context: BrokerContext, topic: str, queue_id: int) -> bool:
    """Whether a topic has this queue, or had it: its files stay for a while, and consumers may not know."""
    return context.topics.has_queue(topic, queue_id) or context.store.queues.find(topic, queue_id) is not None


class OffsetHandlers:
    """Questions for offsets, and commits."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._queries = Queries(context.store)

    @handles(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequest)
    def query_consumer_offset(self, header: QueryConsumerOffsetRequest) -> Answer:
        """The offset that a group goes on from.

        A new group begins at 0 in a queue of which nothing was lost yet and whose first message is in memory;
        also in one without messages, because the first may come before the group asks for the end.
        """
        topic, queue_id = header.topic, header.queue_id
        offset = self._context.offsets.query(header.consumer_group, topic, queue_id)
        if offset < 0:
            if header.set_zero_if_not_found is False:
                return Answer(ResponseCode.QUERY_NOT_FOUND, remark=_DO_NOT_SET)
            if not self._begins_at_zero(topic, queue_id):
                return Answer(ResponseCode.QUERY_NOT_FOUND, remark=_UNKNOWN)
            offset = 0
        return Answer(header=QueryConsumerOffsetResponse(offset=offset))

    def _begins_at_zero(self, topic: str, queue_id: int) -> bool:
        store = self._context.store
        queue = store.queues.find(topic, queue_id)
        if queue is None or queue.max_offset == 0:
            return True
        return queue.min_offset == 0 and not store.reader.cold_ranges(topic, queue_id, 0, 1)

    @handles(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequest)
    def update_consumer_offset(
        self, header: UpdateConsumerOffsetRequest, request: Command, connection: Connection
    ) -> Answer:
        """A group has consumed a queue up to an offset."""
        context = self._context
        group, topic = header.consumer_group, header.topic
        if context.groups.get(group) is None:
            remark = f"Group {group} not exist!"
            return Answer(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=remark)
        if context.topics.get(topic) is None:
            return Answer(ResponseCode.TOPIC_NOT_EXIST, remark=f"Topic {topic} not exist!")
        if group in OWN_GROUPS:
            remark = f"the offsets of {group} are those of the broker itself, and only it moves them"
            return Answer(ResponseCode.NO_PERMISSION, remark=remark)
        raise_if(self._refuse_commit(header))
        if context.settings.broker.use_server_side_reset_offset and context.offsets.has_reset(
            topic, group, header.queue_id
        ):
            return Answer(remark="Offset has been previously reset")
        context.offsets.commit(connection.remote_address, group, topic, header.queue_id, header.commit_offset)
        return Answer()

    def _refuse_commit(self, header: UpdateConsumerOffsetRequest) -> str | None:
        """Why an offset is not committed.

        An offset beyond the last message is: a group may be set up before its messages come, and a pull from
        there corrects it.
        """
        context, topic, queue_id = self._context, header.topic, header.queue_id
        if header.commit_offset < 0:
            return f"the offset {header.commit_offset} is no offset; the first message of a queue has 0"
        if not has_queue(context, topic, queue_id):
            return f"topic {topic} has no queue {queue_id} on this broker"
        if context.offsets.is_full and context.offsets.query(header.consumer_group, topic, queue_id) < 0:
            return TOO_MANY_OFFSETS
        return None

    @handles(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetRequest)
    async def search_offset(self, header: SearchOffsetRequest) -> Answer:
        """The offset of a queue at a point in time."""
        is_upper = (header.boundary_type or "").upper() == Boundary.UPPER.value
        offset = await self._queries.offset_by_time(
            header.topic, header.queue_id, header.timestamp, Boundary.UPPER if is_upper else Boundary.LOWER
        )
        return Answer(header=SearchOffsetResponse(offset=offset))

    @handles(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequest)
    def max_offset(self, header: GetMaxOffsetRequest) -> Answer:
        """The offset after the last message that consumers see, or after the last one that was put."""
        queue = self._context.store.queues.find(header.topic, header.queue_id)
        offset = 0
        if queue is not None:
            offset = queue.max_offset if header.committed else queue.next_offset
        return Answer(header=GetMaxOffsetResponse(offset=offset))

    @handles(RequestCode.GET_MIN_OFFSET, GetMinOffsetRequest)
    def min_offset(self, header: GetMinOffsetRequest) -> Answer:
        """The offset of the first message that is still there."""
        offset, _ = self._context.store.queues.bounds(header.topic, header.queue_id)
        return Answer(header=GetMinOffsetResponse(offset=offset))

    @handles(RequestCode.GET_EARLIEST_MSG_STORETIME, GetEarliestMsgStoretimeRequest)
    async def earliest_store_time(self, header: GetEarliestMsgStoretimeRequest) -> Answer:
        """When the first message of a queue was stored; -1 if it has none."""
        queue = self._context.store.queues.find(header.topic, header.queue_id)
        time_ms = -1
        if queue is not None:
            time_ms = await self._queries.store_time(header.topic, header.queue_id, queue.min_offset)
        return Answer(header=GetEarliestMsgStoretimeResponse(timestamp=time_ms))
