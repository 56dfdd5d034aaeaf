"""How a client finds its name servers, and follows them when they change."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from cometmq.client.admin.admin import Admin
from cometmq.client.instance.name_servers import NameServers, NameServerSource
from cometmq.client.producer.producer import Producer
from cometmq.model.errors import ConnectError, SettingsError
from cometmq.model.message import Message
from cometmq.remoting.client import RemotingClient
from tests.integration.address_server import address_server, ok
from tests.integration.client.client_kit import TOPIC, running_cluster
from tests.waiting import eventually

NOBODY = "127.0.0.1:1"


async def test_an_address_server_lists_the_name_servers() -> None:
    """P2: asked at the start."""
    async with (
        running_cluster() as cluster,
        address_server(ok(f"{cluster.namesrv};{NOBODY}\n")) as (asked, domain),
        Producer("payments", namesrv_domain=domain) as producer,
    ):
        await producer.send(Message(TOPIC, b"hello"))
    assert asked.paths == ["/rocketmq/nsaddr"]


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", b"", ok(""), ok("a:b")]
)
async def test_a_client_does_not_start_without_a_list(answer: bytes) -> None:
    async with address_server(answer) as (_, domain):
        refused = pytest.raises(
            ConnectError, match=f"the address server http://{domain}/rocketmq/nsaddr gave"
        )
        with refused:
            await Producer("payments", namesrv_domain=domain).start()
        with refused:
            await Admin(namesrv_domain=domain).start()


async def test_a_changed_list_is_followed_and_a_failure_keeps_the_old_one() -> None:
    """P2: the current server stays while it is listed."""
    async with address_server(ok("a;b")) as (server, domain):
        servers = NameServers(NameServerSource(url=f"http://{domain}/rocketmq/nsaddr"), RemotingClient())
        await servers.look_up()
        assert set(servers.addresses) == {"a:9876", "b:9876"}
        current = servers.current
        server.answer = ok(f"c;{current}")
        await servers.look_up()
        assert (servers.addresses, servers.current) == (("c:9876", current), current)
        server.answer = b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n"
        with pytest.raises(ConnectError):
            await servers.look_up()
        server.answer = ok("d")
        assert servers.addresses == ("c:9876", current)
        await servers.look_up()
        assert servers.current == "d:9876"


async def test_dns_gives_every_address_behind_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """P2."""

    async def look_up(host: str, port: int, **_: Any) -> list[Any]:
        if host != "ns.example":
            raise socket.gaierror("unknown")
        found = [(socket.AF_INET, address) for address in ("10.0.0.2", "10.0.0.1")] + [
            (socket.AF_INET6, "fe80::1")
        ]
        return [(family, socket.SOCK_STREAM, 6, "", (address, port)) for family, address in found]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up, raising=False)
    source = NameServerSource(("ns.example:9876", "elsewhere:1"), dns_lookup=True)
    assert not source.is_fixed
    assert await source.find() == ("10.0.0.1:9876", "10.0.0.2:9876", "[fe80::1]:9876")
    with pytest.raises(ConnectError, match="DNS knows none of the name servers"):
        await NameServerSource(("elsewhere:1",), dns_lookup=True).find()


async def test_a_name_is_looked_up_and_used() -> None:
    """P2: with the resolver of this machine."""
    async with running_cluster() as cluster:
        port = cluster.namesrv.rpartition(":")[2]
        async with Producer("payments", namesrv=f"localhost:{port}", namesrv_dns_lookup=True) as producer:
            await producer.send(Message(TOPIC, b"hello"))
            assert f"127.0.0.1:{port}" in producer.name_servers


async def test_a_client_takes_other_name_servers_while_it_runs() -> None:
    """P2: the next request goes to one of them."""
    async with (
        running_cluster() as old,
        running_cluster() as new,
        Producer("payments", namesrv=old.namesrv, poll_name_server_interval_ms=50) as producer,
    ):
        await producer.send(Message(TOPIC, b"hello"))
        with pytest.raises(SettingsError, match="no name server is given"):
            producer.update_name_servers([])
        producer.update_name_servers([new.namesrv])
        assert producer.name_servers == (new.namesrv,)
        await eventually(lambda: new.name_servers[0].asked != [], "routes come from the new one")
