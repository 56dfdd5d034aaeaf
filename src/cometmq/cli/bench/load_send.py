"""Messages that `cometmq bench` sends.

Rules kept here:
- Nothing is made for a message that could be made once: no task, no timer, and no `Message` unless each has
  to have something of its own.
- At a fixed rate a latency counts from the moment at which the message was due, not from the one at which
  there was somebody to send it: a server that stalls makes everything late that was due meanwhile. What the
  event loop's timer is too early or too late by itself, up to 2 ms, is not held against the server.
- A server that fails is not asked again at once.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import msgspec

from cometmq.cli.bench.figures import CpuClock, Tally
from cometmq.cli.common.connect import Link
from cometmq.client.producer.producer import Producer
from cometmq.client.producer.sender import SendStatus
from cometmq.model.errors import CometError, PartialBatchError
from cometmq.model.message import Message

if TYPE_CHECKING:
    from types import TracebackType

PRODUCER_GROUP: Final = "cometmq-bench"
MARK: Final = "BENCH"
"""The property by which a run knows its own messages, and when each was due."""

_TIMER_S: Final = 0.002
_EARLY_S: Final = 0.001
_NAP_S: Final = 0.25
"""How long somebody sleeps at most without looking whether it is over."""
_AFTER_FAILURE_S: Final = 0.1
_LETTERS: Final = b"abcdefghijklmnopqrstuvwxyz0123456789"
_COMPRESS_FROM: Final = 4 * 1024
_NEVER: Final = 2**31 - 1


class ProducerPlan(msgspec.Struct, frozen=True, kw_only=True, tag="producer"):
    """What one process sends."""

    link: Link
    topic: str
    messages: int | None = None
    seconds: float | None = None
    """It ends with what comes first."""
    size: int = 128
    in_flight: int = 64
    batch: int = 1
    rate: float | None = None
    tag: str | None = None
    keys: bool = False
    """Each message has a key of its own."""
    compress: bool = False
    run: str = ""
    """What the keys and marks of a run begin with."""
    marked: bool = False


class Turn(NamedTuple):
    """Messages that are due, and from when on their latency counts."""

    first: int
    size: int
    since_s: float


class Turns:
    """Who sends next, and when: at a fixed rate one sender waits for its time, the others for that one."""

    def __init__(self, plan: ProducerPlan, stop: asyncio.Event) -> None:
        self._stop = stop
        self._batch = plan.batch
        self._limit = plan.messages
        self._interval_s = None if plan.rate is None else 1 / plan.rate
        self._taken = 0
        self._in_line = asyncio.Lock()
        self._seconds = math.inf if plan.seconds is None else plan.seconds
        self.begun_s = time.monotonic()

    async def next(self) -> Turn | None:
        """Wait for the next turn; None at the end."""
        if self._interval_s is None:
            now = time.monotonic()
            return None if now - self.begun_s >= self._seconds else self._take(now)
        async with self._in_line:
            after_s = self._taken * self._interval_s
            return None if after_s >= self._seconds else self._take(await self._due(self.begun_s + after_s))

    def _take(self, since_s: float) -> Turn | None:
        first = self._taken
        size = self._batch if self._limit is None else min(self._batch, self._limit - first)
        if size <= 0 or self._stop.is_set():
            return None
        self._taken += size
        return Turn(first, size, since_s)

    async def _due(self, due_s: float) -> float:
        now, has_slept = time.monotonic(), False
        while due_s - now > _EARLY_S and not self._stop.is_set():
            await asyncio.sleep(min(due_s - now, _NAP_S))
            now, has_slept = time.monotonic(), True
        return now if has_slept and now - due_s <= _TIMER_S else due_s


class Sends:
    """Messages that are sent by as many senders as may be in flight."""

    def __init__(self, plan: ProducerPlan) -> None:
        self.plan = plan
        self.tally = Tally()
        timeout_ms = int(plan.link.timeout_s * 1000)
        self.producer = Producer(
            PRODUCER_GROUP,
            send_timeout_ms=timeout_ms,
            compress_body_over_bytes=_COMPRESS_FROM if plan.compress else _NEVER,
            **plan.link.options(),
        )
        self._cpu = CpuClock()
        body = bytes(random.Random(plan.size).choices(_LETTERS, k=plan.size))
        self._plain = Message(plan.topic, body, tags=plan.tag)
        self._many = [self._plain] * plan.batch

    async def __aenter__(self) -> Self:
        await self.producer.start()
        try:
            await self.producer.queues(self.plan.topic)
        except BaseException:
            await self.producer.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.producer.stop()

    async def work(self, stop: asyncio.Event) -> None:
        turns = Turns(self.plan, stop)
        self._cpu = CpuClock()
        self.tally.begun_s = self.tally.ended_s = turns.begun_s
        async with asyncio.TaskGroup() as senders:
            for _ in range(self.plan.in_flight):
                senders.create_task(self._send_on(turns))
        self._cpu.stop()

    async def _send_on(self, turns: Turns) -> None:
        tally = self.tally
        while (turn := await turns.next()) is not None:
            try:
                status = await self._send(turn)
            except CometError as error:
                self._note_failure(error, turn.size)
                await asyncio.sleep(_AFTER_FAILURE_S)
                continue
            tally.ended_s = now = time.monotonic()
            if status is not SendStatus.SEND_OK:
                tally.fail(status.value, "stored, but not as safely as the broker is told to", turn.size)
                continue
            self._note_stored(turn.size)
            tally.latencies.took(now - turn.since_s, turn.size)

    def _note_stored(self, count: int) -> None:
        self.tally.messages += count
        self.tally.bytes += count * self.plan.size

    def _note_failure(self, error: CometError, count: int) -> None:
        stored = len(error.receipts) if isinstance(error, PartialBatchError) else 0
        self._note_stored(stored)
        code = "" if error.code is None else f" {error.code}"
        self.tally.fail(f"{type(error).__name__}{code}", str(error), count - stored)

    async def _send(self, turn: Turn) -> SendStatus:
        if self.plan.batch == 1:
            return (await self.producer.send(self._message(turn.first, turn.since_s))).status
        return (await self.producer.send_batch(self._messages(turn)))[-1].status

    def _messages(self, turn: Turn) -> Sequence[Message]:
        if self.plan.keys or self.plan.marked:
            return [self._message(turn.first + number, turn.since_s) for number in range(turn.size)]
        return self._many[: turn.size]

    def _message(self, number: int, since_s: float) -> Message:
        plan = self.plan
        if not plan.keys and not plan.marked:
            return self._plain
        return Message(
            plan.topic,
            self._plain.body,
            tags=plan.tag,
            keys=(f"{plan.run}-{number}",) if plan.keys else (),
            properties={MARK: f"{plan.run} {since_s!r}"} if plan.marked else {},
        )

    def queues(self) -> int:
        return 0

    def measured(self) -> Tally:
        self.tally.cpu_s = self._cpu.seconds()
        return self.tally
