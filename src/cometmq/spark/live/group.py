"""The query as a consumer group: a member that brokers know, and offsets that lag tools can read.

Rules kept here:
- Offsets are Spark's, in its checkpoint. What is committed to brokers is a copy of what Spark has finished,
  never ahead of it, and is never read back: resetting the group does not move the query.
- A commit that fails is tried again with the next one and does not hold up the query.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Final

from cometmq.client.consumer.broker_calls import BrokerCalls
from cometmq.client.instance.instance import MemberKind
from cometmq.client.subscription import Expression, subscription_of
from cometmq.model.errors import ClientError, CometError
from cometmq.model.message import StoredMessage
from cometmq.model.queue import MessageQueue
from cometmq.ports.clock import SystemClock
from cometmq.spark.live.offsets import Offsets
from cometmq.wire.bodies.consumer_info import (
    PROP_CLIENT_VERSION,
    PROP_CONSUME_TYPE,
    ConsumeDirectlyResult,
    ConsumerRunningInfo,
)
from cometmq.wire.bodies.heartbeat import ConsumerData, ConsumeType, SubscriptionData
from cometmq.wire.codes import CURRENT, ResponseCode, version_name

log = logging.getLogger("cometmq.spark")


class QueryMember:
    """The driver of a query, as a member of its group."""

    kind: Final[MemberKind] = "consumer"

    def __init__(self, group: str, expression: Expression) -> None:
        self.group = group
        self._expression = expression
        self._subscriptions: dict[str, SubscriptionData] = {}
        self.offsets: Offsets = {}
        """What was last committed."""

    def read_topics(self, topics: Collection[str]) -> bool:
        """These are the topics of the query now; True if there is a new one."""
        new = [topic for topic in topics if topic not in self._subscriptions]
        for topic in new:
            self._subscriptions[topic] = subscription_of(topic, self._expression, SystemClock().now_ms())
        return bool(new)

    def topics(self) -> Collection[str]:
        return list(self._subscriptions)

    def heartbeat_entry(self) -> ConsumerData:
        return ConsumerData(
            self.group,
            ConsumeType.CONSUME_ACTIVELY,
            subscription_data_set=tuple(self._subscriptions.values()),
        )

    def route_changed(self, topic: str) -> None:
        """The next trigger asks for itself."""

    def consumer_ids_changed(self) -> None:
        """Queues are shared out by Spark, not by the group."""

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        log.warning(
            "the offsets of group %s are those of a Spark query and stay; to read %s from elsewhere, start "
            "the query with a new checkpoint and startingOffsets",
            self.group,
            topic,
        )

    def status(self, topic: str) -> dict[MessageQueue, int]:
        return {queue: offset for queue, offset in self.offsets.items() if queue.topic == topic}

    async def running_info(self, with_stacks: bool) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(
            properties={
                PROP_CONSUME_TYPE: ConsumeType.CONSUME_ACTIVELY.value,
                PROP_CLIENT_VERSION: version_name(CURRENT),
            },
            subscription_set=tuple(self._subscriptions.values()),
        )

    async def consume_directly(self, message: StoredMessage, broker_name: str) -> ConsumeDirectlyResult:
        raise ClientError("a Spark query has no listener", code=ResponseCode.SYSTEM_ERROR)


class GroupOffsets:
    """Commits the offsets of a query to brokers, beside the query."""

    def __init__(self, calls: BrokerCalls, member: QueryMember) -> None:
        self._calls = calls
        self._member = member
        self._committed: dict[MessageQueue, int] = {}
        self._wanted: Offsets = {}
        self._task: asyncio.Task[None] | None = None

    def commit_soon(self, offsets: Offsets) -> None:
        """Commit these, unless newer ones come before that is possible."""
        self._wanted = self._member.offsets = offsets
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def settled(self, timeout_s: float) -> None:
        """Wait until everything is committed, or cannot be."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=timeout_s)

    async def _run(self) -> None:
        wanted: Offsets = {}
        while wanted is not self._wanted:
            wanted = self._wanted
            changed = [queue for queue, offset in wanted.items() if self._committed.get(queue) != offset]
            await asyncio.gather(*(self._commit(queue, wanted[queue]) for queue in changed))

    async def _commit(self, queue: MessageQueue, offset: int) -> None:
        try:
            await self._calls.commit(self._member.group, queue, offset)
        except CometError as error:
            log.warning("offset %d of %s was not committed: %s", offset, queue, error)
        else:
            self._committed[queue] = offset
