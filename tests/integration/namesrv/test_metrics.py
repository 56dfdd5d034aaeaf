"""The counters of a name server, as Prometheus reads them."""

from __future__ import annotations

import asyncio
import socket
import urllib.request
from pathlib import Path

import msgspec
import pytest

from cometmq.model.errors import CometError
from cometmq.namesrv.config import NamesrvConfig, NamesrvSettings
from cometmq.namesrv.service import Namesrv
from cometmq.remoting.client import RemotingClient
from cometmq.testing.embedded import EmbeddedBroker
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.namesrv import GetRouteInfoRequest
from tests.integration.remoting import status_kit


def server_in(folder: Path, metrics_port: int) -> Namesrv:
    config = NamesrvConfig(
        bind_address="127.0.0.1",
        listen_port=0,
        kv_config_path=str(folder / "kvConfig.json"),
        config_store_path=str(folder / "namesrv.properties"),
    )
    return Namesrv(config, NamesrvSettings(metrics_port=metrics_port))


def scrape(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, value in (x.rsplit(" ", 1) for x in lines if not x.startswith("#"))}


async def test_requests_are_counted_by_code_and_answer(tmp_path: Path) -> None:
    server = server_in(tmp_path, metrics_port=0)
    await server.start()
    client = RemotingClient()
    try:
        assert server.exporter is not None
        address = f"127.0.0.1:{server.port}"
        for _ in range(3):
            header = GetRouteInfoRequest(topic="nowhere")
            await client.call(address, RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        await client.call(address, RequestCode.GET_BROKER_CLUSTER_INFO)
        await client.call(address, RequestCode.SEND_MESSAGE)
        counted = await asyncio.to_thread(scrape, server.exporter.port)
    finally:
        await client.stop()
        await server.stop()
    assert counted['cometmq_requests_total{code="GET_ROUTEINFO_BY_TOPIC"}'] == 3
    assert counted['cometmq_requests_total{code="GET_BROKER_CLUSTER_INFO"}'] == 1
    assert counted['cometmq_requests_total{code="UNKNOWN"}'] == 1
    failed = 'cometmq_request_failures_total{code="GET_ROUTEINFO_BY_TOPIC",response="TOPIC_NOT_EXIST"}'
    assert counted[failed] == 3
    assert counted["cometmq_connections"] == 1
    assert counted["cometmq_received_bytes_total"] > 0
    assert counted['cometmq_request_seconds_total{code="GET_ROUTEINFO_BY_TOPIC"}'] > 0


async def test_a_metrics_port_that_is_taken_stops_the_start_with_a_reason(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = server_in(tmp_path, metrics_port=taken.getsockname()[1])
        with pytest.raises(CometError, match="choose another metricsPort"):
            await server.start()
        await server.stop()


async def test_a_name_server_counts_what_it_knows_and_says_that_it_is_ready(tmp_path: Path) -> None:
    """N9: as Prometheus' own parser reads it."""
    server = server_in(tmp_path, metrics_port=0)
    await server.start()
    try:
        assert server.exporter is not None
        port = server.exporter.port
        async with EmbeddedBroker(tmp_path / "broker", namesrv=f"127.0.0.1:{server.port}") as broker:
            await broker.create_topic("Orders")
            samples = await status_kit.scrape(port)
            live = status_kit.value(samples, "cometmq_namesrv_live_brokers", {"cluster": "DefaultCluster"})
            assert live == 1
            topics = status_kit.value(samples, "cometmq_namesrv_topics")
            assert topics == len(server.state.tables.topics)
            assert topics > 0
            assert status_kit.value(samples, "cometmq_namesrv_takeovers_total") == 0
            registered = {"request_code": "register_broker", "response_code": "success"}
            count = status_kit.value(samples, "rocketmq_rpc_latency_milliseconds_count", registered)
            assert count >= 1
        assert await status_kit.ask(port, "/health") == (200, "ok\n")
        assert await status_kit.ask(port, "/ready") == (200, "ok\n")
    finally:
        await server.stop()


async def test_a_name_server_that_waits_for_its_brokers_is_not_ready(tmp_path: Path) -> None:
    """N9: `needWaitForService`."""
    server = server_in(tmp_path, metrics_port=0)
    server.state.config = msgspec.structs.replace(server.state.config, need_wait_for_service=True)
    await server.start()
    try:
        assert server.exporter is not None
        status, text = await status_kit.ask(server.exporter.port, "/ready")
        assert (status, text) == (503, "waits 45 s for its brokers (waitSecondsForService)\n")
    finally:
        await server.stop()
