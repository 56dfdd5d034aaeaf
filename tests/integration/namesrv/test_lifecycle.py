"""A name server starts, serves beside others, and stops in order (N1, N2)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from cometmq.model.errors import CometError, ConnectError, RemotingError, SettingsError
from cometmq.namesrv.config import NamesrvSettings
from cometmq.namesrv.service import Namesrv
from cometmq.ports.files import SystemFiles
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import encode_command
from cometmq.wire.headers.namesrv import GetKVConfigRequest, PutKVConfigRequest
from tests.integration.namesrv.namesrv_kit import (
    A1,
    A2,
    NAME,
    OK,
    Visit,
    config_in,
    plain_connection,
    running_namesrv,
)
from tests.waiting import eventually


async def test_several_name_servers_know_nothing_of_each_other(tmp_path: Path) -> None:
    """N1: each has what was registered with it; one that stops takes nobody with it."""
    async with running_namesrv(tmp_path / "one") as one, running_namesrv(tmp_path / "two") as two:
        both = [visit.broker(A1) for visit in (one, two)]
        assert [await broker.register() for broker in both] == [OK, OK]
        await one.broker(A2, name="broker-b", topics=["T8", "T9"]).register()
        put = PutKVConfigRequest(namespace="NS", key="k", value="v")
        await one.ask(RequestCode.PUT_KV_CONFIG, put)

        assert await one.addresses("T1") == await two.addresses("T1") == {NAME: {"0": A1}}
        assert (await one.route("T8")).code == 0
        assert (await two.route("T8")).code == 17
        get = GetKVConfigRequest(namespace="NS", key="k")
        assert (await two.ask(RequestCode.GET_KV_CONFIG, get)).code == 22
        await one.server.stop()
        assert await two.addresses("T1") == {NAME: {"0": A1}}


async def test_a_restarted_name_server_learns_its_routes_from_the_brokers(tmp_path: Path) -> None:
    """N1: it remembers none, and each broker's next registration brings them back."""
    async with running_namesrv(tmp_path) as first:
        await first.broker().register()
        port = first.server.port
    async with running_namesrv(tmp_path, listen_port=port) as second:
        assert (await second.route("T1")).code == 17
        await second.broker().register()
        assert (await second.route("T1")).code == 0


async def test_a_port_in_use_is_a_clear_error(tmp_path: Path) -> None:
    """N2: with what to do about it."""
    async with running_namesrv(tmp_path / "one") as one:
        port = one.server.port
        reason = f"cannot listen on 127.0.0.1:{port}: .* choose another listenPort"
        with pytest.raises(CometError, match=reason):
            async with running_namesrv(tmp_path / "two", listen_port=port):
                pass


@pytest.mark.parametrize("missing", ["kv_config_path", "config_store_path"])
def test_a_name_server_needs_a_place_for_what_it_keeps(tmp_path: Path, missing: str) -> None:
    """N2: an empty path is named, not guessed."""
    with pytest.raises(SettingsError, match="is empty; name the file"):
        Namesrv(replace(config_in(tmp_path), **{missing: ""}))


async def test_a_broken_key_value_file_stops_the_build(tmp_path: Path) -> None:
    """N2, N8: the second step fails before a port is taken."""
    (tmp_path / "kvConfig.json").write_text("{broken")
    with pytest.raises(CometError, match="repair it, or restore its"):
        async with running_namesrv(tmp_path):
            pass


@pytest.mark.parametrize(("high", "low"), [(1_000, 0), (0, 10_000_000), (500, 1_000)])
async def test_one_water_mark_alone_is_enough(tmp_path: Path, high: int, low: int) -> None:
    """N2: a low mark above the high one does not keep clients out."""
    async with running_namesrv(
        tmp_path, write_buffer_high_water_mark=high, write_buffer_low_water_mark=low
    ) as namesrv:
        assert (await namesrv.route("T1")).code == 17


async def test_connections_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    """N2: maxConnections."""
    async with running_namesrv(tmp_path, settings=NamesrvSettings(max_connections=1)) as namesrv:
        assert (await namesrv.route("T1")).code == 17
        async with plain_connection(namesrv.address) as second:
            assert await second.ended()
        assert (await namesrv.route("T1")).code == 17


async def test_a_stop_closes_everything_and_takes_no_broker_out(tmp_path: Path) -> None:
    """N2: the brokers have not left because the name server stops."""
    async with running_namesrv(tmp_path) as namesrv:
        broker = namesrv.broker()
        await broker.register()
        async with plain_connection(namesrv.address) as wire:
            await wire.ask(106)
            await namesrv.server.stop()
            assert await wire.ended()
        await eventually(lambda: not broker.client.connections, "the broker's connection is closed")
        assert namesrv.server.state.tables.brokers[NAME].broker_addrs == {0: A1}
        with pytest.raises(ConnectError):
            await namesrv.route("T1")


class HeldFiles(SystemFiles):
    """Holds every write until it is let go."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.began = asyncio.Event()
        self.go_on = asyncio.Event()
        self._loop = loop

    def replace(self, path: Path, data: bytes) -> None:
        self._loop.call_soon_threadsafe(self.began.set)
        asyncio.run_coroutine_threadsafe(self.go_on.wait(), self._loop).result(timeout=10)
        super().replace(path, data)


async def test_a_stop_answers_what_was_accepted(tmp_path: Path) -> None:
    """N2: a change that is being written is finished and answered."""
    files = HeldFiles(asyncio.get_running_loop())
    async with running_namesrv(tmp_path, files=files) as namesrv:
        put = PutKVConfigRequest(namespace="NS", key="k", value="v")
        asked = asyncio.create_task(namesrv.ask(RequestCode.PUT_KV_CONFIG, put))
        await files.began.wait()
        stopping = asyncio.create_task(namesrv.server.stop())
        files.go_on.set()
        assert await asked == OK
        await stopping
    assert b'"k":"v"' in (tmp_path / "kvConfig.json").read_bytes()


async def test_stopping_twice_or_before_the_start_is_no_error(tmp_path: Path) -> None:
    """N2: whatever step the start had reached."""
    server = Namesrv(config_in(tmp_path))
    await server.stop()
    await server.stop()


async def stopping_gracefully(namesrv: Visit) -> asyncio.Task[None]:
    stopping = asyncio.create_task(namesrv.server.stop())
    await eventually(lambda: namesrv.server.server.going_away, "the stop has begun")
    return stopping


async def test_clients_are_sent_away_before_a_graceful_stop(tmp_path: Path) -> None:
    """N2: enableShutdownGracefully: who understands it goes, who does not is served to the end."""
    async with running_namesrv(tmp_path, enable_shutdown_gracefully=True) as namesrv:
        async with plain_connection(namesrv.address) as new, plain_connection(namesrv.address) as old:
            await new.ask(106)
            await old.ask(106)
            stopping = await stopping_gracefully(namesrv)
            answer = await new.send(encode_command(106, 7, 0, version=479))
            assert (answer.code, answer.remark) == (1500, "please go away")
            assert (await old.send(encode_command(106, 7, 0, version=400))).code == 0
            assert not stopping.done(), "it waits until they have gone"
        await asyncio.wait_for(stopping, 5)


async def test_a_graceful_stop_does_not_wait_longer_than_configured(tmp_path: Path) -> None:
    """N2: shutdownWaitTimeSeconds."""
    async with (
        running_namesrv(tmp_path, enable_shutdown_gracefully=True, shutdown_wait_time_seconds=1) as namesrv,
        plain_connection(namesrv.address) as stubborn,
    ):
        await stubborn.ask(106)
        stopping = await stopping_gracefully(namesrv)
        assert await stubborn.ended()
        await asyncio.wait_for(stopping, 5)


async def test_our_client_goes_to_another_server_when_it_is_sent_away(tmp_path: Path) -> None:
    """N1, N2: the error says that another try elsewhere makes sense."""
    async with running_namesrv(tmp_path, enable_shutdown_gracefully=True) as namesrv:
        broker = namesrv.broker()
        await broker.register()
        stopping = await stopping_gracefully(namesrv)
        with pytest.raises(RemotingError) as caught:
            await broker.register()
        assert caught.value.retriable
        await broker.vanish()
        await asyncio.wait_for(stopping, 5)
