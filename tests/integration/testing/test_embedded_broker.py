"""The embedded broker and the fixture that tests of users get (B1)."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from cometmq import Message
from cometmq.aio import Admin, Producer
from cometmq.model.errors import SettingsError, StoreError
from cometmq.remoting.client import RemotingClient
from cometmq.remoting.loop import run
from cometmq.testing import EmbeddedBroker
from cometmq.wire.codes import RequestCode
from tests.integration.broker.broker_kit import send_header
from tests.waiting import eventually


async def send(address: str, body: bytes = b"x") -> str | None:
    client = RemotingClient()
    header = send_header("Orders", None)
    answer = await client.call_ok(address, RequestCode.SEND_MESSAGE_V2, header, body=body)
    await client.stop()
    return answer.fields()["queueOffset"]


def test_it_is_ready_in_a_moment_and_gone_without_a_trace() -> None:
    """B1: in a thread of its own."""
    EmbeddedBroker  # noqa: B018 - imports the system, which is not what is measured
    threads = set(threading.enumerate())
    began = time.monotonic()
    with EmbeddedBroker() as rocketmq:
        took = time.monotonic() - began
        folder = rocketmq.folder
        assert run(send(rocketmq.address)) == "0"
        assert folder.is_dir()
    assert took < 5.0  # about 50 ms, on a machine that does nothing else
    assert not folder.exists()
    assert set(threading.enumerate()) <= threads


async def test_it_lives_on_the_loop_of_an_asynchronous_test() -> None:
    """B1: there is no other thread then."""
    async with EmbeddedBroker() as rocketmq:
        assert rocketmq.broker.context.store.flusher._loop is asyncio.get_running_loop()
        assert await send(rocketmq.address) == "0"


async def test_a_restart_keeps_ports_and_messages() -> None:
    """B4: so that clients find it again."""
    async with EmbeddedBroker() as rocketmq:
        before = rocketmq.address, rocketmq.namesrv
        await send(rocketmq.address)
        await rocketmq.restart()
        assert (rocketmq.address, rocketmq.namesrv) == before
        assert await send(rocketmq.address) == "1"


async def test_a_folder_of_the_test_stays(tmp_path: Path) -> None:
    """B4: with the messages in it."""
    async with EmbeddedBroker(tmp_path) as rocketmq:
        await send(rocketmq.address)
    async with EmbeddedBroker(tmp_path) as rocketmq:
        assert await send(rocketmq.address) == "1"


async def test_several_brokers_share_a_name_server() -> None:
    """B1."""
    async with (
        EmbeddedBroker(settings={"brokerName": "one"}) as one,
        EmbeddedBroker(settings={"brokerName": "two"}, namesrv=one.namesrv) as two,
    ):
        client = RemotingClient()
        answer = await client.call_ok(one.namesrv, RequestCode.GET_BROKER_CLUSTER_INFO)
        await client.stop()
        assert {b"one", b"two"} <= set(bytes(answer.body).replace(b'"', b" ").split())
        assert two.namesrv == one.namesrv


def test_it_says_when_it_is_not_running() -> None:
    """B1."""
    with pytest.raises(SettingsError, match="is not running"):
        _ = EmbeddedBroker().address


def test_a_start_that_fails_leaves_nothing_running() -> None:
    """B1."""
    threads = set(threading.enumerate())
    with pytest.raises(SettingsError), EmbeddedBroker(settings={"brokerRole": "SLAVE"}):
        pass
    assert set(threading.enumerate()) <= threads


async def test_several_brokers_are_started_and_stopped_together(tmp_path: Path) -> None:
    """B1: a topic is on all of them, and each can be stopped alone."""
    async with EmbeddedBroker(tmp_path, brokers=3) as rocketmq, Admin(namesrv=rocketmq.namesrv) as admin:
        await rocketmq.create_topic("Orders", queues=2)
        assert {queue.broker_name for queue in await admin.queues("Orders")} == {
            "embedded",
            "embedded-1",
            "embedded-2",
        }
        await send(rocketmq.brokers[2].address)
        await rocketmq.brokers[2].restart()
        assert await send(rocketmq.brokers[2].address) == "1"
        await rocketmq.restart()
        assert len({each.address for each in rocketmq.brokers}) == 3
    assert rocketmq.brokers == [rocketmq]
    with pytest.raises(SettingsError, match="at least one"):
        EmbeddedBroker(brokers=0)


def taken(folder: Path) -> tuple[int, int]:
    """The room on the disk that a folder takes, and the sizes of its files together, in MiB."""
    facts = [each.stat() for each in folder.rglob("*")]
    return sum(each.st_blocks * 512 for each in facts) >> 20, sum(each.st_size for each in facts) >> 20


async def test_a_test_takes_little_room(tmp_path: Path) -> None:
    """B1: the log takes its room at once; the wheel of timers is a file of holes."""
    async with EmbeddedBroker(tmp_path) as rocketmq, Producer("tests", namesrv=rocketmq.namesrv) as producer:
        later = int(time.time() * 1000) + 60_000
        await producer.send(Message("Orders", b"x", keys=["1"], deliver_at_ms=later))
        await producer.send(Message("Orders", b"x", keys=["1"]))
        blocks, sizes = taken(tmp_path)
    assert 16 <= blocks <= 20
    assert sizes <= 60


async def test_a_store_keeps_its_file_sizes(tmp_path: Path) -> None:
    """B4: whatever is usual for an embedded broker."""
    sizes = {
        "mappedFileSizeCommitLog": str(5 * 1024 * 1024),
        "mappedFileSizeConsumeQueue": "60000",
        "mappedFileSizeTimerLog": str(2 * 1024 * 1024),
        "maxHashSlotNum": "700",
        "maxIndexNum": "3000",
    }
    async with EmbeddedBroker(tmp_path, settings=sizes) as rocketmq:
        async with Producer("tests", namesrv=rocketmq.namesrv) as producer:
            later = int(time.time() * 1000) + 3_600_000
            await producer.send(Message("Orders", b"x", keys=["1"], deliver_at_ms=later))
            await producer.send(Message("Orders", b"x", keys=["1"]))
        await eventually(
            lambda: list((rocketmq.folder / "timerlog").glob("*")), "the timer is in its log", bool
        )
    async with EmbeddedBroker(tmp_path) as rocketmq:
        store = rocketmq.broker.context.settings.store
        assert store.mapped_file_size_commit_log == 5 * 1024 * 1024
        assert store.mapped_file_size_consume_queue == 60_000
        assert store.mapped_file_size_timer_log == 2 * 1024 * 1024
        assert (store.max_hash_slot_num, store.max_index_num) == (700, 3000)
        assert await send(rocketmq.address)
    with pytest.raises(StoreError, match="to what the store was made with"):
        async with EmbeddedBroker(tmp_path, settings={"mappedFileSizeCommitLog": "1048576"}):
            pass
