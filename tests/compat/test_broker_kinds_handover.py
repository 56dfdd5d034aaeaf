"""Timed messages and open transactions pass between Apache's broker and ours, in both directions.

One broker takes them and ends, in good order or by a kill; the other one goes on with its files.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cometmq.remoting.client import RemotingClient
from cometmq.store.timer_checkpoint import TimerProgress
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.offset import GetMaxOffsetRequest, GetMaxOffsetResponse
from cometmq.wire.headers.pull import PullMessageRequest
from cometmq.wire.headers.send import RecallMessageRequest
from cometmq.wire.record import Record, decode_record
from tests.compat.apache import (
    BROKER_PORT_OFFSETS,
    ApacheBroker,
    Broker,
    CometBroker,
    CometNamesrv,
    free_port,
)
from tests.integration.broker_kit import Told, send_header, told
from tests.integration.message_kinds_kit import COMMIT, Half, Producer, half_of, now_ms, transaction

TOPIC = "Handed"
OPERATIONS = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
PATIENCE_S = 90.0
LATE_MS = 10_000
"""How much later than due a broker may deliver here: it may be starting."""

Kind = type[ApacheBroker] | type[CometBroker]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - what is waited for is another party's state
            await asyncio.sleep(0.05)


class Visit:
    """A broker that runs, and a client of it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.client = RemotingClient()

    async def send(self, body: bytes, properties: Mapping[str, str], **fields: object) -> Told:
        header = send_header(TOPIC, properties, born_timestamp=now_ms(), **fields)
        answer = await self.client.call(self.broker.address, RequestCode.SEND_MESSAGE_V2, header, body=body)
        assert answer.code == 0, told(answer)
        return told(answer)

    async def send_timed(self, body: bytes, unique_key: str, deliver_ms: int) -> Told:
        return await self.send(body, {"UNIQ_KEY": unique_key, "TIMER_DELIVER_MS": str(deliver_ms)})

    async def read(self) -> list[Record]:
        """All messages that consumers see in the first queue."""
        records: list[Record] = []
        while True:
            header = PullMessageRequest(
                consumer_group="readers",
                topic=TOPIC,
                queue_id=0,
                queue_offset=len(records),
                max_msg_nums=32,
                sys_flag=4,
                commit_offset=0,
                suspend_timeout_millis=0,
                subscription="*",
                sub_version=0,
            )
            answer = await self.client.call(self.broker.address, RequestCode.PULL_MESSAGE, header)
            body, at = bytes(answer.body), 0
            if answer.code != 0:
                return records
            while at < len(body):
                records.append(decode_record(body, at))
                at += records[-1].total_size

    async def bodies(self) -> list[bytes]:
        return sorted(bytes(record.body) for record in await self.read())

    async def wait_for(self, *bodies: bytes) -> list[Record]:
        """Wait until consumers have seen these, at least."""
        async with asyncio.timeout(PATIENCE_S):
            while not set(bodies) <= set(await self.bodies()):  # noqa: ASYNC110 - the broker's state
                await asyncio.sleep(0.1)
        return await self.read()

    async def end_of(self, topic: str) -> int:
        header = GetMaxOffsetRequest(topic=topic, queue_id=0)
        answer = await self.client.call(self.broker.address, RequestCode.GET_MAX_OFFSET, header)
        return answer.header(GetMaxOffsetResponse).offset

    async def wait_for_operations(self, before: int = 0) -> int:
        """Wait until more ends are noted in the op topic; the answer is how many notes there are."""
        async with asyncio.timeout(PATIENCE_S):
            while (noted := await self.end_of(OPERATIONS)) == before:  # noqa: ASYNC110 - the broker's state
                await asyncio.sleep(0.1)
        return noted


class House:
    """A store directory that brokers of both kinds use in turn, on one port."""

    def __init__(self, folder: Path, namesrv: str) -> None:
        self._folder = folder
        self._namesrv = namesrv
        self._port = free_port(*BROKER_PORT_OFFSETS)
        self._visits = 0

    async def wait_saved(self, messages: int) -> None:
        """Wait until the timers of so many messages, and all deliveries so far, are in the checkpoint."""
        began_ms, path = now_ms(), self._folder / "store" / "config" / "timercheck"

        def is_saved() -> bool:
            saved = TimerProgress.unpack(path.read_bytes()[:56])
            return saved.last_timer_queue_offset == messages and saved.last_read_time_ms >= began_ms

        await until(is_saved)

    @asynccontextmanager
    async def running(
        self, kind: Kind, settings: Mapping[str, str] = {}, *, kill: bool = False
    ) -> AsyncIterator[Visit]:
        """A broker of this kind, ended in order or killed."""
        self._visits += 1
        store = self._folder / "store"
        values = {
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
            "mappedFileSizeTimerLog": "1048576",
            "recallMessageEnable": "true",
            "transactionOpBatchInterval": "100",  # Apache's asks once more about what is not noted yet
            **settings,
        }
        home = self._folder / f"{kind.__name__}-{self._visits}"
        broker = kind(home, self._namesrv, "broker-handed", values, self._port)
        await asyncio.to_thread(broker.start)
        visit = Visit(broker)
        try:
            yield visit
            await visit.client.stop()
            await asyncio.to_thread(broker.kill if kill else broker.stop)
        finally:
            await visit.client.stop()
            broker.kill()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with CometNamesrv(tmp_path / "namesrv") as namesrv:
        yield House(tmp_path, namesrv.address)


both_ways = pytest.mark.parametrize(
    ("first", "second"),
    [(ApacheBroker, CometBroker), (CometBroker, ApacheBroker)],
    ids=["from Apache's to ours", "from ours to Apache's"],
)
both_ends = pytest.mark.parametrize("kill", [False, True], ids=["after a stop", "after a kill"])


@both_ways
@both_ends
async def test_timed_messages_are_delivered_by_the_broker_that_follows(
    house: House, first: Kind, second: Kind, kill: bool
) -> None:
    """B4, B6: each once and not before its time; what was taken back does not come."""
    began_ms = now_ms()
    async with house.running(first, kill=kill) as visit:
        began_ms = now_ms()
        await visit.send_timed(b"before", "A", began_ms + 1500)
        due = {b"meanwhile": began_ms + 9_000, b"later": began_ms + 35_000}
        await visit.send_timed(b"meanwhile", "B", due[b"meanwhile"])
        await visit.send_timed(b"later", "C", due[b"later"])
        unwanted = await visit.send_timed(b"unwanted", "D", due[b"later"])
        header = RecallMessageRequest(topic=TOPIC, recall_handle=unwanted.fields["recallHandle"] or "")
        recalled = await visit.client.call(visit.broker.address, RequestCode.RECALL_MESSAGE, header)
        assert recalled.code == 0, told(recalled)
        await visit.wait_for(b"before")
        await house.wait_saved(5)
    async with house.running(second) as visit:
        records = await visit.wait_for(*due)
        assert sorted(bytes(record.body) for record in records) == [b"before", b"later", b"meanwhile"]
        for record in records:
            if (body := bytes(record.body)) in due:
                assert due[body] <= record.store_timestamp_ms
        (later,) = (record for record in records if bytes(record.body) == b"later")
        assert later.store_timestamp_ms <= due[b"later"] + LATE_MS


@both_ways
async def test_a_timed_message_of_the_broker_that_follows_comes_too(
    house: House, first: Kind, second: Kind
) -> None:
    """B4, B6: both brokers add to the same slots, and the first one gets them back."""
    async with house.running(first, kill=True) as visit:
        due_ms = now_ms() + 60_000
        for number in range(5):
            await visit.send_timed(b"first-%d" % number, f"A{number}", due_ms)
        await house.wait_saved(5)
    async with house.running(second, kill=True) as visit:
        for number in range(5):
            await visit.send_timed(b"second-%d" % number, f"B{number}", due_ms)
        await house.wait_saved(10)
    async with house.running(first) as visit:
        expected = [b"%s-%d" % (who, number) for who in (b"first", b"second") for number in range(5)]
        records = await visit.wait_for(*expected)
        assert sorted(bytes(record.body) for record in records) == expected
        assert all(due_ms <= record.store_timestamp_ms <= due_ms + LATE_MS for record in records)


async def prepare(visit: Visit, body: bytes, unique_key: str) -> Half:
    return half_of(await visit.send(body, transaction(unique_key), sys_flag=4))


@both_ways
@both_ends
async def test_open_transactions_are_finished_by_the_broker_that_follows(
    house: House, first: Kind, second: Kind, kill: bool
) -> None:
    """B4, B6: it asks about those that are open, and not about those that have ended."""
    async with (
        house.running(first, {"transactionCheckInterval": "600000"}, kill=kill) as visit,
        Producer(visit.broker.address) as producer,
    ):
        ended = await prepare(visit, b"ended", "ended")
        rolled_back = await prepare(visit, b"rolled back", "rolled back")
        await prepare(visit, b"open", "open")
        await prepare(visit, b"doubtful", "doubtful")
        assert (await producer.end(ended, COMMIT)).code == 0
        assert (await producer.end(rolled_back, 12)).code == 0
        noted = await visit.wait_for_operations()
    checks = {"transactionCheckInterval": "1000", "transactionTimeOut": "1000"}
    async with house.running(second, checks) as visit, Producer(visit.broker.address) as producer:
        producer.on_question = lambda question: COMMIT if question.half.unique_key == "open" else None
        await visit.wait_for(b"open")
        await until(lambda: any(each.half.unique_key == "doubtful" for each in producer.questions))
        assert {each.half.unique_key for each in producer.questions} == {"open", "doubtful"}
        assert all(each.message.topic == TOPIC for each in producer.questions)
        assert await visit.bodies() == [b"ended", b"open"]
        await visit.wait_for_operations(noted)
    async with house.running(first, checks) as visit, Producer(visit.broker.address) as producer:
        producer.on_question = lambda _: COMMIT
        await visit.wait_for(b"doubtful")
        assert {each.half.unique_key for each in producer.questions} == {"doubtful"}
        assert await visit.bodies() == [b"doubtful", b"ended", b"open"]
