"""Connections through a proxy: the address of the real peer is known, in clear and under TLS."""

from __future__ import annotations

import pytest

from cometmq.remoting.tls import ServerTls
from tests.integration.remoting.remoting_kit import ECHO, both_loops, connected, request, serving, soon
from tests.integration.remoting.test_tls import TlsPeer
from tests.waiting import eventually

V2 = b"\r\n\r\n\x00\r\nQUIT\n"
FOUR = b"\xc0\x00\x02\x07" + b"\x7f\x00\x00\x01" + b"\x30\x39" + b"\x26\x94"
SIX = b"\x20\x01\x0d\xb8" + bytes(11) + b"\x07" + bytes(15) + b"\x01" + b"\x30\x39" + b"\x26\x94"

PROXIED = {
    "v1, IPv4": (b"PROXY TCP4 192.0.2.7 127.0.0.1 12345 9876\r\n", "192.0.2.7:12345"),
    "v1, IPv6": (b"PROXY TCP6 2001:db8::7 ::1 12345 9876\r\n", "2001:db8::7:12345"),
    "v2, IPv4": (V2 + b"\x21\x11\x00\x0c" + FOUR, "192.0.2.7:12345"),
    "v2, IPv6": (V2 + b"\x21\x21\x00\x24" + SIX, "2001:db8::7:12345"),
    "v2, with more": (V2 + b"\x21\x11\x00\x13" + FOUR + b"\xe0\x00\x04text", "192.0.2.7:12345"),
}
OF_ITS_OWN = {
    "v1, unknown": b"PROXY UNKNOWN\r\n",
    "v2, a check of the proxy's own": V2 + b"\x20\x00\x00\x00",
    "v2, a family that is no address": V2 + b"\x21\x31\x00\x02ab",
}
BROKEN = {
    "another word": b"PROBE TCP4 1.2.3.4\r\n",
    "no address": b"PROXY TCP4 nowhere 127.0.0.1 1 2\r\n",
    "no port": b"PROXY TCP4 192.0.2.7 127.0.0.1 1 99999\r\n",
    "too few words": b"PROXY TCP4\r\n",
    "no end of line": b"PROXY " + b"x" * 200,
    "another signature": b"\r\n\r\n\x00\r\nQUIX\n",
    "another version": V2 + b"\x31\x11\x00\x0c" + FOUR,
    "too long": V2 + b"\x21\x11\xff\xff",
    "too short": V2 + b"\x21\x11\x00\x04" + FOUR[:4],
    "twice": b"PROXY UNKNOWN\r\nPROXY TCP4 192.0.2.7 127.0.0.1 1 2\r\n" * 2,
}


@pytest.mark.parametrize("chunk_bytes", [0, 1])
@pytest.mark.parametrize(("header", "address"), PROXIED.values(), ids=PROXIED)
@both_loops
async def test_the_proxied_address_is_the_address_of_the_peer(
    header: bytes, address: str, chunk_bytes: int
) -> None:
    async with serving() as server, connected(server) as peer:
        await peer.send(header + request(ECHO, 3), chunk_bytes=chunk_bytes)
        assert (await peer.answer()).opaque == 3
        assert [connection.remote_address for connection in server.connections] == [address]


@pytest.mark.parametrize("header", OF_ITS_OWN.values(), ids=OF_ITS_OWN)
@both_loops
async def test_a_proxy_that_speaks_for_itself_keeps_its_own_address(header: bytes) -> None:
    async with serving() as server, connected(server) as peer:
        await peer.send(header + request(ECHO, 3))
        assert (await peer.answer()).opaque == 3
        own = "{}:{}".format(*peer.sock.getsockname())
        assert [connection.remote_address for connection in server.connections] == [own]


@pytest.mark.parametrize("chunk_bytes", [0, 1])
@pytest.mark.parametrize("header", [PROXIED["v1, IPv4"][0], PROXIED["v2, IPv4"][0]])
@both_loops
async def test_tls_may_follow_a_proxy_header(header: bytes, chunk_bytes: int) -> None:
    async with serving(tls=ServerTls(mode="enforcing")) as server, connected(server) as peer:
        await peer.send(header, chunk_bytes=chunk_bytes)
        tls = TlsPeer(peer, chunk_bytes=chunk_bytes)
        await soon(tls.handshake(), 20)
        await tls.echo(b"hello")
        assert [connection.remote_address for connection in server.connections] == ["192.0.2.7:12345"]


@pytest.mark.parametrize("header", BROKEN.values(), ids=BROKEN)
@both_loops
async def test_a_broken_proxy_header_closes_only_its_connection(header: bytes) -> None:
    async with serving() as server, connected(server) as peer, connected(server) as other:
        await peer.send(header)
        await soon(peer.end())
        peer.close()
        await eventually(lambda: server.metrics.closed == {"broken framing": 1})
        assert (await other.ask(ECHO)).code == 0
