"""Messages by key, by unique key and by place in the log."""

from __future__ import annotations

from cometmq.broker.queries import Queries
from cometmq.broker.state import BrokerState
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, handles
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import Command
from cometmq.wire.headers.pull import QueryMessageRequest, QueryMessageResponse, ViewMessageRequest


class QueryHandlers:
    """QUERY_MESSAGE and VIEW_MESSAGE_BY_ID."""

    def __init__(self, state: BrokerState) -> None:
        self._queries = Queries(state.store)

    @handles(RequestCode.QUERY_MESSAGE, QueryMessageRequest)
    async def query_message(
        self, header: QueryMessageRequest, request: Command, connection: Connection
    ) -> Answer:
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
    async def view_message(
        self, header: ViewMessageRequest, request: Command, connection: Connection
    ) -> Answer:
        """The message at a place in the log."""
        record = await self._queries.record_at(header.offset)
        if record is None:
            remark = f"can not find message by the offset, {header.offset}"
            return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)
        return Answer(body=record)
