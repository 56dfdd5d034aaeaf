"""The embedded broker and the fixture that tests of users get (B1)."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from cometmq.model.errors import SettingsError
from cometmq.remoting.client import RemotingClient
from cometmq.remoting.loop import run
from cometmq.testing import EmbeddedBroker
from cometmq.wire.codes import RequestCode
from tests.integration.broker.broker_kit import send_header

pytest_plugins = ("pytester",)


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


def test_the_fixture_gives_every_test_a_broker_of_its_own(pytester: pytest.Pytester) -> None:
    """B1: nothing has to be configured."""
    pytester.makepyfile(
        """
        addresses = []

        def test_one(rocketmq):
            addresses.append(rocketmq.address)
            assert rocketmq.namesrv

        def test_two(rocketmq):
            assert rocketmq.address not in addresses
        """
    )
    result = pytester.runpytest_subprocess("-q")
    result.assert_outcomes(passed=2)
