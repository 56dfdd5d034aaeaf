"""The consumer load of `cometmq bench`.

Rules kept here:
- Time runs from the first message to the last one. Before `work`, the consumer is a member of its group and
  has queues, but pulls nothing, so that several consumers begin together.
- The age of a message is as exact as the clocks of its producer and of this machine agree.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from typing import Final, Self

import msgspec

from cometmq.cli.bench.figures import CpuClock, Tally
from cometmq.cli.common.connect import Link
from cometmq.client.consumer.push import PushConsumer
from cometmq.model.errors import ClientError
from cometmq.model.message import StoredMessage
from cometmq.wire.bodies.heartbeat import ConsumeFromWhere

_POLL_S: Final = 0.05
_PULLED: Final = 32


class ConsumerPlan(msgspec.Struct, frozen=True, kw_only=True, tag="consumer"):
    """The load of one consumer process."""

    link: Link
    topic: str
    group: str
    messages: int | None = None
    seconds: float | None = None
    earliest: bool = True
    """Where a group without offsets begins."""
    batch: int = 1
    wait_s: float = 30.0
    """It gives up after this time without a message."""


async def until(holds: Callable[[], bool], wait_s: float = math.inf) -> bool:
    """Poll until a condition holds; False if it does not in time."""
    deadline = time.monotonic() + wait_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL_S)
    return True


class Consumes:
    """A push consumer with an empty listener."""

    def __init__(self, plan: ConsumerPlan) -> None:
        self.plan = plan
        self.tally = Tally()
        self._cpu = CpuClock()
        self._is_full = False
        first, last = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        self._consumer = PushConsumer(
            plan.group,
            consume_from_where=first if plan.earliest else last,
            consume_message_batch_max_size=plan.batch,
            pull_batch_size=max(plan.batch, _PULLED),
            **plan.link.options(),
        )
        if plan.batch == 1:
            self._consumer.subscribe(plan.topic, listener=self._listen)
        else:
            self._consumer.subscribe(plan.topic, listener=self._listen_to_many)

    async def _listen(self, message: StoredMessage) -> None:
        self._take(message)

    async def _listen_to_many(self, messages: Sequence[StoredMessage]) -> None:
        for message in messages:
            self._take(message)

    def _take(self, message: StoredMessage) -> None:
        tally = self.tally
        if self._is_full:
            return
        tally.ended_s = time.monotonic()
        if tally.begun_s is None:
            tally.begun_s = tally.ended_s
            self._cpu = CpuClock()
        age_s = time.time() - message.born_timestamp_ms / 1000
        tally.messages += 1
        tally.bytes += len(message.body)
        tally.early += age_s < 0
        tally.latencies.took(age_s)
        if tally.messages == self.plan.messages:
            self._end()

    async def __aenter__(self) -> Self:
        await self._consumer.start()
        self._consumer.suspend()
        try:
            await self._await_queues()
        except BaseException:
            await self._consumer.stop()
            raise
        return self

    async def _await_queues(self) -> None:
        plan = self.plan
        if not await until(lambda: self.queues() > 0, plan.wait_s):
            raise ClientError(
                f"the consumer got no queue of {plan.topic} within {plan.wait_s:g} s; see who has them: "
                f"cometmq group members {plan.group}"
            )

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()

    async def work(self, stop: asyncio.Event) -> None:
        """Carry out the plan, or stop early."""
        begun_s = time.monotonic()
        self._consumer.resume()
        await until(lambda: stop.is_set() or self._is_full or self._is_over(begun_s))
        self._end()

    def _end(self) -> None:
        """Count no more: later messages are beyond the plan."""
        if not self._is_full:
            self._is_full = True
            self._cpu.stop()

    def _is_over(self, begun_s: float) -> bool:
        now, tally, plan = time.monotonic(), self.tally, self.plan
        if tally.begun_s is None:
            return now - begun_s > plan.wait_s
        if plan.seconds is not None:
            return now - tally.begun_s >= plan.seconds
        return now - tally.ended_s > plan.wait_s

    def queues(self) -> int:
        """The number of queues that it reads."""
        return len(self._consumer.assignment())

    def measured(self) -> Tally:
        """The figures so far."""
        if self.tally.begun_s is not None:
            self.tally.cpu_s = self._cpu.seconds()
        return self.tally
