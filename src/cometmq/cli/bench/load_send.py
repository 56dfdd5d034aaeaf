"""The producer load of `cometmq bench`.

Rules kept here:
- A message costs no task, no timer, and no `Message` object unless it has a key or a mark of its own.
- At a fixed rate a latency counts from when the message was due, not from when a sender was free: a stalled
  server delays everything that was due meanwhile. An error of the event loop's timer up to 2 ms does not
  count.
- After a failure a sender pauses.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Sequence
from typing import Final, NamedTuple, Self

import msgspec

from cometmq.cli.bench.figures import CpuClock, Tally
from cometmq.cli.common.connect import Link
from cometmq.client.producer.producer import Producer
from cometmq.client.producer.sender import SendStatus
from cometmq.model.errors import CometError, PartialBatchError
from cometmq.model.message import Message

PRODUCER_GROUP: Final = "cometmq-bench"
MARK: Final = "BENCH"
"""The property with the name of the run, and when the message was due."""

_TIMER_S: Final = 0.002
_EARLY_S: Final = 0.001
_NAP_S: Final = 0.25
"""The longest sleep without a look at `stop`."""
_AFTER_FAILURE_S: Final = 0.1
_LETTERS: Final = b"abcdefghijklmnopqrstuvwxyz0123456789"
_COMPRESS_FROM: Final = 4 * 1024
_NEVER: Final = 2**31 - 1


class ProducerPlan(msgspec.Struct, frozen=True, kw_only=True, tag="producer"):
    """The load of one producer process."""

    link: Link
    topic: str
    messages: int | None = None
    seconds: float | None = None
    """The first limit that is reached ends it."""
    size: int = 128
    in_flight: int = 64
    batch: int = 1
    rate: float | None = None
    tag: str | None = None
    keys: bool = False
    """Each message has a key of its own."""
    compress: bool = False
    run: str = ""
    """The prefix of keys and marks."""
    marked: bool = False


class Turn(NamedTuple):
    """Messages to send, and the moment from which their latency counts."""

    first: int
    size: int
    since_s: float


class Turns:
    """Hands out turns to senders; at a fixed rate one sender waits for the due time, the others for it."""

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
    """A producer with `in_flight` sender tasks."""

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

    async def __aexit__(self, *_: object) -> None:
        await self.producer.stop()

    async def work(self, stop: asyncio.Event) -> None:
        """Carry out the plan, or stop early."""
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
        """The number of queues that it reads."""
        return 0

    def measured(self) -> Tally:
        """The figures so far."""
        self.tally.cpu_s = self._cpu.seconds()
        return self.tally
