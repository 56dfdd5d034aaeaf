"""Requests of consumers to brokers: queue offsets, committed offsets, queue locks, members of a group.

Rules kept here:
- A queue's broker comes from the known routes; if it is missing, the topic's route is refreshed once.
- An unexpected response raises `ResponseError`, which names the broker.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from cometmq.model.errors import ResponseError, RouteNotFoundError
from cometmq.model.queue import MessageQueue
from cometmq.model.route import MASTER_ID
from cometmq.wire.bodies.consumer_info import (
    decode_consumer_ids,
    decode_locked,
    encode_lock_request,
)
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.offset import (
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
from cometmq.wire.headers.session import (
    GetConsumerListByGroupRequest,
    LockBatchMqRequest,
    UnlockBatchMqRequest,
)

if TYPE_CHECKING:
    from cometmq.client.instance.instance import ClientInstance
    from cometmq.wire.frame.command import Command
    from cometmq.wire.header.schema import Header

OFFSET_TIMEOUT_S: Final = 5.0
LOCK_TIMEOUT_S: Final = 1.0


def _fields_of(queue: MessageQueue) -> dict[str, Any]:
    """The header fields that name a queue."""
    return {"topic": queue.topic, "queue_id": queue.queue_id, "target_broker_name": queue.broker_name}


class BrokerCalls:
    """Requests to the brokers of queues."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance

    async def address_of(self, queue: MessageQueue, broker_id: int = MASTER_ID) -> tuple[str, bool]:
        """The address to read a queue from, and whether that is a replica."""
        routes = self._instance.routes
        found = routes.address_of(routes.broker_of(queue), broker_id)
        if found is None:
            await routes.refresh(queue.topic)
            found = routes.address_of(routes.broker_of(queue), broker_id)
        if found is None:
            raise RouteNotFoundError(f"no broker {queue.broker_name} is known for queue {queue}")
        return found

    async def _ask(
        self, queue: MessageQueue, code: RequestCode, header: Header, timeout_s: float | None = None
    ) -> Command:
        instance = self._instance
        address, _ = await self.address_of(queue)
        timeout_s = timeout_s or instance.settings.call_timeout_s
        return await instance.remoting.call_ok(address, code, header, timeout_s=timeout_s)

    # Offsets of a queue.

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of the queue will get."""
        header = GetMaxOffsetRequest(**_fields_of(queue))
        answer = await self._ask(queue, RequestCode.GET_MAX_OFFSET, header)
        return answer.header(GetMaxOffsetResponse).offset

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message of the queue."""
        header = GetMinOffsetRequest(**_fields_of(queue))
        answer = await self._ask(queue, RequestCode.GET_MIN_OFFSET, header)
        return answer.header(GetMinOffsetResponse).offset

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset that the queue had reached at a time."""
        header = SearchOffsetRequest(**_fields_of(queue), timestamp=timestamp_ms)
        answer = await self._ask(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return answer.header(SearchOffsetResponse).offset

    # Offsets of a group.

    async def committed(self, group: str, queue: MessageQueue, *, zero_if_new: bool = False) -> int | None:
        """The committed offset of the group for the queue; None if it has none.

        With `zero_if_new`, the offset is 0 for a queue that still has its very first message.
        """
        header = QueryConsumerOffsetRequest(
            **_fields_of(queue), consumer_group=group, set_zero_if_not_found=zero_if_new
        )
        try:
            answer = await self._ask(queue, RequestCode.QUERY_CONSUMER_OFFSET, header, OFFSET_TIMEOUT_S)
        except ResponseError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return answer.header(QueryConsumerOffsetResponse).offset

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Commit the group's offset for the queue; returns when the broker has it."""
        header = UpdateConsumerOffsetRequest(**_fields_of(queue), consumer_group=group, commit_offset=offset)
        await self._ask(queue, RequestCode.UPDATE_CONSUMER_OFFSET, header, OFFSET_TIMEOUT_S)

    # Group members and queue locks.

    async def consumer_ids(self, group: str, topic: str) -> Sequence[str]:
        """The client ids of a group, as one of the topic's brokers knows them."""
        addresses = await self._instance.routes.any_broker(topic)
        if addresses is None:
            raise RouteNotFoundError(f"no broker is known for topic {topic}")
        address = addresses.get(MASTER_ID) or random.choice(list(addresses.values()))
        answer = await self._instance.remoting.call_ok(
            address,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP,
            GetConsumerListByGroupRequest(consumer_group=group),
            timeout_s=self._instance.settings.call_timeout_s,
        )
        return decode_consumer_ids(answer.body)

    async def lock(self, group: str, broker_name: str, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Lock queues of one broker for this client; returns the queues that are locked now."""
        instance = self._instance
        answer = await instance.remoting.call_ok(
            instance.routes.need_master(broker_name),
            RequestCode.LOCK_BATCH_MQ,
            LockBatchMqRequest(),
            body=encode_lock_request(group, instance.client_id, queues),
            timeout_s=LOCK_TIMEOUT_S,
        )
        return set(decode_locked(answer.body))

    async def unlock(self, group: str, broker_name: str, queues: Iterable[MessageQueue]) -> None:
        """Unlock queues, one-way."""
        instance = self._instance
        address = instance.routes.master_of(broker_name)
        if address is not None:
            await instance.remoting.oneway(
                address,
                RequestCode.UNLOCK_BATCH_MQ,
                UnlockBatchMqRequest(),
                body=encode_lock_request(group, instance.client_id, queues),
                timeout_s=LOCK_TIMEOUT_S,
            )
