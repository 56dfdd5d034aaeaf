"""Popping over restarts and kills: nothing is lost, and nothing acknowledged comes back (B12, B4)."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.remoting.client import RemotingClient
from cometmq.store.status import PutStatus, Trouble
from cometmq.wire.codes import RequestCode
from cometmq.wire.header.schema import Header
from cometmq.wire.json import fastjson
from tests.answers import Told, now_ms, told
from tests.integration.broker.broker_kit import BrokerKit, running_broker, send_header
from tests.integration.broker.message_types_kit import kill
from tests.integration.broker.pop.pop_kit import (
    GROUP,
    LONG_MS,
    QUICK,
    SAFE,
    TOPIC,
    Consumer,
    PoppedMessage,
    filled,
    stays_empty,
)
from tests.integration.broker.send.test_safety import Hold, start_broker
from tests.waiting import eventually

BODIES = [b"%02d" % number for number in range(40)]
REVIVE_LOG = "rmq_sys_REVIVE_LOG"
RETRY_TOPIC = f"%RETRY%{GROUP}_{TOPIC}"


async def test_a_restart_forgets_neither_pops_nor_acknowledgements(tmp_path: Path) -> None:
    """B12: what is out stays out until its time is over, and comes back then."""
    async with running_broker(tmp_path, QUICK) as kit:
        await filled(kit, BODIES[:4])
        consumer = Consumer(kit)
        first, second, third = (await consumer.pop(3, invisible_ms=1500)).messages
        await consumer.ack_all([first, third])
    async with running_broker(tmp_path, QUICK) as kit:
        consumer = Consumer(kit)
        popped = await consumer.pop()
        if popped.bodies != [BODIES[3], second.body]:  # a slow start: its time is over already
            assert popped.bodies == BODIES[3:4]
            again = await consumer.pop_until(second.body)
            assert again.pop_time_ms >= second.pop_time_ms + 1500
        await stays_empty(consumer, second.pop_time_ms + 2500)


async def test_a_kill_does_not_hand_out_again_what_is_out_or_done(tmp_path: Path) -> None:
    """B12: the offsets that were saved are older than that."""
    async with running_broker(tmp_path / "a", SAFE) as kit:
        await filled(kit, BODIES)
        consumer = Consumer(kit)
        messages = (await consumer.pop(10, invisible_ms=1600)).messages
        await consumer.ack_all(messages[:5])
        quick = (await consumer.pop(2, invisible_ms=400)).messages
        await consumer.ack_all(quick)
        saved = fastjson.loads((tmp_path / "a/store/config/consumerOffset.json").read_bytes())
        assert f"{TOPIC}@{GROUP}" not in saved["offsetTable"]
        copy = kill(kit, tmp_path / "b")
    async with running_broker(copy, SAFE) as kit:
        consumer = Consumer(kit)
        found: list[bytes] = []
        async with asyncio.timeout(10):
            while len(found) < 33:
                found += (await consumer.pop(poll_ms=500)).bodies
        assert sorted(found) == sorted(BODIES[5:10] + BODIES[12:])
        await stays_empty(consumer, messages[0].pop_time_ms + 2600)


async def test_an_acknowledgement_that_the_timers_had_not_taken_yet_counts_after_a_kill(
    tmp_path: Path,
) -> None:
    """B12, B4: both are overdue when the broker comes back, and keep their order."""
    async with running_broker(tmp_path / "a", SAFE) as kit:
        await filled(kit, [b"one"])
        consumer = Consumer(kit)
        (one,) = (await consumer.pop(1, invisible_ms=2500)).messages
        timers = kit.broker.context.timers
        await eventually(lambda: timers.enqueuer.taken == 1, "the check point is in the wheel")
        assert timers._task is not None
        timers._task.cancel()
        assert (await consumer.ack(one)).code == 0
        copy = kill(kit, tmp_path / "b")
    await eventually(lambda: now_ms() > one.pop_time_ms + 3000, "both are overdue")
    async with running_broker(copy, SAFE) as kit:
        revived = f"{REVIVE_LOG}_DefaultCluster"
        await eventually(
            lambda: sum(len(kit.stored(revived, queue)) for queue in range(8)) == 2, "both are delivered"
        )
        tags = [each.properties()["TAGS"] for queue in range(8) for each in kit.stored(revived, queue)]
        assert tags == ["ck", "ack"]
        await stays_empty(Consumer(kit), now_ms() + 3000)


async def test_a_kill_does_not_bring_a_message_back_twice(tmp_path: Path) -> None:
    """B12: it came back, was popped again and acknowledged before the broker was killed."""
    async with running_broker(tmp_path / "a", SAFE) as kit:
        await filled(kit, BODIES[:3])
        consumer = Consumer(kit)
        await consumer.pop(invisible_ms=1200)
        await eventually(lambda: len(kit.stored(RETRY_TOPIC)) == 3, "all are back")
        messages = (await consumer.pop()).messages
        await consumer.ack_all(messages)
        copy = kill(kit, tmp_path / "b")
    async with running_broker(copy, SAFE) as kit:
        consumer = Consumer(kit)
        timers = kit.broker.context.timers
        await eventually(lambda: not timers.enqueuer.lag, "the timers are set")
        await stays_empty(consumer, now_ms() + 1500)
        assert len(kit.stored(RETRY_TOPIC)) == 3


async def test_a_changed_time_survives_a_kill(tmp_path: Path) -> None:
    """B12: the old one does not count, the new one does."""
    async with running_broker(tmp_path / "a", SAFE) as kit:
        await filled(kit, BODIES[:2])
        consumer = Consumer(kit)
        first, second = (await consumer.pop(invisible_ms=1200)).messages
        await consumer.change_time(first, LONG_MS)
        await consumer.change_time(second, 2000)
        copy = kill(kit, tmp_path / "b")
    async with running_broker(copy, SAFE) as kit:
        consumer = Consumer(kit)
        again = await consumer.pop_until(second.body)
        assert again.pop_time_ms >= second.pop_time_ms + 2000
        assert (await consumer.pop()).told.code == 210


async def test_a_group_that_was_sent_back_stays_there_over_a_kill(tmp_path: Path) -> None:
    """B12, B9: what it popped before does not count any more."""
    async with running_broker(tmp_path / "a", SAFE) as kit:
        await filled(kit, BODIES)
        consumer = Consumer(kit)
        await consumer.ack_all((await consumer.pop()).messages)
        kit.broker.context.offsets.assign_reset(TOPIC, GROUP, 0, 4)
        await consumer.ack_all((await consumer.pop(2)).messages)
        copy = kill(kit, tmp_path / "b")
    async with running_broker(copy, SAFE) as kit:
        assert (await Consumer(kit).pop(2)).bodies == BODIES[6:8]


async def test_apaches_offsets_count_as_they_are(tmp_path: Path) -> None:
    """B12: a file without our mark was saved by Apache's broker, after whatever our log says."""
    async with running_broker(tmp_path, QUICK) as kit:
        await filled(kit, BODIES)
        await Consumer(kit).pop(20)
    path = tmp_path / "store/config/consumerOffset.json"
    table = fastjson.loads(path.read_bytes())
    assert table.pop("poppedUpTo") == {
        "rmq_sys_wheel_timer": {0: 1},
        "rmq_sys_REVIVE_LOG_DefaultCluster": dict.fromkeys(range(8), 0),
    }
    table["offsetTable"][f"{TOPIC}@{GROUP}"] = {"0": 3}
    path.write_bytes(fastjson.dumps(table))
    async with running_broker(tmp_path, QUICK) as kit:
        assert (await Consumer(kit).pop(2)).bodies == BODIES[3:5]


async def test_answers_wait_for_the_disk(tmp_path: Path) -> None:
    """B12, B5: a message is handed out when its checkpoint is safe, and done when that is."""
    async with running_broker(settings=SAFE) as kit:
        await filled(kit, BODIES[:2])
        consumer = Consumer(kit)
        with Hold(kit) as hold:
            popping = asyncio.ensure_future(consumer.pop())
            await eventually(lambda: bool(hold.waiting), "the pop waits for the disk")
            assert not popping.done()
            hold.release(PutStatus.PUT_OK)
            messages = (await popping).messages
            acknowledging = asyncio.ensure_future(consumer.ack(messages[0]))
            await eventually(lambda: bool(hold.waiting), "the acknowledgement waits for the disk")
            assert not acknowledging.done()
            hold.release(PutStatus.PUT_OK)
            assert (await acknowledging).code == 0


async def test_a_broker_that_cannot_write_hands_out_nothing_and_says_so_to_acknowledgements() -> None:
    """B12: and goes on as soon as it can."""
    async with running_broker(settings=QUICK) as kit:
        await filled(kit, BODIES)
        consumer = Consumer(kit)
        messages = (await consumer.pop(2)).messages
        flags = kit.broker.context.store.flags
        flags.set(Trouble.DISK_FULL)
        popped = await consumer.pop()
        assert (popped.told.code, popped.rest) == (210, 38)
        for answer in (
            await consumer.ack(messages[0]),
            await consumer.ack_batch(messages),
            await consumer.try_to_change_time(messages[0], 1000),
        ):
            assert (answer.code, answer.remark) == (
                1,
                "the broker could not write this down: SERVICE_NOT_AVAILABLE; try again",
            )
        flags.set(Trouble.DISK_FULL, on=False)
        assert (await consumer.pop(3)).bodies == BODIES[2:5]
        assert (await consumer.ack(messages[0])).code == 0


# A real kill


class Remote(BrokerKit):
    """A broker in a process of its own."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.client = RemotingClient()

    async def call(self, code: int, header: Header | None = None, body: bytes = b"") -> Told:
        return told(await self.client.call(self.address, code, header, body=body))


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for child in started:
        child.kill()
        child.communicate()


async def test_a_kill_under_load_loses_nothing_and_repeats_nothing_acknowledged(
    tmp_path: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    """B12: whatever the broker has answered holds."""
    settings = (*(f"{key}={value}" for key, value in SAFE.items()), "brokerName=embedded")
    sent: list[bytes] = []
    begun: list[bytes] = []
    acknowledged: list[bytes] = []
    child, address = await asyncio.to_thread(start_broker, tmp_path, *settings)
    children.append(child)
    remote = Remote(address)

    async def produce() -> None:
        while True:
            body = b"%05d" % len(sent)
            sent.append(body)  # what is sent and not answered may be there
            await remote.call(RequestCode.SEND_MESSAGE_V2, send_header(TOPIC, None), body)

    async def consume(consumer: Consumer) -> None:
        while True:
            messages = (await consumer.pop(8, invisible_ms=2500, poll_ms=500)).messages
            for message in messages:
                if int(message.body) % 2:
                    begun.append(message.body)  # what is acknowledged and not answered may be done
                    if (await consumer.ack(message)).code == 0:
                        acknowledged.append(message.body)

    await remote.call(RequestCode.SEND_MESSAGE_V2, send_header(TOPIC, None), b"-1")
    work = [
        asyncio.ensure_future(each) for each in (produce(), *(consume(Consumer(remote)) for _ in range(3)))
    ]
    await eventually(lambda: len(acknowledged) > 150, "there is some load")
    child.send_signal(signal.SIGKILL)
    await asyncio.to_thread(child.communicate)
    for task in work:
        task.cancel()
    await asyncio.gather(*work, return_exceptions=True)
    await remote.client.stop()

    child, address = await asyncio.to_thread(start_broker, tmp_path, *settings)
    children.append(child)
    remote = Remote(address)
    consumer = Consumer(remote)
    killed_ms, found = now_ms(), dict[bytes, PoppedMessage]()
    while now_ms() < killed_ms + 6000:
        for message in (await consumer.pop(poll_ms=500)).messages:
            assert message.body not in found
            found[message.body] = message
    await remote.client.stop()
    child.terminate()
    await asyncio.to_thread(child.communicate)
    assert not found.keys() & set(acknowledged)
    assert set(sent[:-1]) - found.keys() - set(begun) == set()
