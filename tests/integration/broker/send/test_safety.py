"""What a confirmed message survives, and what happens when the disk does not keep up (B4, B5, B7)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.broker.send.pressure import UNFLUSHED_SHARE
from cometmq.ports.system import physical_memory
from cometmq.remoting.client import RemotingClient
from cometmq.store.log.flush import Done
from cometmq.store.status import PutStatus, Trouble
from cometmq.testing.embedded import SMALL
from cometmq.wire.codes import RequestCode
from cometmq.wire.record.ids import decode_offset_id
from tests.integration.broker.broker_kit import ID, BrokerKit, running_broker, send_header
from tests.waiting import eventually

SYNC = {"flushDiskType": "SYNC_FLUSH"}


class Hold:
    """Keeps whoever waits for the disk waiting."""

    def __init__(self, kit: BrokerKit) -> None:
        self._safety = kit.broker.context.safety
        self._flusher = kit.broker.context.store.flusher
        self._patches = pytest.MonkeyPatch()
        self.waiting: list[Done] = []

    def __enter__(self) -> Hold:
        for waits, name in ((self._safety, "when_safe"), (self._flusher, "when_flushed")):
            self._patches.setattr(waits, name, lambda offset, done: self.waiting.append(done))
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.undo()
        self.release(PutStatus.PUT_OK)

    def release(self, status: PutStatus) -> None:
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done(status)


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for child in started:
        child.kill()
        child.communicate()


def start_broker(folder: Path, *settings: str) -> tuple[subprocess.Popen[bytes], str]:
    """A broker in a process of its own, and its address."""
    command = [
        sys.executable,
        "-m",
        "cometmq.cli.main",
        "broker",
        "--json",
        "--port",
        "0",
        "--bind",
        "127.0.0.1",
    ]
    command += ["--log-level", "warning"]
    for setting in (
        f"storePathRootDir={folder}",
        "brokerIP1=127.0.0.1",
        *(f"{key}={SMALL[key]}" for key in SMALL if key.startswith(("mapped", "max"))),
        *settings,
    ):
        command += ["--set", setting]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("COMETMQ_")}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    assert child.stdout is not None
    line = child.stdout.readline()
    assert line, child.communicate()[1].decode()
    return child, str(json.loads(line)["address"])


async def test_every_message_that_was_confirmed_survives_a_kill(
    tmp_path: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    """B4, B5: under load, with synchronous flush; nothing is there twice either."""
    child, address = start_broker(tmp_path, "flushDiskType=SYNC_FLUSH")
    children.append(child)
    client = RemotingClient()
    confirmed: list[tuple[str, str]] = []

    async def produce(worker: int) -> None:
        for number in range(10_000):
            body = b"%d-%d" % (worker, number)
            header = send_header("Orders", {"UNIQ_KEY": f"{worker:016X}{number:016X}"}, queue_id=worker % 4)
            answer = await client.call(address, RequestCode.SEND_MESSAGE_V2, header, body=body)
            if answer.code == 0:
                confirmed.append((answer.fields()["msgId"] or "", body.decode()))

    tasks = [asyncio.ensure_future(produce(worker)) for worker in range(8)]
    await eventually(lambda: len(confirmed) >= 400, "some messages are confirmed")
    child.send_signal(signal.SIGKILL)
    await asyncio.gather(*tasks, return_exceptions=True)
    await client.stop()
    child.wait()
    async with running_broker(settings={"storePathRootDir": str(tmp_path), **SYNC}) as kit:
        lookup = kit.broker.context.store.lookup
        for msg_id, _ in confirmed:
            assert lookup.at(decode_offset_id(msg_id).commit_log_offset) is not None
        bodies = [bytes(record.body).decode() for queue in range(4) for record in kit.stored("Orders", queue)]
        assert {body for _, body in confirmed} <= set(bodies)
        assert len(bodies) == len(set(bodies))
        assert kit.broker.context.topics.get("Orders") is not None


async def test_with_synchronous_flush_the_answer_waits_for_the_disk() -> None:
    """B5: unless the message says that it need not."""
    async with running_broker(settings=SYNC) as kit:
        await kit.send()
        store = kit.broker.context.store
        assert store.flusher.flushed_offset == store.log.max_offset
        with Hold(kit):
            waiting = asyncio.ensure_future(kit.send())
            assert (await kit.send(properties={"UNIQ_KEY": ID, "WAIT": "false"})).code == 0
            assert not waiting.done()
        assert (await waiting).code == 0


async def test_a_flush_that_takes_too_long_is_answered_with_its_own_code() -> None:
    """B5: the message is stored, and the answer says where."""
    async with running_broker(settings=SYNC) as kit:
        await kit.send()
        with Hold(kit) as hold:
            waiting = asyncio.ensure_future(kit.send())
            await eventually(lambda: bool(hold.waiting), "the message waits for the disk")
            hold.release(PutStatus.FLUSH_DISK_TIMEOUT)
            answer = await waiting
        assert (answer.code, answer.remark, answer.fields["queueOffset"]) == (10, None, "1")


async def test_as_many_messages_may_wait_for_the_disk_as_the_settings_say() -> None:
    """B7: more are refused as busy, and accepted again when there is room."""
    async with running_broker(settings={**SYNC, "sendThreadPoolQueueCapacity": "2"}) as kit:
        await kit.send()
        with Hold(kit) as hold:
            waiting = []
            for count in (1, 2):
                waiting.append(asyncio.ensure_future(kit.send()))
                await eventually(lambda count=count: len(hold.waiting) == count, "it waits for the disk")  # type: ignore[misc]
            answer = await kit.send()
            assert answer[:2] == (2, "[OVERLOAD]system busy, start flow control for a while")
            assert answer.fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        assert [(await each).code for each in waiting] == [0, 0]
        assert (await kit.send()).code == 0


async def test_what_is_not_on_the_disk_yet_takes_a_bounded_share_of_the_memory() -> None:
    """B7: beyond it sends are refused until the disk has caught up."""
    async with running_broker() as kit:
        await kit.send()
        pressure = kit.broker.context.sender.pressure
        assert pressure.max_unflushed_bytes == physical_memory() // UNFLUSHED_SHARE
        pressure.max_unflushed_bytes, pressure.limit_offset = 3000, 0
        with Hold(kit):
            answers = [await kit.send(body=b"x" * 1000) for _ in range(5)]
            assert [answer.code for answer in answers] == [0, 0, 0, 2, 2]
            assert answers[-1].remark == "[REJECTREQUEST]system busy, start flow control for a while"
        store = kit.broker.context.store
        await store.flusher.wait_flushed(store.log.max_offset)
        assert (await kit.send()).code == 0


async def test_a_store_that_cannot_be_written_refuses_messages_and_says_how_full_the_disk_is() -> None:
    """B5: reading goes on, and so does writing when there is room again."""
    async with running_broker() as kit:
        await kit.send()
        flags = kit.broker.context.store.flags
        flags.set(Trouble.DISK_FULL)
        answer = await kit.send()
        assert answer.code == 14
        assert (answer.remark or "").startswith("service not available now. It may be caused by one of")
        assert "CL: " in (answer.remark or "")
        assert "the disk of the log is too full (diskSpaceWarningLevelRatio); make room" in (
            answer.remark or ""
        )
        assert len(kit.stored("Orders")) == 1
        flags.set(Trouble.DISK_FULL, on=False)
        assert (await kit.send()).code == 0


async def test_an_orderly_stop_confirms_what_it_has_accepted(tmp_path: Path) -> None:
    """B5: sends that wait for the disk are answered before the ports are closed."""
    async with running_broker(tmp_path, SYNC) as kit:
        await kit.send()
        waiting = [asyncio.ensure_future(kit.send(body=b"%d" % number)) for number in range(50)]
        await eventually(lambda: kit.broker.context.traffic.put_messages > 1, "some are accepted")
        await kit.embedded.stop_broker()
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        confirmed = sum(1 for answer in answers if not isinstance(answer, BaseException) and answer.code == 0)
        await kit.embedded.start()
        assert confirmed >= 1
        assert len(kit.stored("Orders")) - 1 >= confirmed
