"""What the driver of a query asks a cluster: which queues there are, and which offsets they have.

Rules kept here:
- Topics, queues and brokers are looked for again between triggers, at most once a second.
- Where an answer is needed, a broker that does not give it is asked again until its time is over. Where it is
  not, the others' answers are given without it: one broker that is away does not hold up the rest.
- With a group, the driver is a member of it as long as it runs.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

import msgspec

from cometmq.client.consumer.broker_calls import BrokerCalls
from cometmq.client.consumer.pull_request import PullKind, PullRequests
from cometmq.client.instance.identity import client_id
from cometmq.client.instance.instance import ClientInstance, join_instance
from cometmq.client.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from cometmq.client.subscription import subscription_of
from cometmq.model.errors import ClientError, CometError, RouteNotFoundError, StateError
from cometmq.model.queue import MessageQueue
from cometmq.spark.live.group import GroupOffsets, QueryMember
from cometmq.spark.live.offsets import EARLIEST, LATEST, Offsets
from cometmq.spark.live.options import Bound, LiveOptions
from cometmq.spark.retry import is_passing
from cometmq.wire.bodies.heartbeat import ALL
from cometmq.wire.bodies.json_body import decode_answer
from cometmq.wire.codes import RequestCode
from cometmq.wire.record.layout import HEAD

log = logging.getLogger("cometmq.spark")

DISCOVERY_PERIOD_S: Final = 1.0
_PARALLEL: Final = 64
"""So many questions are under way at once."""
_RETRY_S: Final = 0.5
_SAMPLE: Final = 32
_SAMPLE_TIMEOUT_S: Final = 10.0
_COMMIT_TIMEOUT_S: Final = 3.0

Question = Callable[[MessageQueue], Awaitable[int]]


class _TopicList(msgspec.Struct, rename="camel"):
    topic_list: list[str] = []


class Cluster:
    """A cluster as the driver of a query sees it."""

    def __init__(self, options: LiveOptions) -> None:
        self._options = options
        self._instance: ClientInstance | None = None
        self._member: QueryMember | None = None
        self._offsets: GroupOffsets | None = None
        self._queues: list[MessageQueue] = []
        self._looked_at = -DISCOVERY_PERIOD_S

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
        if self._offsets is not None:
            await self._offsets.settled(_COMMIT_TIMEOUT_S)
        if self._member is not None:
            await instance.remove_member(self._member)
        else:
            await instance.stop()

    @property
    def _running(self) -> ClientInstance:
        if self._instance is None:
            raise StateError("the cluster is asked before start, or after stop")
        return self._instance

    # Queues.

    async def queues(self) -> list[MessageQueue]:
        """All queues of the topics of the query."""
        now = asyncio.get_running_loop().time()
        if now - self._looked_at >= DISCOVERY_PERIOD_S:
            self._looked_at = now
            try:
                self._queues = await self._look_for_queues()
            except CometError as error:
                if not self._queues or not is_passing(error):
                    raise
                log.warning("going on with the queues that are known: %s", error)
        return self._queues

    async def _look_for_queues(self) -> list[MessageQueue]:
        options, routes = self._options, self._running.routes
        topics = options.topics if options.pattern is None else await self._matching_topics(options.pattern)
        await asyncio.gather(*(routes.refresh(topic) for topic in topics))
        found = {topic: routes.subscribe_queues(topic) for topic in topics}
        for topic in options.topics:
            if not found[topic]:
                raise RouteNotFoundError(
                    f"topic {topic} has no queue that can be read; check its name, or create it first"
                )
        if self._member is not None and self._member.read_topics(topics):
            await self._running.heartbeats.send_to_all()
        return sorted(queue for queues in found.values() for queue in queues)

    async def _matching_topics(self, pattern: str) -> Sequence[str]:
        """Topics that people made; those of groups only for a pattern that begins like them."""
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

    # Offsets.

    async def latest(self, queues: Iterable[MessageQueue], *, needed: bool = True) -> dict[MessageQueue, int]:
        """The offset that the next message of each queue will get."""
        return await self._ask(queues, BrokerCalls(self._running).max_offset, needed=needed)

    async def earliest(
        self, queues: Iterable[MessageQueue], *, needed: bool = True
    ) -> dict[MessageQueue, int]:
        """The offset of the oldest message of each queue."""
        return await self._ask(queues, BrokerCalls(self._running).min_offset, needed=needed)

    async def at_time(self, queues: Iterable[MessageQueue], time_ms: int) -> dict[MessageQueue, int]:
        """The offset of the first message of each queue that was stored then or later."""
        calls = BrokerCalls(self._running)
        return await self._ask(queues, lambda queue: calls.search_offset(queue, time_ms), needed=True)

    async def at_bound(self, queues: Sequence[MessageQueue], bound: Bound) -> dict[MessageQueue, int]:
        """The offsets that a bound of the query stands for."""
        if bound.time_ms is not None:
            return await self.at_time(queues, bound.time_ms)
        offsets = dict.fromkeys(queues, bound.everywhere)
        for queue, offset in (bound.offsets or {}).items():
            if queue not in offsets:
                known = ", ".join(map(str, queues[:10]))
                raise ClientError(f"an offset is given for {queue}, which the query does not read: {known}")
            offsets[queue] = offset
        for kind, ask in ((EARLIEST, self.earliest), (LATEST, self.latest)):
            offsets |= await ask([queue for queue, offset in offsets.items() if offset == kind])
        return offsets

    async def _ask(
        self, queues: Iterable[MessageQueue], question: Question, *, needed: bool
    ) -> dict[MessageQueue, int]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.poll_timeout_s
        gate = asyncio.Semaphore(_PARALLEL)

        async def ask(queue: MessageQueue) -> int | CometError:
            async with gate:
                while True:
                    try:
                        return await question(queue)
                    except CometError as error:
                        if not needed or not is_passing(error):
                            return error
                        if loop.time() + _RETRY_S > deadline:
                            return ClientError(f"the offsets of {queue} cannot be known: {error}")
                    await asyncio.sleep(_RETRY_S)

        asked = list(queues)
        answers = await asyncio.gather(*map(ask, asked))
        offsets: dict[MessageQueue, int] = {}
        for queue, answer in zip(asked, answers, strict=True):
            if isinstance(answer, int):
                offsets[queue] = answer
            elif needed or not is_passing(answer):
                raise answer
        return offsets

    async def message_sizes(self, offsets: dict[MessageQueue, int]) -> dict[MessageQueue, float]:
        """The average size of a few messages of each queue from an offset on."""
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
        """Let lag tools see how far the query is, if it has a group."""
        if self._offsets is not None:
            self._offsets.commit_soon(offsets)
