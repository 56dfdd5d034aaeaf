"""How name servers and clients hear of a broker: heartbeats, single topics, host names, TLS, and what a start
says when nobody can be told (B1, N4, R5)."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cometmq import aio
from cometmq.broker.cluster.addresses import announced, resolve_host
from cometmq.model.errors import SettingsError
from cometmq.model.message import Message
from cometmq.model.topic import TopicConfig
from cometmq.namesrv.config import NamesrvConfig, NamesrvSettings
from cometmq.namesrv.service import Namesrv
from cometmq.namesrv.tables import BrokerLeft
from cometmq.testing.embedded import EmbeddedBroker
from cometmq.wire.codes import RequestCode
from tests.integration.cli.test_broker_cli import FREE, Start, start  # noqa: F401 - a fixture
from tests.integration.remoting.certificates import Authority
from tests.integration.remoting.status_kit import PROMETHEUS, ask
from tests.waiting import eventually

ACTING = {
    "enableSlaveActingMaster": "true",
    "brokerHeartbeatInterval": "20",
    "brokerNotActiveTimeoutMillis": "400",
}


@asynccontextmanager
async def name_server(
    folder: Path, settings: NamesrvSettings | None = None, **config: Any
) -> AsyncIterator[Namesrv]:
    server = Namesrv(
        NamesrvConfig(
            **{
                "bind_address": "127.0.0.1",
                "listen_port": 0,
                "kv_config_path": str(folder / "kv.json"),
                "config_store_path": str(folder / "namesrv.properties"),
                "scan_not_active_broker_interval": 20,
                **config,
            }
        ),
        settings,
    )
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def broker_of(server: Namesrv, settings: Mapping[str, str]) -> AsyncIterator[EmbeddedBroker]:
    async with EmbeddedBroker(namesrv=f"127.0.0.1:{server.port}", settings=settings) as embedded:
        yield embedded


def counted(server: Namesrv, code: RequestCode) -> int:
    return server.server.metrics.of(code).requests


# Heartbeats


@pytest.mark.parametrize(
    ("compatible", "code"),
    [("true", RequestCode.QUERY_DATA_VERSION), ("false", RequestCode.BROKER_HEARTBEAT)],
)
async def test_heartbeats_keep_a_broker_in_the_routes(
    tmp_path: Path, compatible: str, code: RequestCode
) -> None:
    """B1, N5: with enableSlaveActingMaster its silence is endured for less than a registration takes."""
    settings = {**ACTING, "compatibleWithOldNameSrv": compatible}
    async with name_server(tmp_path) as server, broker_of(server, settings):
        tables = server.state.tables
        (live,) = tables.live.values()
        assert live.timeout_ms == 400
        began_ms = server.state.clock.monotonic_ms()
        await eventually(
            lambda: server.state.clock.monotonic_ms() - began_ms > 3 * live.timeout_ms, "three time-outs"
        )
        assert counted(server, code) > 10
        assert counted(server, RequestCode.REGISTER_BROKER) == 1, "it never left, so it never came back"
        assert "embedded" in tables.brokers


async def test_a_name_server_that_forgot_the_broker_is_told_everything_at_the_next_heartbeat(
    tmp_path: Path,
) -> None:
    """B1: not after half a minute."""
    async with name_server(tmp_path) as server, broker_of(server, ACTING) as embedded:
        left = BrokerLeft("DefaultCluster", "embedded", embedded.address, 0)
        server.state.remove([left], "a test")
        assert "embedded" not in server.state.tables.brokers
        await eventually(lambda: "TBW102" in server.state.tables.topics, "it is there again")


async def test_heartbeats_follow_the_settings(tmp_path: Path) -> None:
    """B1: name servers learn what they have to expect before it begins or ends."""
    async with (
        name_server(tmp_path) as server,
        broker_of(server, {**ACTING, "enableSlaveActingMaster": "false"}) as embedded,
    ):
        context = embedded.broker.context
        live = server.state.tables.live
        key = ("DefaultCluster", embedded.address)
        assert live[key].timeout_ms == 120_000
        context.settings.change(
            replace(context.settings.broker, enable_slave_acting_master=True), context.settings.store
        )
        await eventually(lambda: live[key].timeout_ms == 400, "it is told")
        await eventually(lambda: counted(server, RequestCode.QUERY_DATA_VERSION) > 5, "heartbeats come")
        context.settings.change(
            replace(context.settings.broker, enable_slave_acting_master=False), context.settings.store
        )
        await eventually(lambda: live[key].timeout_ms == 120_000, "it is told again")


async def test_heartbeats_that_would_come_too_late_are_refused() -> None:
    """B1."""
    with pytest.raises(SettingsError, match="brokerHeartbeatInterval = 500 is not below"):
        async with EmbeddedBroker(settings={**ACTING, "brokerHeartbeatInterval": "500"}):
            pass


async def test_without_the_setting_there_are_no_heartbeats(tmp_path: Path) -> None:
    """B1: as with Apache's broker; registrations say enough."""
    async with name_server(tmp_path) as server, broker_of(server, {"brokerHeartbeatInterval": "1"}) as broker:
        for number in range(5):
            await broker.create_topic(f"Topic{number}")
        assert counted(server, RequestCode.QUERY_DATA_VERSION) == 0
        assert counted(server, RequestCode.BROKER_HEARTBEAT) == 0


# Name servers that delete what a registration leaves out


@pytest.mark.parametrize(
    "settings",
    [
        {"enableSingleTopicRegister": "true"},
        {"enableSingleTopicRegister": "false"},
        {"enableSplitRegistration": "true", "splitRegistrationSize": "4"},
    ],
)
async def test_a_new_topic_takes_no_other_topic_out_of_the_routes(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    """B1, N4: deleteTopicWithBrokerRegistration deletes what a broker has no more, and nothing else."""
    async with (
        name_server(tmp_path, delete_topic_with_broker_registration=True) as server,
        broker_of(server, settings) as embedded,
    ):
        topics = server.state.tables.topics
        before = set(topics)
        assert len(before) > 10
        registrations = counted(server, RequestCode.REGISTER_BROKER)
        await embedded.create_topic("Orders", queues=3)
        await embedded.create_topic("Bills", queues=2)
        assert set(topics) == {*before, "Orders", "Bills"}
        assert topics["Orders"]["embedded"].write_queue_nums == 3
        if settings.get("enableSingleTopicRegister") == "true":
            assert counted(server, RequestCode.REGISTER_TOPIC_IN_NAMESRV) == 2
            assert counted(server, RequestCode.REGISTER_BROKER) == registrations
        context = embedded.broker.context
        for _ in range(2):
            context.registration.register()
            await context.registration.settled(5)
            assert set(topics) == {*before, "Orders", "Bills"}
        context.topics.delete("Orders")
        for _ in range(2):
            await context.registration.settled(5)
            context.registration.register()
        await eventually(lambda: set(topics) == {*before, "Bills"}, "what was deleted goes")


async def test_many_single_topics_are_told_together(tmp_path: Path) -> None:
    """B1: a thousand topics are not a thousand requests."""
    async with (
        name_server(tmp_path) as server,
        broker_of(server, {"enableSingleTopicRegister": "true", "brokerPermission": "4"}) as embedded,
    ):
        topics = embedded.broker.context.topics
        topics.update(TopicConfig("Single", attributes={}))
        topics.update_all(TopicConfig(f"Topic{number}", attributes={}) for number in range(1000))
        found = server.state.tables.topics
        await eventually(lambda: "Topic999" in found and "Single" in found, "all are known")
        assert counted(server, RequestCode.REGISTER_TOPIC_IN_NAMESRV) <= 50
        await embedded.create_topic("Alone")
        assert found["Alone"]["embedded"].perm == 4, "what the broker allows"


# Host names


async def test_a_host_name_is_announced_as_it_is_written_and_clients_go_there(tmp_path: Path) -> None:
    """B1: the messages carry the address behind it, so that an offset id leads to the broker."""
    async with name_server(tmp_path) as server:
        names = {"brokerIP1": "localhost", "brokerIP2": "localhost"}
        namesrv = f"localhost:{server.port}"
        async with EmbeddedBroker(namesrv=namesrv, settings=names) as embedded:
            port = embedded.broker.port
            assert server.state.tables.brokers["embedded"].broker_addrs == {0: f"localhost:{port}"}
            (live,) = server.state.tables.live.values()
            assert live.ha_server_addr == f"localhost:{port + 1}"
            async with aio.Producer("shop", namesrv=namesrv) as producer:
                receipt = await producer.send(Message("Orders", b"hello"))
            assert receipt.offset_msg_id.startswith(f"7F000001{port:08X}")
            async with aio.Admin(namesrv=namesrv) as admin:
                found = await admin.view_message(receipt.offset_msg_id)
            assert found.body == b"hello"


@pytest.mark.parametrize(
    ("written", "address", "ip"),
    [
        ("10.0.0.1", "10.0.0.1:10911", "10.0.0.1"),
        ("localhost", "localhost:10911", "127.0.0.1"),
        ("::1", "[::1]:10911", "::1"),
        ("[::1]", "[::1]:10911", "::1"),
        (" 2001:DB8::5 ", "[2001:DB8::5]:10911", "2001:db8::5"),
    ],
)
def test_what_is_announced_and_what_messages_carry(written: str, address: str, ip: str) -> None:
    """B1: Go's clients take an IPv6 address in brackets only, and Java's take it so, too."""
    assert announced(written, 10_911) == address
    assert resolve_host("brokerIP1", written) == ip


async def test_an_ipv6_address_is_announced_in_brackets(tmp_path: Path) -> None:
    """B1: also where replicas are told to go."""
    async with (
        name_server(tmp_path) as server,
        broker_of(server, {"brokerIP1": "::1", "brokerIP2": "::1"}) as embedded,
    ):
        port = embedded.broker.port
        assert server.state.tables.brokers["embedded"].broker_addrs == {0: f"[::1]:{port}"}
        (live,) = server.state.tables.live.values()
        assert live.ha_server_addr == f"[::1]:{port + 1}"


# TLS


@pytest.mark.parametrize("switch", [{"useTLS": "true"}, {"tls.enable": "true"}])
async def test_a_broker_registers_with_a_name_server_that_takes_tls_only(
    tmp_path: Path, switch: dict[str, str]
) -> None:
    """B1, R5: useTLS, or tls.enable, and the certificates of tls.client.*."""
    servers, clients = Authority(tmp_path, "servers"), Authority(tmp_path, "clients")
    cert, key = servers.issue("server")
    client_cert, client_key = clients.issue("client", password="secret")
    enforcing = NamesrvSettings(
        tls_server_mode="enforcing",
        tls_server_cert_path=cert,
        tls_server_key_path=key,
        tls_server_trust_cert_path=clients.trust_path,
        tls_server_need_client_auth="require",
    )
    settings = {
        **switch,
        "tls.client.trustCertPath": servers.trust_path,
        "tls.client.authServer": "true",
        "tls.client.certPath": client_cert,
        "tls.client.keyPath": client_key,
        "tls.client.keyPassword": "secret",
    }
    async with name_server(tmp_path, enforcing) as server, broker_of(server, settings) as embedded:
        assert "embedded" in server.state.tables.brokers
        assert embedded.broker.context.registration.registered
        await embedded.create_topic("Orders")
        assert "Orders" in server.state.tables.topics


async def test_a_name_server_that_is_not_trusted_is_told_nothing(tmp_path: Path) -> None:
    """R5: the reason is in the broker's own words."""
    enforcing = NamesrvSettings(tls_server_mode="enforcing")  # with a certificate that it made itself
    trusted = Authority(tmp_path, "others").trust_path
    settings = {"useTLS": "true", "tls.client.trustCertPath": trusted}
    async with name_server(tmp_path, enforcing) as server, broker_of(server, settings) as embedded:
        registration = embedded.broker.context.registration
        assert not registration.registered
        (reason,) = registration.failures.values()
        assert "certificate" in reason.lower()
        assert not server.state.tables.brokers


def test_certificates_that_cannot_be_loaded_stop_the_start(tmp_path: Path) -> None:
    """R5: as they do for the port."""
    settings = {"useTLS": "true", "tls.client.trustCertPath": str(tmp_path / "nowhere.pem")}
    with pytest.raises(SettingsError, match=r"nowhere\.pem"), EmbeddedBroker(settings=settings):
        pass


async def test_a_plain_broker_learns_that_the_name_server_may_want_tls(tmp_path: Path) -> None:
    """B1: and registers by itself when the name server takes plain connections again."""
    async with name_server(tmp_path, NamesrvSettings(tls_server_mode="enforcing")) as server:
        port = server.port
        async with broker_of(server, {}) as embedded:
            registration = embedded.broker.context.registration
            assert not registration.registered
            assert "if that name server takes TLS only, set useTLS = true" in "".join(
                registration.failures.values()
            )
            await server.stop()
            async with name_server(tmp_path, listen_port=port) as plain:
                registration.register()
                await registration.settled(5)
                assert registration.registered == {f"127.0.0.1:{port}"}
                assert registration.failures == {}
                assert "embedded" in plain.state.tables.brokers


def test_client_certificates_of_the_system_are_used_when_servers_are_to_be_verified() -> None:
    """R5: tls.client.authServer without certificates of one's own."""
    from cometmq.remoting.server_settings import ServerSettings
    from cometmq.remoting.tls import client_context

    tls = ServerSettings(tls_enable=True, tls_client_auth_server=True).client_tls()
    assert tls is not None
    assert client_context(tls).verify_mode is ssl.CERT_REQUIRED
    assert ServerSettings().client_tls() is None


async def test_a_name_server_that_is_no_longer_named_is_neither_known_nor_missed(tmp_path: Path) -> None:
    """B1: namesrvAddr may change while the broker runs."""
    async with name_server(tmp_path) as server:
        good, bad = f"127.0.0.1:{server.port}", "127.0.0.1:1"
        async with broker_of(server, {"namesrvAddr": f"{good};{bad}"}) as embedded:
            context = embedded.broker.context
            registration = context.registration
            assert set(registration.registered) == {good}
            assert set(registration.failures) == {bad}
            for addresses, known in ((bad, set[str]()), (good, {good})):
                context.settings.change(
                    replace(context.settings.broker, namesrv_addr=addresses), context.settings.store
                )
                registration.register()
                await registration.settled(5)
                assert set(registration.registered) == known
                assert set(registration.failures) == {addresses} - known


# What a start says


async def test_a_start_that_nobody_hears_of_says_so_and_goes_on_trying(
    start: Start,  # noqa: F811
    tmp_path: Path,
) -> None:
    """B1: no plain success; not ready; and the success follows when a name server is there."""
    async with name_server(tmp_path) as server:
        port = server.port
    metrics = ("--set", "metricsExporterType=PROM", "--set", "metricsPromExporterHost=127.0.0.1")
    process = start(
        "broker",
        *FREE,
        "--json",
        "-n",
        f"127.0.0.1:{port}",
        *metrics,
        "--set",
        "metricsPromExporterPort=0",
        "--set",
        "brokerIP1=127.0.0.1",
    )
    facts = json.loads(await asyncio.to_thread(process.ready_line))
    assert facts["event"] == "started"
    assert facts["registered"] == []
    async with name_server(tmp_path, listen_port=port):
        later = json.loads(await asyncio.to_thread(process.ready_line))
        assert later["event"] == "ready"
        assert later["registered"] == [f"127.0.0.1:{port}"]
        code, log = await asyncio.to_thread(process.stop)
    assert code == 0
    assert f"it is registered with none of its name servers: 127.0.0.1:{port} (cannot connect" in log


async def test_for_people_the_same_is_a_sentence(start: Start, tmp_path: Path) -> None:  # noqa: F811
    """B1: where scripts wait for `boot success`, they do not find it."""
    async with name_server(tmp_path, NamesrvSettings(tls_server_mode="enforcing")) as server:
        process = start("broker", *FREE, "-n", f"127.0.0.1:{server.port}")
        line = await asyncio.to_thread(process.ready_line)
        assert "boot success" not in line
        assert "runs, but no client finds it" in line
        assert "set useTLS = true" in line


async def test_a_broker_that_no_name_server_knows_is_not_ready(tmp_path: Path) -> None:
    """B1: an orchestrator sends no clients there."""
    async with (
        name_server(tmp_path, NamesrvSettings(tls_server_mode="enforcing")) as server,
        broker_of(server, PROMETHEUS) as embedded,
    ):
        exporter = embedded.broker.exporter
        assert exporter is not None
        status, body = await ask(exporter.port, "/ready")
        assert status == 503
        assert "registered with none of its name servers" in body
