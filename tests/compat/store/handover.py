"""A store directory that Apache's broker and ours use in turn: what is done in each, and what came of it.

Every story has three turns: one broker takes timed messages, transactions and pops and ends with some of each
pending; the other one goes on with its files, adds its own, and ends; the first one finishes what is left.

Rules kept here:
- A broker ends when what it has to hand over is written as it always writes it: the progress of timers and
  groups, and the ends of transactions, all of which Apache's writes only from time to time.
- Nothing is asserted here but that a turn can be finished: the tests judge what the story tells.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from cometmq.store.timer.checkpoint import TimerProgress
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.offset import GetMaxOffsetRequest, GetMaxOffsetResponse
from cometmq.wire.headers.send import RecallMessageRequest
from cometmq.wire.record.codec import Record
from tests.answers import Told, now_ms
from tests.compat.apache import (
    BROKER_PORT_OFFSETS,
    ApacheBroker,
    CometBroker,
    free_port,
)
from tests.integration.broker.broker_kit import CALL_S, send_header
from tests.integration.broker.message_types_kit import (
    COMMIT,
    ROLLBACK,
    Half,
    Producer,
    Question,
    half_of,
    transaction,
)
from tests.integration.broker.message_types_load import Remote
from tests.integration.broker.pop.pop_kit import BROKER, Consumer, PoppedMessage
from tests.waiting import eventually

TIMED, TRANSACTED, POPPED, GROUP = "Timed", "Transacted", "Popped", "poppers"
OPERATIONS, TIMERS = "RMQ_SYS_TRANS_OP_HALF_TOPIC", "rmq_sys_wheel_timer"
PATIENCE_S = 100.0
TURN_MS = 35_000
"""A turn and the start of the next one should be over by then."""
LONG_MS, SHORT_MS = 20_000, 12_000
MESSAGES = [b"message-%02d" % number for number in range(12)]
SETTINGS = {
    "mappedFileSizeTimerLog": "1048576",
    "recallMessageEnable": "true",
    "transactionOpBatchInterval": "100",  # Apache's asks once more about what is not noted yet
    "flushConsumerOffsetInterval": "500",
}
NO_CHECKS = {"transactionCheckInterval": "600000"}
CHECKS = {
    "transactionCheckInterval": "1000",
    "transactionTimeOut": "1000",
    "transactionCheckMax": "1000",  # one of them stays open as long as the turn lasts
}

Kind = type[ApacheBroker] | type[CometBroker]


class Pop(NamedTuple):
    """A message that was handed out."""

    turn: int
    body: bytes
    pop_time_ms: int
    invisible_ms: int


@dataclass
class Story:
    """What was asked for, and what was seen."""

    begun_ms: list[int] = field(default_factory=list)
    """When the broker of each turn was begun to be started; it works before it says that it is ready."""
    started_ms: list[int] = field(default_factory=list)
    """When the broker of each turn was ready."""
    due_ms: dict[bytes, int] = field(default_factory=dict)
    timed: list[Record] = field(default_factory=list)
    asked: list[set[str]] = field(default_factory=list)
    """Which transactions the broker of each turn asked about."""
    asked_topics: set[str] = field(default_factory=set)
    transacted: list[list[bytes]] = field(default_factory=list)
    """What consumers saw of the transactions at the end of each turn."""
    pops: list[Pop] = field(default_factory=list)
    done: dict[bytes, int] = field(default_factory=dict)
    """In which turn a message was acknowledged."""


class Visit(Remote):
    """A broker that runs, and a client of it."""

    def __init__(self, broker: ApacheBroker | CometBroker) -> None:
        super().__init__(broker.address)
        self.process = broker

    async def put(self, topic: str, body: bytes, properties: Mapping[str, str], **fields: object) -> Told:
        header = send_header(topic, properties, born_timestamp=now_ms(), **fields)
        answer = await self.call(RequestCode.SEND_MESSAGE_V2, header, body)
        assert answer.code == 0, answer
        return answer

    async def set_timer(self, body: bytes, deliver_ms: int) -> Told:
        properties = {"UNIQ_KEY": f"key-of-{body.decode()}", "TIMER_DELIVER_MS": str(deliver_ms)}
        return await self.put(TIMED, body, properties)

    async def recall(self, handle: str | None) -> None:
        header = RecallMessageRequest(topic=TIMED, recall_handle=handle or "")
        answer = await self.call(RequestCode.RECALL_MESSAGE, header)
        assert answer.code == 0, answer

    async def prepare(self, name: str) -> Half:
        return half_of(await self.put(TRANSACTED, name.encode(), transaction(name), sys_flag=4))

    async def bodies(self, topic: str) -> list[bytes]:
        return sorted(bytes(record.body) for record in await self.read(topic))

    async def wait_for(self, topic: str, *bodies: bytes) -> None:
        """Wait until consumers have seen these, at least."""
        await eventually(
            lambda: self.bodies(topic), f"{bodies} in {topic}", set(bodies).issubset, seconds=PATIENCE_S
        )

    async def end_of(self, topic: str) -> int:
        header = GetMaxOffsetRequest(topic=topic, queue_id=0)
        answer = await self.client.call(self.address, RequestCode.GET_MAX_OFFSET, header, timeout_s=CALL_S)
        return answer.header(GetMaxOffsetResponse).offset

    async def wait_for_operations(self, before: int = 0) -> int:
        """Wait until more ends are noted in the op topic; the answer is how many notes there are."""
        return await eventually(
            lambda: self.end_of(OPERATIONS),
            "more ends are noted",
            lambda end: end != before,
            seconds=PATIENCE_S,
        )


class House:
    """A store directory that brokers of both kinds use in turn, on one port."""

    def __init__(self, folder: Path, namesrv: str) -> None:
        self._folder = folder
        self._namesrv = namesrv
        self._port = free_port(*BROKER_PORT_OFFSETS)
        self.story = Story()

    @property
    def turn(self) -> int:
        return len(self.story.started_ms)

    @asynccontextmanager
    async def running(self, kind: Kind, settings: Mapping[str, str]) -> AsyncIterator[Visit]:
        """A broker of this kind, killed when it is left unless it has stopped before."""
        store = self._folder / "store"
        paths = {"storePathRootDir": str(store), "storePathCommitLog": str(store / "commitlog")}
        home = self._folder / f"{kind.__name__}-{self.turn}"
        broker = kind(home, self._namesrv, BROKER, {**SETTINGS, **paths, **settings}, self._port)
        self.story.begun_ms.append(now_ms())
        await asyncio.to_thread(broker.start)
        self.story.started_ms.append(now_ms())
        visit = Visit(broker)
        try:
            yield visit
        finally:
            await visit.client.stop()
            broker.kill()

    async def end(self, visit: Visit, *, popped: int, kill: bool) -> None:
        """End a broker when its timers, its deliveries and the offset of the group are in their files."""
        began_ms, config = now_ms(), self._folder / "store" / "config"
        timers = await visit.end_of(TIMERS)
        offset_of_group = re.compile(rf'"{POPPED}@{GROUP}":\s*\{{\s*"?0"?:\s*{popped}\b')

        def is_saved() -> bool:
            saved = TimerProgress.unpack((config / "timercheck").read_bytes()[:56])
            is_timed = saved.last_timer_queue_offset == timers and saved.last_read_time_ms >= began_ms
            try:
                offsets = (config / "consumerOffset.json").read_text()
            except FileNotFoundError:  # Apache's writes it after ten seconds, and is without it for a moment
                return False
            return is_timed and offset_of_group.search(offsets) is not None

        await eventually(is_saved)
        await visit.client.stop()
        await asyncio.to_thread(visit.process.kill if kill else visit.process.stop)

    # Popping

    async def pop(self, visit: Visit, count: int, invisible_ms: int) -> list[PoppedMessage]:
        popped = await Consumer(visit, GROUP, POPPED).pop(count, invisible_ms, poll_ms=500)
        for message in popped.messages:
            self.story.pops.append(Pop(self.turn, message.body, message.pop_time_ms, invisible_ms))
        return popped.messages

    async def ack(self, visit: Visit, messages: Iterable[PoppedMessage]) -> None:
        for message in messages:
            await Consumer(visit, GROUP, POPPED).ack_all([message])
            self.story.done[message.body] = self.turn

    async def pop_until(self, visit: Visit, bodies: set[bytes], *, leaving: set[bytes]) -> None:
        """Pop until these have come in this turn, and acknowledge all but some."""
        missing = set(bodies)
        async with asyncio.timeout(PATIENCE_S):
            while missing:
                messages = await self.pop(visit, 4, SHORT_MS)
                await self.ack(visit, (message for message in messages if message.body not in leaving))
                missing -= {message.body for message in messages}

    # The turns

    async def begin(self, kind: Kind, *, kill: bool) -> None:
        """The first turn: some of everything ends here, and some is left to the next."""
        story = self.story
        async with self.running(kind, NO_CHECKS) as visit, Producer(visit.address) as producer:
            began_ms = now_ms()
            ahead_ms = {b"before": 1_500, b"meanwhile": 9_000, b"later": TURN_MS}
            ahead_ms |= {b"first-%d" % number: 2 * TURN_MS for number in range(5)}
            for body, ahead in ahead_ms.items():
                story.due_ms[body] = began_ms + ahead
                await visit.set_timer(body, story.due_ms[body])
            unwanted = await visit.set_timer(b"unwanted", story.due_ms[b"later"])
            await visit.recall(unwanted.fields["recallHandle"])

            halves = {
                name: await visit.prepare(name) for name in ("ended", "rolled back", "open", "doubtful")
            }
            assert (await producer.end(halves["ended"], COMMIT)).code == 0
            assert (await producer.end(halves["rolled back"], ROLLBACK)).code == 0

            for body in MESSAGES:
                await visit.put(POPPED, body, {"UNIQ_KEY": body.decode()})
            await self.ack(visit, (await self.pop(visit, 4, LONG_MS))[:2])
            await self.ack(visit, await self.pop(visit, 4, LONG_MS))
            await self._pop_for_longer(visit)

            await visit.wait_for(TIMED, b"before")
            await visit.wait_for_operations()
            story.transacted.append(await visit.bodies(TRANSACTED))
            story.asked.append({each.half.unique_key for each in producer.questions})
            await self.end(visit, popped=10, kill=kill)

    async def _pop_for_longer(self, visit: Visit) -> None:
        """Two messages that are out until the third turn, one of which gets another time."""
        _, changed = await self.pop(visit, 2, 2 * TURN_MS - 10_000)
        again = await Consumer(visit, GROUP, POPPED).change_time(changed, LONG_MS + 4_000)
        self.story.pops[-1] = Pop(self.turn, again.body, again.pop_time_ms, LONG_MS + 4_000)

    async def go_on(self, kind: Kind, *, kill: bool) -> None:
        """The second turn: finish some of what was left, and leave the rest and more."""
        story = self.story
        async with self.running(kind, CHECKS) as visit, Producer(visit.address) as producer:
            producer.on_question = lambda question: COMMIT if question.half.unique_key == "open" else None
            noted = await visit.end_of(OPERATIONS)
            for number in range(5):
                body = b"second-%d" % number
                story.due_ms[body] = story.due_ms[b"first-0"]
                await visit.set_timer(body, story.due_ms[body])
            back, fresh = {MESSAGES[2], MESSAGES[3], MESSAGES[9]}, set(MESSAGES[10:])
            await self.pop_until(visit, back | fresh, leaving={MESSAGES[3], MESSAGES[8], MESSAGES[11]})
            await visit.wait_for(TIMED, b"meanwhile", b"later")
            await visit.wait_for(TRANSACTED, b"open")
            await eventually(lambda: any(each.half.unique_key == "doubtful" for each in producer.questions))
            await visit.wait_for_operations(noted)
            self._note_questions(producer.questions)
            story.transacted.append(await visit.bodies(TRANSACTED))
            await self.end(visit, popped=12, kill=kill)

    async def finish(self, kind: Kind) -> None:
        """The third turn: whatever is left."""
        story = self.story
        async with self.running(kind, CHECKS) as visit, Producer(visit.address) as producer:
            producer.on_question = lambda _: COMMIT
            await visit.wait_for(TRANSACTED, b"doubtful")
            await self.pop_until(visit, {MESSAGES[3], MESSAGES[8], MESSAGES[11]}, leaving=set())
            await visit.wait_for(TIMED, *story.due_ms)
            self._note_questions(producer.questions)
            story.transacted.append(await visit.bodies(TRANSACTED))
            story.timed = await visit.read(TIMED)

    def _note_questions(self, questions: list[Question]) -> None:
        self.story.asked.append({each.half.unique_key for each in questions})
        self.story.asked_topics |= {each.message.topic for each in questions}


async def told_story(folder: Path, namesrv: str, first: Kind, second: Kind, *, kill: bool) -> Story:
    """What happens when one broker begins, the other goes on, and the first one finishes."""
    house = House(folder, namesrv)
    await house.begin(first, kill=kill)
    await house.go_on(second, kill=kill)
    await house.finish(first)
    return house.story
