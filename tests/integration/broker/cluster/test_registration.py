"""A broker and its name servers: when it registers, what it tells, how it leaves (B1)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from cometmq.broker.broker import Broker
from cometmq.broker.config import BrokerConfig
from cometmq.cli.servers.broker import unregistered_text
from cometmq.model.errors import CometError, SettingsError, StoreError
from cometmq.model.topic import TopicConfig
from cometmq.namesrv.config import NamesrvConfig
from cometmq.namesrv.service import Namesrv
from cometmq.remoting.client import RemotingClient
from cometmq.store.config import StoreConfig
from cometmq.testing.embedded import EmbeddedBroker
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.namesrv import PutKVConfigRequest
from tests.integration.broker.broker_kit import running_broker
from tests.waiting import eventually


@asynccontextmanager
async def name_server(folder: Path, port: int = 0) -> AsyncIterator[Namesrv]:
    server = Namesrv(
        NamesrvConfig(
            bind_address="127.0.0.1",
            listen_port=port,
            kv_config_path=str(folder / "kv.json"),
            config_store_path=str(folder / "namesrv.properties"),
        )
    )
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def both(folder: Path, **settings: str) -> AsyncIterator[tuple[Namesrv, EmbeddedBroker]]:
    """A name server, and a broker that knows it."""
    async with name_server(folder) as server:
        address = f"127.0.0.1:{server.port}"
        async with EmbeddedBroker(namesrv=address, settings=settings) as embedded:
            yield server, embedded


def perm_of(server: Namesrv, topic: str) -> int | None:
    """The permission that a name server knows of a topic of the embedded broker."""
    found = server.state.tables.topics.get(topic)
    return None if found is None or "embedded" not in found else found["embedded"].perm


async def test_a_broker_registers_with_every_name_server_when_it_starts(tmp_path: Path) -> None:
    """B1: and leaves them all when it stops."""
    async with name_server(tmp_path / "1") as one, name_server(tmp_path / "2") as two:
        addresses = f"127.0.0.1:{one.port};127.0.0.1:{two.port}"
        async with EmbeddedBroker(namesrv=addresses) as embedded:
            for server in (one, two):
                assert server.state.tables.brokers["embedded"].broker_addrs == {0: embedded.address}
                assert perm_of(server, "TBW102") == 7
        for server in (one, two):
            assert "embedded" not in server.state.tables.brokers


async def test_a_name_server_that_is_down_holds_up_nobody_and_is_told_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B1."""
    monkeypatch.setattr("cometmq.broker.cluster.registration.RETRY_S", 0.05)
    async with name_server(tmp_path / "1") as one:
        async with name_server(tmp_path / "2") as two:
            free = two.port
        async with EmbeddedBroker(namesrv=f"127.0.0.1:{one.port};127.0.0.1:{free}"):
            assert perm_of(one, "TBW102") == 7
            async with name_server(tmp_path / "2", free) as two:
                await eventually(lambda: perm_of(two, "TBW102") == 7, "the second one knows the broker")


async def test_a_broker_that_is_to_disappear_first_is_not_told_of(tmp_path: Path) -> None:
    """B1: disappearTimeAfterStart, also not when a topic is made meanwhile, nor when it stops."""
    async with both(tmp_path, disappearTimeAfterStart="3600000") as (server, embedded):
        context = embedded.broker.context
        context.topics.update(TopicConfig("Orders", attributes={}))
        await context.registration.settled(5)
        assert context.registration.registered == frozenset()
        text = unregistered_text(embedded.broker)
        assert text is not None
        assert text.endswith(" s, because disappearTimeAfterStart says so")
    counts = server.server.metrics
    assert counts.of(RequestCode.REGISTER_BROKER).requests == 0
    assert counts.of(RequestCode.UNREGISTER_BROKER).requests == 0


async def test_a_broker_that_was_to_disappear_appears_by_itself(tmp_path: Path) -> None:
    """B1: with everything that came meanwhile."""
    async with both(tmp_path, disappearTimeAfterStart="500") as (server, embedded):
        embedded.broker.context.topics.update(TopicConfig("Orders", attributes={}))
        await eventually(lambda: perm_of(server, "Orders") == 6, "the name server knows it")
        assert unregistered_text(embedded.broker) is None


async def test_a_change_of_a_topic_is_known_at_once(tmp_path: Path) -> None:
    """B1: made, changed, or made by a producer."""
    async with (
        name_server(tmp_path) as server,
        EmbeddedBroker(namesrv=f"127.0.0.1:{server.port}") as embedded,
    ):
        await embedded.create_topic("Orders")
        assert perm_of(server, "Orders") == 6
        await embedded.create_topic("Orders", perm=4)
        assert perm_of(server, "Orders") == 4
        embedded.broker.context.topics.create_by_default("Auto", "TBW102", 4, "a producer")
        await eventually(lambda: perm_of(server, "Auto") == 6, "the new topic is known")


async def test_many_changes_share_few_registrations(tmp_path: Path) -> None:
    """B1: they are not told one by one."""
    async with (
        name_server(tmp_path) as server,
        EmbeddedBroker(namesrv=f"127.0.0.1:{server.port}") as embedded,
    ):
        before = server.server.metrics.of(RequestCode.REGISTER_BROKER).requests
        topics = embedded.broker.context.topics
        for number in range(1000):
            topics.update(TopicConfig(f"Topic{number}", attributes={}))
        await eventually(lambda: perm_of(server, "Topic999") == 6, "all are known")
        assert perm_of(server, "Topic0") == 6
        assert server.server.metrics.of(RequestCode.REGISTER_BROKER).requests - before <= 3


async def test_a_broker_that_need_not_insist_asks_first(tmp_path: Path) -> None:
    """B1: whether the name server knows everything already."""
    async with both(tmp_path, forceRegister="false") as (server, embedded):
        counts = server.server.metrics
        assert counts.of(RequestCode.REGISTER_BROKER).requests == 1
        embedded.broker.context.registration.register()
        await embedded.broker.context.registration.settled(5)
        assert counts.of(RequestCode.QUERY_DATA_VERSION).requests == 2
        assert counts.of(RequestCode.REGISTER_BROKER).requests == 1
        embedded.broker.context.topics.update(TopicConfig("Orders", attributes={}))
        await embedded.broker.context.registration.settled(5)
        assert perm_of(server, "Orders") == 6


@pytest.mark.parametrize(("period", "seconds"), [("1000", 10), ("30000", 30), ("20000", 20), ("600000", 60)])
def test_the_period_is_kept_within_reason(period: str, seconds: float) -> None:
    """B1: from 10 to 60 seconds."""
    assert BrokerConfig(register_name_server_period=int(period)).register_period_s == seconds


async def test_a_broker_registers_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B1: so that a name server that forgot it learns of it."""
    monkeypatch.setattr(BrokerConfig, "register_period_s", property(lambda _: 0.02))
    async with both(tmp_path) as (server, _):
        metrics = server.server.metrics.of(RequestCode.REGISTER_BROKER)
        await eventually(lambda: metrics.requests >= 4, "it registered several times")


async def test_name_servers_are_told_what_the_broker_allows(tmp_path: Path) -> None:
    """B1: a broker that does not write announces no topic as writable."""
    async with both(tmp_path, brokerPermission="4") as (server, embedded):
        await embedded.create_topic("Orders")
        assert perm_of(server, "Orders") == 4


async def test_the_broker_takes_over_which_topics_are_ordered(tmp_path: Path) -> None:
    """B1: from the table that a name server answers with."""
    async with (
        name_server(tmp_path) as server,
        EmbeddedBroker(namesrv=f"127.0.0.1:{server.port}") as embedded,
    ):
        await embedded.create_topic("Orders")
        client = RemotingClient()
        header = PutKVConfigRequest(namespace="ORDER_TOPIC_CONFIG", key="Orders", value="embedded:4")
        await client.call_ok(embedded.namesrv, RequestCode.PUT_KV_CONFIG, header)
        await client.stop()
        context = embedded.broker.context
        context.registration.register()
        await context.registration.settled(5)
        topic = context.topics.get("Orders")
        assert topic is not None
        assert topic.order


async def test_large_tables_can_be_told_in_parts(tmp_path: Path) -> None:
    """B1."""
    async with both(tmp_path, enableSplitRegistration="true", splitRegistrationSize="5") as (server, _):
        assert server.server.metrics.of(RequestCode.REGISTER_BROKER).requests == 3
        assert perm_of(server, "rmq_sys_wheel_timer") == 6


async def test_a_registration_can_be_compressed(tmp_path: Path) -> None:
    """B1: compressedRegister; the name server gets the same queues."""
    async with both(tmp_path, compressedRegister="true") as (server, embedded):
        plain = embedded.broker.context.topics.table
        known = {
            name: (queues.read_queue_nums, queues.write_queue_nums, queues.perm)
            for name, by_broker in server.state.tables.topics.items()
            for queues in by_broker.values()
        }
        assert known == {
            name: (topic.read_queue_nums, topic.write_queue_nums, topic.perm) for name, topic in plain.items()
        }


# Starting and stopping


async def test_a_broker_without_name_servers_runs() -> None:
    """B1: clients that know its address may use it."""
    async with EmbeddedBroker(settings={"namesrvAddr": ""}) as embedded:
        assert embedded.broker.context.settings.broker.namesrv_addresses == ()


async def test_ports_that_are_taken_are_named(tmp_path: Path) -> None:
    async with running_broker() as kit:
        config = BrokerConfig(bind_address="127.0.0.1", broker_ip1="127.0.0.1", listen_port=kit.broker.port)
        with pytest.raises(CometError, match="stop what uses them, or choose another listenPort"):
            Broker(config, StoreConfig(store_path_root_dir=str(tmp_path)))


async def test_a_store_that_is_in_use_is_not_opened_twice() -> None:
    """B4: a second process says so and ends."""
    async with running_broker() as kit:
        command = [sys.executable, "-m", "cometmq.cli.main", "broker", "--port", "0", "--bind", "127.0.0.1"]
        process = await asyncio.create_subprocess_exec(
            *command, "--set", f"storePathRootDir={kit.embedded.folder}", stderr=asyncio.subprocess.PIPE
        )
        _, said = await process.communicate()
        assert process.returncode == 1
        assert b"is held by another process: this store is in use" in said
        assert b"Traceback" not in said


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"brokerIP1": "no-such-host.invalid"}, "brokerIP1 = 'no-such-host.invalid' cannot be resolved"),
        ({"brokerIP1": "127.0.0.1:10911"}, "cannot be resolved: .*; write an address.*without a port"),
        ({"brokerIP1": ""}, "brokerIP1 is empty"),
        ({"brokerName": " "}, "brokerName is empty"),
        ({"brokerNaem": "x"}, "brokerNaem: a broker has no such setting; did you mean brokerName"),
    ],
)
async def test_settings_that_make_no_sense_are_refused(settings: dict[str, str], sentence: str) -> None:
    """B1: before anything is opened."""
    with pytest.raises(SettingsError, match=sentence):
        async with EmbeddedBroker(settings=settings):
            pass


async def test_tables_survive_a_restart(tmp_path: Path) -> None:
    """B4: topics, groups, offsets."""
    async with running_broker(tmp_path) as kit:
        context = kit.broker.context
        await kit.embedded.create_topic("Orders", queues=3)
        context.groups.find("billing")
        context.groups.forbid("billing", "Orders")
        context.offsets.commit("a client", "billing", "Orders", 1, 42)
        version = context.topics.data_version
        await kit.embedded.restart()
        context = kit.broker.context
        assert context.topics.data_version == version
        topic = context.topics.get("Orders")
        assert topic is not None
        assert topic.read_queue_nums == 3
        assert context.groups.get("billing") is not None
        assert context.groups.is_forbidden("billing", "Orders")
        assert context.offsets.query("billing", "Orders", 1) == 42


async def test_a_table_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    """B4: it is never taken for an empty one."""
    async with running_broker(tmp_path) as kit:
        await kit.embedded.create_topic("Orders")
        path = kit.embedded.folder / "config" / "topics.json"
    path.write_bytes(b"{")
    path.with_name("topics.json.bak").unlink(missing_ok=True)
    with pytest.raises(StoreError, match=r"topics\.json cannot be read"):
        async with EmbeddedBroker(tmp_path):
            pass
    path.write_bytes(msgspec.json.encode({"topicConfigTable": {}}))
    async with EmbeddedBroker(tmp_path) as embedded:
        assert embedded.broker.context.topics.get("TBW102") is not None
