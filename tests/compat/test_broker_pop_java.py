"""Java's consumers pop from our broker; both brokers bring back what the other one handed out (B12)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.remoting.client import RemotingClient
from cometmq.wire.codes import RequestCode
from cometmq.wire.header import Header
from tests.compat.apache import (
    BROKER_PORT_OFFSETS,
    ApacheBroker,
    Broker,
    CometBroker,
    CometNamesrv,
    Server,
    free_port,
    mqadmin,
    run_java,
)
from tests.compat.subject import Subject, create_topic, running_subject
from tests.integration.broker_kit import BrokerKit, Told, send_header, told
from tests.integration.pop_kit import BROKER, Consumer, PoppedMessage, now_ms

COUNT = 60
TOPIC, GROUP = "Popped", "poppers"
INVISIBLE_MS = 12_000
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    with running_subject(tmp_path_factory.mktemp("pop")) as running:
        yield running


def test_java_consumers_pop_when_their_group_is_set_to_it(subject: Subject, tmp_path: Path) -> None:
    """B12: each message is done once, by one of them, and what is refused comes again."""
    subject.create_topic(TOPIC)
    mode = ("setConsumeMode", "-b", subject.broker.address, "-t", TOPIC, "-g", GROUP, "-m", "POP", "-q", "0")
    assert "success" in mqadmin(*mode, namesrv=subject.namesrv.address, home=tmp_path / "admin")
    printed = run_java(
        "PopConsumers.java",
        *(subject.namesrv.address, TOPIC, GROUP, str(COUNT)),
        home=tmp_path / "client",
        timeout=120,
    )
    lines = [line.split(" ") for line in printed.splitlines()]
    assert {line[3] for line in lines} == {"popped"}
    assert {line[0] for line in lines} <= {"first", "second"}
    deliveries = sorted((int(body), int(tried)) for _, body, tried, _ in lines)
    again = [(number, 1) for number in range(0, COUNT, 10)]
    assert deliveries == sorted([(number, 0) for number in range(COUNT)] + again)


# One store, two brokers


class Remote(BrokerKit):
    """A broker in a process of its own."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.client = RemotingClient()

    async def call(self, code: int, header: Header | None = None, body: bytes = b"") -> Told:
        return told(await self.client.call(self.address, code, header, body=body))


async def pop_some(address: str) -> list[PoppedMessage]:
    """Send ten messages, pop eight of them, and acknowledge every other one."""
    remote = Remote(address)
    create_topic(address, TOPIC, queues=1)
    for number in range(10):
        answer = await remote.call(RequestCode.SEND_MESSAGE_V2, send_header(TOPIC, None), b"%d" % number)
        assert answer.code == 0, answer
    consumer = Consumer(remote, GROUP, TOPIC)
    messages = (await consumer.pop(8, INVISIBLE_MS)).messages
    assert [message.body for message in messages] == [b"%d" % number for number in range(8)]
    await consumer.ack_all(messages[::2])
    await remote.client.stop()
    return messages


async def pop_the_rest(address: str) -> list[tuple[bytes, int, int]]:
    """What another broker on the same store hands out: body, attempts before, and when."""
    remote = Remote(address)
    consumer = Consumer(remote, GROUP, TOPIC)
    found: list[tuple[bytes, int, int]] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < 6:
            messages = (await consumer.pop(poll_ms=2000, queue_id=-1)).messages
            found += [(each.body, each.record.reconsume_times, now_ms()) for each in messages]
            await consumer.ack_all(messages)
        assert (await consumer.pop(poll_ms=3000, queue_id=-1)).bodies == []
    await remote.client.stop()
    return found


Kind = type[ApacheBroker] | type[CometBroker]


@pytest.mark.parametrize(
    ("first", "second"),
    [(ApacheBroker, CometBroker), (CometBroker, ApacheBroker)],
    ids=["from Apache", "to Apache"],
)
async def test_the_other_broker_brings_back_what_was_handed_out(
    first: Kind, second: Kind, tmp_path: Path
) -> None:
    """B12: not what was acknowledged, and not before its time; and it goes on where the group was."""
    port = free_port(*BROKER_PORT_OFFSETS)

    def start(kind: Kind, namesrv: Server) -> Broker:
        broker = kind(tmp_path / "broker", namesrv.address, BROKER, port=port)
        broker.start()
        broker.wait_registered(namesrv.address)
        return broker

    with CometNamesrv(tmp_path / "namesrv") as namesrv:
        broker = await asyncio.to_thread(start, first, namesrv)
        try:
            messages = await pop_some(broker.address)
            await asyncio.to_thread(broker.stop)
            broker = await asyncio.to_thread(start, second, namesrv)
            found = await pop_the_rest(broker.address)
        finally:
            broker.kill()
    assert sorted((body, tried) for body, tried, _ in found) == [
        *((b"%d" % number, 1) for number in (1, 3, 5, 7)),
        (b"8", 0),
        (b"9", 0),
    ]
    for body, tried, popped_ms in found:
        if tried:
            assert popped_ms >= messages[int(body)].pop_time_ms + INVISIBLE_MS
