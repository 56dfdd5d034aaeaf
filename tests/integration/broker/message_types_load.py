"""A load of all kinds of messages on a broker in a process of its own, and the ledger of what was promised.

Rules kept here:
- A promise is an answer: what was sent and not answered may be there or not, and is held against nobody,
  unless it is something that must never be.
- What becomes of a transaction is decided before it begins and stands in its body, so that its end and the
  answers to the broker's questions agree, whichever of them arrives.
- An acknowledgement counts as a promise when it was answered before the message's time was over.
- A worker that loses its broker waits until it is back, and goes on with something new.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from cometmq.model.errors import CometError
from cometmq.remoting.client import RemotingClient
from cometmq.wire.codes import RequestCode
from cometmq.wire.header.schema import Header
from cometmq.wire.headers.pull import PullMessageRequest
from cometmq.wire.record.codec import Record, decode_record
from tests.answers import Told, now_ms, told
from tests.compat.apache import CometBroker
from tests.integration.broker.broker_kit import CALL_S, BrokerKit, send_header
from tests.integration.broker.message_types_kit import (
    COMMIT,
    ROLLBACK,
    Producer,
    Question,
    half_of,
    transaction,
)
from tests.integration.broker.pop.pop_kit import Consumer, PoppedMessage

BROKER_NAME = "embedded"
"""The name that the consumers of the kit write into their handles."""
QUEUES = 4
NORMAL, TRANSACTIONS, TIMED, POPPED = "Normal", "Transactions", "Timed", "Popped"
INVISIBLE_MS = 2_500
ACKNOWLEDGED_SHARE = 0.85
ENDED_SHARE = 0.75


class Remote(BrokerKit):
    """A broker in a process of its own."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.client = RemotingClient()

    async def call(self, code: int, header: Header | None = None, body: bytes = b"") -> Told:
        return told(await self.client.call(self.address, code, header, body=body, timeout_s=CALL_S))

    async def read(self, topic: str, queue_id: int = 0) -> list[Record]:
        """All messages that consumers see in a queue."""
        records: list[Record] = []
        while True:
            header = PullMessageRequest(
                consumer_group="readers",
                topic=topic,
                queue_id=queue_id,
                queue_offset=len(records),
                max_msg_nums=32,
                sys_flag=4,
                commit_offset=0,
                suspend_timeout_millis=0,
                subscription="*",
                sub_version=0,
            )
            answer = await self.call(RequestCode.PULL_MESSAGE, header)
            at = 0
            if answer.code != 0:
                return records
            while at < len(answer.body):
                records.append(decode_record(answer.body, at))
                at += records[-1].total_size


@dataclass
class Ledger:
    """What the broker has promised."""

    normal: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """By queue and offset."""
    committed: set[bytes] = field(default_factory=set)
    timed: set[bytes] = field(default_factory=set)
    fed: set[bytes] = field(default_factory=set)
    """What is there to be popped."""
    done: set[bytes] = field(default_factory=set)
    """What was popped and acknowledged, in time or not, answered or not."""
    acknowledged: dict[bytes, float] = field(default_factory=dict)
    """When the acknowledgement of a message was answered, of those that were in time."""
    broken: list[str] = field(default_factory=list)
    popped: dict[bytes, list[str]] = field(default_factory=dict)
    """What happened to each message that was popped, for whoever has to find out why."""


class KindsLoad:
    """Workers of all kinds; `up` says whether the broker is there."""

    def __init__(self, broker: CometBroker, seed: int) -> None:
        self.broker = broker
        self.remote = Remote(broker.address)
        self.producer = Producer(broker.address)
        self.producer.on_question = self._asked
        self.ledger = Ledger()
        self.up = asyncio.Event()
        self.up.set()
        self.kills: list[str] = []
        self._chance = random.Random(seed)
        self._numbers = 0
        self._feeders: list[asyncio.Task[None]] = []
        self._poppers: list[asyncio.Task[None]] = []
        self._others: list[asyncio.Task[None]] = []
        self._answers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        for step in (self._send, self._transact, self._transact, self._set_timer, self._feed, self._feed):
            self._feeders.append(asyncio.create_task(self._repeat(step)))
        self._poppers += [asyncio.create_task(self._repeat(self._pop_and_ack)) for _ in range(3)]
        self._others = [asyncio.create_task(self._repeat(self._heartbeat))]

    async def stop_feeding(self) -> None:
        """No more new messages; what was popped is acknowledged from now on."""
        await _cancel(self._feeders)

    async def stop_popping(self) -> None:
        await _cancel(self._poppers)

    async def stop(self) -> None:
        for tasks in (self._feeders, self._poppers, self._others, self._answers):
            await _cancel(tasks)
        await self.remote.client.stop()
        await self.producer.client.stop()

    async def _repeat(self, step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            try:
                await step()
            except CometError:
                await self.up.wait()
                await asyncio.sleep(0.01)  # the other end of a connection may be noticed late

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    async def send(self, topic: str, body: bytes, queue_id: int = 0) -> Told:
        header = send_header(topic, {"UNIQ_KEY": f"{self._number():032X}"}, queue_id=queue_id)
        return await self.remote.call(RequestCode.SEND_MESSAGE_V2, header, body)

    # The kinds

    async def _send(self) -> None:
        number = self._number()
        body = b"normal-%d" % number
        answer = await self.send(NORMAL, body, number % QUEUES)
        if answer.code == 0:
            position = int(answer.fields["queueId"] or -1), int(answer.fields["queueOffset"] or -1)
            if position in self.ledger.normal:
                self.ledger.broken.append(f"{position} was given twice")
            self.ledger.normal[position] = body

    async def _transact(self) -> None:
        outcome = self._chance.choice((b"commit", b"rollback"))
        await self.begin_transaction(outcome, ends=self._chance.random() < ENDED_SHARE)

    async def begin_transaction(self, outcome: bytes, *, ends: bool) -> bytes:
        """A half message and, if it ends here, its end; the body that it has."""
        number = self._number()
        body = b"%s-%d" % (outcome, number)
        header = send_header(
            TRANSACTIONS,
            transaction(f"{number:032X}"),
            sys_flag=4,
            queue_id=number % QUEUES,
            born_timestamp=now_ms(),
        )
        answer = await self.remote.call(RequestCode.SEND_MESSAGE_V2, header, body)
        if answer.code == 0:
            if outcome == b"commit":
                self.ledger.committed.add(body)
            if ends:
                await self.producer.end(half_of(answer), decision(body))
        return body

    def _asked(self, question: Question) -> None:
        """Answer a question of the broker, unless it is gone before."""
        self._answers.append(asyncio.create_task(self._answer(question)))
        self._answers = [answer for answer in self._answers if not answer.done()]

    async def _answer(self, question: Question) -> None:
        with suppress(CometError):
            outcome = decision(bytes(question.message.body))
            await self.producer.end(question.half, outcome, from_check=True)

    async def _set_timer(self) -> None:
        number = self._number()
        due_ms = now_ms() + self._chance.randrange(100, 4_000)
        body = b"%d-%d" % (due_ms, number)
        properties = {"UNIQ_KEY": f"{number:032X}", "TIMER_DELIVER_MS": str(due_ms)}
        header = send_header(TIMED, properties, queue_id=number % QUEUES)
        answer = await self.remote.call(RequestCode.SEND_MESSAGE_V2, header, body)
        if answer.code == 0:
            self.ledger.timed.add(body)

    async def _feed(self) -> None:
        number = self._number()
        body = b"popped-%d" % number
        if (await self.send(POPPED, body, number % QUEUES)).code == 0:
            self.ledger.fed.add(body)

    async def _pop_and_ack(self) -> None:
        for message in await self.pop():
            if self._feeders and self._chance.random() > ACKNOWLEDGED_SHARE:
                continue  # this consumer has crashed, as far as the broker can tell
            await self.ack(message)

    async def pop(self, count: int = 16) -> list[PoppedMessage]:
        asked_at = time.monotonic()
        popped = await Consumer(self.remote, topic=POPPED).pop(
            count, invisible_ms=INVISIBLE_MS, poll_ms=500, queue_id=-1
        )
        for message in popped.messages:
            history = self.ledger.popped.setdefault(message.body, [])
            history.append(f"{now_ms()} popped {message.record.topic} {message.handle}")
            answered_at = self.ledger.acknowledged.get(message.body)
            if answered_at is not None and answered_at < asked_at:
                self.ledger.broken.append(f"{message.body!r} came after it was acknowledged: {history}")
        return popped.messages

    async def ack(self, message: PoppedMessage) -> None:
        self.ledger.done.add(message.body)
        history = self.ledger.popped[message.body]
        history.append(f"{now_ms()} acknowledging")
        answer = await Consumer(self.remote, topic=POPPED).ack(message)
        history.append(f"{now_ms()} answered {answer.code}")
        if answer.code == 0 and now_ms() < message.pop_time_ms + INVISIBLE_MS:
            self.ledger.acknowledged[message.body] = time.monotonic()

    async def _heartbeat(self) -> None:
        await self.producer.heartbeat()
        await asyncio.sleep(0.3)

    # What is there in the end

    async def everything_in(self, topic: str) -> dict[tuple[int, int], Record]:
        """All messages of a topic by queue and offset."""
        queues = await asyncio.gather(*(self.remote.read(topic, queue_id) for queue_id in range(QUEUES)))
        return {
            (queue_id, record.queue_offset): record
            for queue_id, records in enumerate(queues)
            for record in records
        }


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    tasks.clear()


def decision(body: bytes) -> int:
    """How a transaction ends."""
    return COMMIT if body.startswith(b"commit") else ROLLBACK


def due_ms(body: bytes) -> int:
    """When a timed message is due."""
    return int(body.partition(b"-")[0])
