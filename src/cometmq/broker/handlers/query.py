"""Messages by key, by unique key and by offset in the log; and the entries of a queue."""

from __future__ import annotations

from cometmq.broker.context import BrokerContext
from cometmq.broker.query.messages import Queries
from cometmq.broker.query.queue_entries import describe_group, read_entries
from cometmq.remoting.handler import Answer, handles
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.pull import (
    QueryConsumeQueueRequest,
    QueryMessageRequest,
    QueryMessageResponse,
    ViewMessageRequest,
)
from cometmq.wire.json import fastjson


class QueryHandlers:
    """QUERY_MESSAGE, VIEW_MESSAGE_BY_ID and QUERY_CONSUME_QUEUE."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._queries = Queries(context.store)

    @handles(RequestCode.QUERY_MESSAGE, QueryMessageRequest)
    async def query_message(self, header: QueryMessageRequest) -> Answer:
        """Messages of a span of time with a key; the one who asks compares the keys once more."""
        found = await self._queries.by_key(
            header.topic,
            header.key,
            header.max_num,
            header.begin_timestamp,
            header.end_timestamp,
            unique=header.unique_key_query or False,
        )
        answer = QueryMessageResponse(
            index_last_update_timestamp=found.index_last_time_ms,
            index_last_update_phyoffset=found.index_last_offset,
        )
        if not found.records:
            remark = "can not find message, maybe time range not correct"
            return Answer(ResponseCode.QUERY_NOT_FOUND, header=answer, remark=remark)
        return Answer(header=answer, body=found.records)

    @handles(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequest)
    async def view_message(self, header: ViewMessageRequest) -> Answer:
        """The message at an offset of the log."""
        record = await self._queries.record_at(header.offset)
        if record is None:
            remark = f"can not find message by the offset, {header.offset}"
            return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)
        return Answer(body=record)

    @handles(RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueueRequest)
    def queue_entries(self, header: QueryConsumeQueueRequest) -> Answer:
        """Entries of a queue, and what a group makes of them."""
        topic, queue_id = header.topic or "", header.queue_id
        queue = self._context.store.queues.find(topic, queue_id)
        if queue is None and not self._context.topics.has_queue(topic, queue_id):
            return Answer(ResponseCode.SYSTEM_ERROR, remark=f"{queue_id}@{topic} is not exist!")
        if queue is None or not queue.min_offset <= header.index < queue.max_offset:
            return Answer(remark=f"Index {header.index} of {queue_id}@{topic} is not exist!")
        members: dict[str, object] = {
            "maxQueueIndex": queue.max_offset,
            "minQueueIndex": queue.min_offset,
            "queueData": read_entries(queue, header.index, header.count),
        }
        if header.consumer_group is not None:
            members |= describe_group(
                self._context.clients, self._context.filters, header.consumer_group, topic
            )
        return Answer(body=fastjson.dumps(members))
