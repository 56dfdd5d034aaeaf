"""Administration of messages: read a queue, find a message by its id, its key or its trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from cometmq.client.admin.base import AdminBase
from cometmq.client.consumer.broker_calls import QueueCalls
from cometmq.client.consumer.pull_request import PullCalls, PullKind, PullReply
from cometmq.client.subscription import Expression, subscription_of
from cometmq.model.errors import HeaderError, ResponseError, RouteNotFoundError
from cometmq.model.message import StoredMessage
from cometmq.model.names import TOOLS_GROUP, TRACE_TOPIC
from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.heartbeat import ALL
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.pull import QueryMessageRequest, ViewMessageRequest
from cometmq.wire.record.ids import decode_offset_id
from cometmq.wire.record.walk import RecordWalk, to_stored_message

if TYPE_CHECKING:
    from cometmq.client.trace.query import MessageTrace

FOR_EVER_MS: Final = 2**63 - 1
"""The group of tools, which every broker knows; it commits nothing."""


class MessageAdmin(AdminBase):
    """Reads queues and finds messages."""

    # Queues and their offsets.

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be read."""
        await self.topic_route(topic)
        found = self._instance.routes.subscribe_queues(topic)
        if not found:
            raise RouteNotFoundError(f"topic {topic} does not exist, or has no queue that can be read")
        return list(found)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of a queue will get."""
        return await QueueCalls(self._instance).max_offset(queue)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message of a queue."""
        return await QueueCalls(self._instance).min_offset(queue)

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset that a queue had reached at a time."""
        return await QueueCalls(self._instance).search_offset(queue, timestamp_ms)

    async def read(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int = 32,
        expression: Expression = ALL,
        wait_ms: int = 0,
        group: str = TOOLS_GROUP,
    ) -> PullReply:
        """Messages of a queue from an offset on; with `wait_ms`, a broker that has none waits that long."""
        instance = self._instance
        return await PullCalls(instance, QueueCalls(instance), group).pull(
            queue,
            subscription_of(queue.topic, expression, instance.clock.now_ms()),
            offset,
            max_messages,
            kind=PullKind.PULL,
            suspend_ms=wait_ms,
            timeout_s=self.settings.call_timeout_s + wait_ms / 1000,
        )

    # Single messages.

    async def view_message(self, offset_msg_id: str) -> StoredMessage:
        """The message with this offset id (`SendReceipt.offset_msg_id`), from the broker that it names."""
        place = decode_offset_id(offset_msg_id)
        header = ViewMessageRequest(offset=place.commit_log_offset)
        answer = await self._ask(str(place.store_host), RequestCode.VIEW_MESSAGE_BY_ID, header)
        messages = _messages(answer, "")
        if len(messages) != 1:
            raise HeaderError(f"the answer for {offset_msg_id} has {len(messages)} messages and not one")
        return messages[0]

    async def query_messages(
        self,
        topic: str,
        key: str,
        *,
        max_messages: int = 32,
        begin_ms: int = 0,
        end_ms: int = FOR_EVER_MS,
    ) -> list[StoredMessage]:
        """The messages of a topic with this key, the oldest first."""
        found = await self._query(topic, key, max_messages, begin_ms, end_ms, unique=False)
        return [message for message in found if key in message.keys][:max_messages]

    async def message_by_id(self, topic: str, msg_id: str) -> StoredMessage | None:
        """The message of a topic with this id of its producer (`SendReceipt.msg_id`)."""
        found = await self._query(topic, msg_id, 32, 0, FOR_EVER_MS, unique=True)
        return next((message for message in found if message.msg_id == msg_id), None)

    async def message_trace(
        self, msg_id: str, *, trace_topic: str = TRACE_TOPIC, max_messages: int = 64
    ) -> MessageTrace:
        """What became of the message with this id (`SendReceipt.msg_id`), as its clients wrote it down."""
        from cometmq.client.trace.query import message_trace  # which is about this class itself

        return await message_trace(self, msg_id, trace_topic=trace_topic, max_messages=max_messages)

    async def _query(
        self, topic: str, key: str, count: int, begin_ms: int, end_ms: int, *, unique: bool
    ) -> list[StoredMessage]:
        header = QueryMessageRequest(
            topic=topic,
            key=key,
            max_num=count,
            begin_timestamp=begin_ms,
            end_timestamp=end_ms,
            unique_key_query=unique,
        )
        messages: list[StoredMessage] = []
        for name, address in (await self._masters_of(topic)).items():
            try:
                answer = await self._ask(address, RequestCode.QUERY_MESSAGE, header)
            except ResponseError as error:
                if error.code == ResponseCode.QUERY_NOT_FOUND:
                    continue
                raise
            messages += _messages(answer, name)
        wanted = [message for message in messages if message.topic == topic]
        return sorted(wanted, key=lambda message: message.store_timestamp_ms)


def _messages(answer: Command, broker_name: str) -> Sequence[StoredMessage]:
    records = RecordWalk(answer.body, decompress_body=True)
    return [to_stored_message(record, broker_name) for record in records]
