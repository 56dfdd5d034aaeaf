"""How a broker finds its name servers when they are not listed one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from cometmq.testing import EmbeddedBroker
from tests.integration.address_server import address_server, ok
from tests.integration.namesrv.namesrv_kit import running_namesrv
from tests.waiting import eventually


async def test_a_broker_follows_the_address_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """B1: fetchNamesrvAddrByAddressServer, again every fetchNamesrvAddrInterval."""
    settings = {
        "namesrvAddr": "",
        "fetchNamesrvAddrByAddressServer": "true",
        "fetchNamesrvAddrInterval": "50",
    }
    async with (
        running_namesrv(tmp_path / "a") as first,
        running_namesrv(tmp_path / "b") as second,
        address_server(ok(first.address)) as (server, domain),
    ):
        monkeypatch.setenv("COMETMQ_NAMESRV_DOMAIN", domain)
        async with EmbeddedBroker(settings=settings) as embedded:
            context = embedded.broker.context
            assert context.registration.registered == {first.address}
            server.answer = ok(f"{first.address},{second.address}")
            both = {first.address, second.address}
            await eventually(lambda: context.registration.registered == both, "both know the broker")
            server.answer = b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n"
            asked = len(server.paths)
            await eventually(lambda: len(server.paths) > asked + 2, "it is asked again")
            assert set(context.name_servers.addresses) == both
            assert caplog.text.count("name servers are not found") == 1
            server.answer = ok(second.address)
            await eventually(lambda: context.registration.registered == {second.address}, "one is left")
        assert (await second.addresses("TBW102")) == {}, "and it unregistered"


async def test_a_broker_registers_with_every_address_behind_a_name(tmp_path: Path) -> None:
    """B1: fetchNameSrvAddrByDnsLookup."""
    async with running_namesrv(tmp_path / "namesrv") as server:
        port = server.address.rpartition(":")[2]
        settings = {"namesrvAddr": f"localhost:{port}", "fetchNameSrvAddrByDnsLookup": "true"}
        async with EmbeddedBroker(settings=settings) as embedded:
            assert server.address in embedded.broker.context.registration.registered


async def test_a_broker_that_finds_no_name_server_runs_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """B1: it goes on looking."""
    settings = {"namesrvAddr": "no-such-host.invalid", "fetchNameSrvAddrByDnsLookup": "true"}
    async with EmbeddedBroker(settings=settings) as embedded:
        assert embedded.broker.context.name_servers.addresses == ()
        assert "name servers are not found: DNS knows none of the name servers" in caplog.text
