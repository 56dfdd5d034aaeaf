"""The driver's view of a cluster: topics, queues, offsets, and the consumer group of a query.

Rules kept here:
- Topics, queues and brokers are looked up again between triggers, at most once a second.
- Needed offsets are retried until `pollTimeoutMs` is over. Otherwise a broker that does not answer is left
  out: one unavailable broker does not stop the query.
- With `group`, the driver is a member of the group while it runs. Offsets live in Spark's checkpoint; brokers
  get a copy of finished offsets, for lag tools. It is never read back: resetting the group does not move the
  query. A commit that fails is repeated with the next one.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final, Self

import msgspec

from cometmq.client.consumer.broker_calls import BrokerCalls
from cometmq.client.consumer.pull_request import PullKind, PullRequests
from cometmq.client.instance.identity import client_id
from cometmq.client.instance.instance import ClientInstance, join_instance
from cometmq.client.instance.members import MemberKind
from cometmq.client.subscription import Expression, subscription_of
from cometmq.model.errors import ClientError, CometError, RouteNotFoundError, StateError
from cometmq.model.message import StoredMessage
from cometmq.model.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from cometmq.model.queue import MessageQueue
from cometmq.ports.clock import SystemClock
from cometmq.spark.live.offsets import EARLIEST, LATEST, Offsets
from cometmq.spark.live.options import Bound, LiveOptions
from cometmq.spark.retry import is_transient, retry
from cometmq.wire.bodies.consumer_info import (
    PROP_CLIENT_VERSION,
    PROP_CONSUME_TYPE,
    ConsumeDirectlyResult,
    ConsumerRunningInfo,
)
from cometmq.wire.bodies.heartbeat import ALL, ConsumerData, ConsumeType, SubscriptionData
from cometmq.wire.bodies.json_body import decode_answer
from cometmq.wire.codes import CURRENT, RequestCode, ResponseCode, version_name
from cometmq.wire.record.layout import HEAD

log = logging.getLogger("cometmq.spark")


class QueryMember:
    """The driver of a query as a group member."""

    kind: Final[MemberKind] = "consumer"

    def __init__(self, group: str, expression: Expression) -> None:
        self.group = group
        self._expression = expression
        self._subscriptions: dict[str, SubscriptionData] = {}
        self.offsets: Offsets = {}
        """What was last committed."""

    def read_topics(self, topics: Collection[str]) -> bool:
        """Set the topics of the query; True if there is a new one."""
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
        """The next trigger looks up queues itself."""

    def consumer_ids_changed(self) -> None:
        """Spark assigns queues, not the group."""

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
    """Commits the offsets of a query to brokers in the background."""

    def __init__(self, calls: BrokerCalls, member: QueryMember) -> None:
        self._calls = calls
        self._member = member
        self._committed: dict[MessageQueue, int] = {}
        self._wanted: Offsets = {}
        self._task: asyncio.Task[None] | None = None

    def commit_soon(self, offsets: Offsets) -> None:
        """Commit these offsets, unless newer ones replace them first."""
        self._wanted = self._member.offsets = offsets
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def settled(self, timeout_s: float) -> None:
        """Wait for the running commits."""
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


DISCOVERY_PERIOD_S: Final = 1.0
_PARALLEL: Final = 64
"""Requests in flight."""
_SAMPLE: Final = 32
_SAMPLE_TIMEOUT_S: Final = 10.0
_COMMIT_TIMEOUT_S: Final = 3.0

AskQueue = Callable[[MessageQueue], Awaitable[int]]


def listed(queues: Iterable[MessageQueue]) -> str:
    """The first queues, for errors."""
    return ", ".join(map(str, sorted(queues)[:10]))


class _TopicList(msgspec.Struct, rename="camel"):
    topic_list: list[str] = []


class Cluster:
    """The cluster that a query reads."""

    def __init__(self, options: LiveOptions) -> None:
        self._options = options
        self._instance: ClientInstance | None = None
        self._member: QueryMember | None = None
        self._offsets: GroupOffsets | None = None
        self._queues: list[MessageQueue] = []
        self._looked_at = -DISCOVERY_PERIOD_S

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Connect, and join the group if there is one."""
        options = self._options
        if options.group is None:
            self._instance = ClientInstance(client_id(options.settings), options.settings)
        else:
            self._member = QueryMember(options.group, options.expression)
            self._instance = await join_instance(options.settings, self._member)
            self._offsets = GroupOffsets(BrokerCalls(self._instance), self._member)

    async def stop(self) -> None:
        """Leave the group, and disconnect."""
        instance, self._instance = self._instance, None
        if instance is None:
            return
        await self.committed()
        if self._member is not None:
            await instance.remove_member(self._member)
        else:
            await instance.stop()

    @property
    def _running(self) -> ClientInstance:
        if self._instance is None:
            raise StateError("the cluster is asked before start, or after stop")
        return self._instance

    async def queues(self) -> list[MessageQueue]:
        """All queues of the topics of the query."""
        now = asyncio.get_running_loop().time()
        if now - self._looked_at >= DISCOVERY_PERIOD_S:
            self._looked_at = now
            try:
                self._queues = await self._look_for_queues()
            except CometError as error:
                if not self._queues or not is_transient(error):
                    raise
                log.warning("going on with the queues that are known: %s", error)
        return self._queues

    async def _look_for_queues(self) -> list[MessageQueue]:
        options, routes = self._options, self._running.routes
        topics = (
            options.topics
            if options.topic_pattern is None
            else await self._matching_topics(options.topic_pattern)
        )
        await asyncio.gather(*(routes.refresh(topic) for topic in topics))
        found = {topic: routes.subscribe_queues(topic) for topic in topics}
        for topic in options.topics:
            if not found[topic]:
                raise RouteNotFoundError(
                    f"topic {topic} has no queue that can be read; check its name, or create it first"
                )
        if self._member is not None and self._member.read_topics(topics):
            await self._running.heartbeats.send_to_all()
        there = {queue for queues in found.values() for queue in queues}
        if options.assigned is None:
            return sorted(there)
        if missing := sorted(options.assigned - there):
            raise RouteNotFoundError(
                f"assign names {missing[0]}, which is not there; there are {listed(there)}"
            )
        return sorted(options.assigned)

    async def _matching_topics(self, pattern: str) -> Sequence[str]:
        """User topics; retry and dead-letter topics only for a pattern that starts with `%`."""
        instance = self._running
        answer = await instance.name_servers.call_ok(
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, timeout_s=instance.settings.call_timeout_s
        )
        of_groups = pattern.startswith("%")
        return [
            topic
            for topic in sorted(decode_answer(_TopicList, answer.body).topic_list)
            if re.fullmatch(pattern, topic)
            and not is_system_topic(topic)
            and (of_groups or not topic.startswith((RETRY_PREFIX, DLQ_PREFIX)))
        ]

    async def latest(self, queues: Iterable[MessageQueue], *, needed: bool = True) -> dict[MessageQueue, int]:
        """The offset of the next message of each queue."""
        return await self._ask(queues, BrokerCalls(self._running).max_offset, needed=needed)

    async def earliest(
        self, queues: Iterable[MessageQueue], *, needed: bool = True
    ) -> dict[MessageQueue, int]:
        """The offset of the oldest message of each queue."""
        return await self._ask(queues, BrokerCalls(self._running).min_offset, needed=needed)

    async def at_time(self, queues: Iterable[MessageQueue], time_ms: int) -> dict[MessageQueue, int]:
        """The offset of the first message of each queue stored at this time or later."""
        return await self._at_times(dict.fromkeys(queues, time_ms))

    async def _at_times(self, times_ms: Offsets) -> dict[MessageQueue, int]:
        calls = BrokerCalls(self._running)
        return await self._ask(
            times_ms, lambda queue: calls.search_offset(queue, times_ms[queue]), needed=True
        )

    async def at_bound(self, queues: Sequence[MessageQueue], bound: Bound) -> dict[MessageQueue, int]:
        """The offsets of a bound of the query."""
        if bound.time_ms is not None:
            return await self.at_time(queues, bound.time_ms)
        offsets = dict.fromkeys(queues, bound.everywhere)
        for queue in (*(bound.offsets or ()), *(bound.times_ms or ())):
            if queue not in offsets:
                sentence = f"an offset is given for {queue}, which the query does not read"
                raise ClientError(f"{sentence}: {listed(queues)}")
        offsets |= bound.offsets or {}
        if bound.times_ms:
            offsets |= await self._at_times(bound.times_ms)
        for end, ask in ((EARLIEST, self.earliest), (LATEST, self.latest)):
            offsets |= await ask([queue for queue, offset in offsets.items() if offset == end])
        return offsets

    async def _ask(
        self, queues: Iterable[MessageQueue], request: AskQueue, *, needed: bool
    ) -> dict[MessageQueue, int]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.poll_timeout_s
        gate = asyncio.Semaphore(_PARALLEL)

        async def ask(queue: MessageQueue) -> int | CometError:
            async with gate:
                try:
                    return await retry(partial(request, queue), deadline - loop.time() if needed else 0.0)
                except CometError as error:
                    if not needed or not is_transient(error):
                        return error
                    return ClientError(f"the offsets of {queue} cannot be known: {error}")

        asked = list(queues)
        answers = await asyncio.gather(*map(ask, asked))
        offsets: dict[MessageQueue, int] = {}
        for queue, answer in zip(asked, answers, strict=True):
            if isinstance(answer, int):
                offsets[queue] = answer
            elif needed or not is_transient(answer):
                raise answer
        return offsets

    async def message_sizes(self, offsets: dict[MessageQueue, int]) -> dict[MessageQueue, float]:
        """The average size of a sample of messages of each queue, from an offset on."""
        pulls = PullRequests(self._running, BrokerCalls(self._running), self._options.reading_group)

        async def size(queue: MessageQueue) -> int:
            everything = subscription_of(queue.topic, ALL, 0)
            pulled = await pulls.pull_raw(
                queue,
                everything,
                offsets[queue],
                _SAMPLE,
                kind=PullKind.PULL,
                timeout_s=_SAMPLE_TIMEOUT_S,
            )
            count = max(pulled.next_offset - offsets[queue], 1)
            return max(len(pulled.body) // count, HEAD.size)

        sizes = await self._ask(offsets, size, needed=False)
        return {queue: float(sizes.get(queue, HEAD.size)) for queue in offsets}

    def commit_soon(self, offsets: Offsets) -> None:
        """Commit for lag tools, if the query has a group."""
        if self._offsets is not None:
            self._offsets.commit_soon(offsets)

    async def committed(self) -> None:
        """Wait until brokers have the offsets, or do not answer."""
        if self._offsets is not None:
            await self._offsets.settled(_COMMIT_TIMEOUT_S)
