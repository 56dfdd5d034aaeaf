"""Requests of pop consumers to brokers: assignment, pop, acknowledge, change invisible time.

Rules kept here:
- Only the master of a broker hands out messages, and takes them back.
- Acknowledgements go in batches, and one by one to a broker that does not support batches.
- Pop times are the broker's, so that differing clocks cannot make an acknowledgement late.
"""

from __future__ import annotations

import asyncio
import random
from base64 import b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.client.consumer.pop.handles import PopHandle, handles_of, marked_topic, with_attempts
from cometmq.model.errors import ProtocolError, ResponseError, RouteNotFoundError
from cometmq.model.message import StoredMessage
from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.assignment import QueryAssignmentRequest, decode_assignments
from cometmq.wire.bodies.heartbeat import SubscriptionData
from cometmq.wire.bodies.pop import MAX_ACK_SPAN, BatchAck, BatchAckRequest
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    PopMessageRequest,
    PopMessageResponse,
)
from cometmq.wire.record.pulled import decode_pulled

if TYPE_CHECKING:
    from cometmq.client.instance.instance import ClientInstance

ACK_TIMEOUT_S: Final = 3.0
_BEYOND_THE_WAIT_S: Final = 10.0
_FROM_FIRST: Final = 0
_FROM_LAST: Final = 1
_NOW_AT_THE_BROKER: Final = 0
POP: Final = "POP"

Popped = tuple[str, PopHandle]
"""A message to be acknowledged: the topic of the pop, and the handle."""


class PopPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How a consumer pops."""

    batch_size: int
    invisible_ms: int
    wait_ms: int
    """How long a broker that has no message waits for one."""
    from_first: bool
    ordered: bool


class PopReply(msgspec.Struct, frozen=True):
    """The response to a pop."""

    messages: Sequence[StoredMessage]
    handles: Sequence[PopHandle]
    invisible_ms: int = 0
    crowded: bool = False
    """Too many pops wait at the broker."""
    error: ProtocolError | None = None
    """Why later messages of the response cannot be read."""
    rest: int = 0
    """The messages that are left at the broker."""


class PopRequests:
    """Pop requests of one group."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._without_batches: set[str] = set()
        """Brokers that take acknowledgements only one by one."""

    async def assignment(self, topic: str, strategy: str) -> set[MessageQueue] | None:
        """The queues that a broker assigns to this consumer; None if it does not assign queues for popping.

        Raises `RouteNotFoundError` if no broker can tell now.
        """
        instance = self._instance
        addresses = await instance.routes.any_broker(topic)
        if addresses is None:
            raise RouteNotFoundError(f"no broker is known for topic {topic}")
        address = random.choice(list(addresses.values()))
        query = QueryAssignmentRequest(topic, self._group, instance.client_id, strategy)
        try:
            answer = await instance.remoting.call_ok(
                address,
                RequestCode.QUERY_ASSIGNMENT,
                body=msgspec.json.encode(query),
                timeout_s=instance.settings.call_timeout_s,
            )
        except ResponseError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return None
            raise
        told = decode_assignments(answer.body)
        if told is None:
            raise RouteNotFoundError(f"the broker at {address} does not know group {self._group} yet")
        if not told or any(each.mode != POP for each in told):
            return None
        return {each.queue for each in told}

    async def pop(
        self, queue: MessageQueue, subscription: SubscriptionData, plan: PopPlan, attempt_id: str | None
    ) -> PopReply:
        """Pop messages of a queue, or of a whole broker (queue id -1), for the invisible time.

        An ordered pop that is repeated with the same `attempt_id` gets the messages of a lost response.
        """
        header = PopMessageRequest(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            max_msg_nums=plan.batch_size,
            invisible_time=plan.invisible_ms,
            poll_time=plan.wait_ms,
            born_time=_NOW_AT_THE_BROKER,
            init_mode=_FROM_FIRST if plan.from_first else _FROM_LAST,
            exp_type=subscription.expression_type,
            exp=subscription.sub_string,
            order=plan.ordered,
            attempt_id=attempt_id,
            target_broker_name=queue.broker_name,
        )
        address = await self._master_of(queue)
        answer = await self._instance.remoting.call(
            address, RequestCode.POP_MESSAGE, header, timeout_s=plan.wait_ms / 1000 + _BEYOND_THE_WAIT_S
        )
        if answer.code in _NOTHING:
            return PopReply((), (), crowded=answer.code == ResponseCode.POLLING_FULL)
        if answer.code != ResponseCode.SUCCESS:
            remark = answer.remark or "no reason given"
            raise ResponseError(f"{address} refused to pop {queue}: {remark}", code=answer.code)
        told = answer.header(PopMessageResponse)
        # Not by tags: messages that are filtered out have to be acknowledged too.
        found, error = decode_pulled(answer.body, queue)
        handles = handles_of(found, told, queue.broker_name)
        return PopReply(
            with_attempts(found, told), handles, told.invisible_time, error=error, rest=told.rest_num
        )

    async def ack(self, broker_name: str, popped: Sequence[Popped]) -> None:
        """Acknowledge messages of one broker."""
        if len(popped) > 1 and broker_name not in self._without_batches:
            batch, single = _batched(self._group, popped)
            try:
                if batch:
                    body = msgspec.json.encode(BatchAckRequest(batch, broker_name))
                    await self._ask(popped[0], RequestCode.BATCH_ACK_MESSAGE, None, body)
                popped = single
            except ResponseError as error:
                if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
                self._without_batches.add(broker_name)
        await asyncio.gather(*map(self._ack_one, popped))

    async def _ack_one(self, popped: Popped) -> None:
        topic, handle = popped
        header = AckMessageRequest(
            consumer_group=self._group,
            topic=marked_topic(topic, self._group, handle.mark),
            queue_id=handle.queue_id,
            extra_info=str(handle),
            offset=handle.offset,
            target_broker_name=handle.broker_name,
        )
        await self._ask(popped, RequestCode.ACK_MESSAGE, header)

    async def change_time(self, popped: Popped, invisible_ms: int) -> None:
        """Have a message delivered again after this time; its handle becomes invalid."""
        topic, handle = popped
        header = ChangeInvisibleTimeRequest(
            consumer_group=self._group,
            topic=marked_topic(topic, self._group, handle.mark),
            queue_id=handle.queue_id,
            extra_info=str(handle),
            offset=handle.offset,
            invisible_time=invisible_ms,
            target_broker_name=handle.broker_name,
        )
        await self._ask(popped, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)

    async def _ask(
        self,
        popped: Popped,
        code: RequestCode,
        header: AckMessageRequest | ChangeInvisibleTimeRequest | None,
        body: bytes = b"",
    ) -> None:
        topic, handle = popped
        address = await self._master_of(MessageQueue(topic, handle.broker_name, handle.queue_id))
        await self._instance.remoting.call_ok(address, code, header, body=body, timeout_s=ACK_TIMEOUT_S)

    async def _master_of(self, queue: MessageQueue) -> str:
        routes = self._instance.routes
        if routes.master_of(routes.broker_of(queue)) is None:
            await routes.refresh(queue.topic)
        return routes.need_master(routes.broker_of(queue))


def _batched(group: str, popped: Sequence[Popped]) -> tuple[tuple[BatchAck, ...], list[Popped]]:
    """Acknowledgements grouped by pop and queue, and those that fit into no batch."""
    bits: dict[tuple[str, PopHandle], int] = {}
    single: list[Popped] = []
    for topic, handle in popped:
        distance = handle.offset - handle.start_offset
        if not 0 <= distance < MAX_ACK_SPAN:
            single.append((topic, handle))
            continue
        pop = (topic, handle._replace(offset=handle.start_offset))
        bits[pop] = bits.get(pop, 0) | 1 << distance
    return tuple(_batch(group, topic, pop, set_) for (topic, pop), set_ in bits.items()), single


def _batch(group: str, topic: str, pop: PopHandle, bits: int) -> BatchAck:
    return BatchAck(
        group=group,
        topic=topic,
        mark=pop.mark,
        start_offset=pop.start_offset,
        queue_id=pop.queue_id,
        revive_queue=pop.revive_queue,
        pop_time_ms=pop.pop_time_ms,
        invisible_ms=pop.invisible_ms,
        bit_set=b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode(),
    )


_NOTHING: Final = frozenset(
    {
        ResponseCode.PULL_NOT_FOUND.value,
        ResponseCode.POLLING_FULL.value,
        ResponseCode.POLLING_TIMEOUT.value,
    }
)
