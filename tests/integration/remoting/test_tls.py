"""TLS and plain peers on one port, certificates that are checked and changed, handshakes that go wrong."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from shutil import copy

import pytest

from cometmq.model.errors import ConnectError, RemotingError, SettingsError
from cometmq.remoting.server import RemotingServer
from cometmq.remoting.tls import ClientTls, ServerTls
from tests.integration.remoting.certificates import Authority
from tests.integration.remoting.remoting_kit import (
    ECHO,
    HOST,
    LARGE,
    Handlers,
    Peer,
    address_of,
    both_loops,
    calling,
    connected,
    request,
    serving,
    soon,
)
from tests.waiting import eventually


class GoodbyeError(Exception):
    """The other side has ended the session in order; a cut connection is an `EOFError`."""


class TlsPeer:
    """A TLS client made by hand, so that a test decides about every byte."""

    def __init__(self, peer: Peer, *, chunk_bytes: int = 0) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._session = context.wrap_bio(self._incoming, self._outgoing)
        self._peer = peer
        self._chunk_bytes = chunk_bytes
        self._plain = b""

    async def handshake(self) -> None:
        while True:
            try:
                self._session.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self.flush()
                self._incoming.write(await self._peer.receive())
        await self.flush()

    async def flush(self) -> None:
        await self._peer.send(self._outgoing.read(), chunk_bytes=self._chunk_bytes)

    async def send(self, data: bytes) -> None:
        self._session.write(data)
        await self.flush()

    async def read(self, size: int) -> bytes:
        """Exactly this many bytes."""
        while len(self._plain) < size:
            try:
                plain = self._session.read(1 << 16)
                if not plain:
                    raise GoodbyeError
                self._plain += plain
            except ssl.SSLWantReadError:
                self._incoming.write(await self._peer.receive())
        data, self._plain = self._plain[:size], self._plain[size:]
        return data

    async def echo(self, text: bytes) -> None:
        """Ask, and check the answer's last bytes, which are its body."""
        await self.send(request(ECHO, 1, body=text))
        length = int.from_bytes(await soon(self.read(4)), "big")
        assert (await soon(self.read(length)))[-len(text) :] == text

    async def goodbye(self) -> None:
        with pytest.raises(ssl.SSLWantReadError):
            self._session.unwrap()
        await self.flush()


@both_loops
async def test_tls_and_plain_clients_use_one_port() -> None:
    """B13. Without any certificate, the server makes one, and clients in that mode trust it."""
    async with serving() as server, calling(tls=ClientTls()) as secret, calling() as open_:
        for client in (secret, open_, secret, open_):
            answer = await client.call(address_of(server), ECHO, body=b"hello")
            assert bytes(answer.body) == b"hello"


@both_loops
async def test_with_tls_disabled_a_tls_client_is_closed_and_a_plain_one_is_served() -> None:
    async with (
        serving(tls=ServerTls(mode="disabled")) as server,
        calling(tls=ClientTls()) as secret,
        calling() as open_,
    ):
        with pytest.raises(ConnectError):
            await secret.call(address_of(server), ECHO)
        assert (await open_.call(address_of(server), ECHO)).code == 0
        await eventually(lambda: server.metrics.closed == {"TLS is disabled here": 1})


@both_loops
async def test_with_tls_enforced_a_plain_client_is_closed_and_a_tls_one_is_served() -> None:
    async with (
        serving(tls=ServerTls(mode="enforcing")) as server,
        calling(tls=ClientTls()) as secret,
        calling() as open_,
    ):
        with pytest.raises(RemotingError):
            await open_.call(address_of(server), ECHO)
        assert (await secret.call(address_of(server), ECHO)).code == 0
        await eventually(lambda: server.metrics.closed == {"TLS is required here": 1})


@both_loops
async def test_a_client_with_a_trust_store_takes_only_what_it_trusts(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    cert, key = ours.issue("server")
    async with (
        serving(tls=ServerTls(cert_path=cert, key_path=key)) as server,
        calling(tls=ClientTls(trust_cert_path=ours.trust_path)) as trusting,
        calling(tls=ClientTls(trust_cert_path=theirs.trust_path)) as doubting,
        calling(tls=ClientTls(auth_server=True)) as worldly,
    ):
        assert (await trusting.call(address_of(server), ECHO)).code == 0
        for client in (doubting, worldly):
            with pytest.raises(ConnectError, match="certificate verify failed"):
                await client.call(address_of(server), ECHO)


@pytest.mark.parametrize("need", ["optional", "require"])
@both_loops
async def test_a_server_that_wants_certificates_of_its_clients_checks_them(need: str, tmp_path: Path) -> None:
    """Mutual authentication; `optional` takes a client without a certificate, but none with a wrong one."""
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    cert, key = ours.issue("server")
    known, stranger = ours.issue("client"), theirs.issue("stranger")
    settings = ServerTls(
        cert_path=cert,
        key_path=key,
        trust_cert_path=ours.trust_path,
        need_client_auth="optional" if need == "optional" else "require",
    )
    trust = ours.trust_path
    async with (
        serving(tls=settings) as server,
        calling(tls=ClientTls(trust_cert_path=trust, cert_path=known[0], key_path=known[1])) as good,
        calling(tls=ClientTls(trust_cert_path=trust)) as nameless,
        calling(tls=ClientTls(trust_cert_path=trust, cert_path=stranger[0], key_path=stranger[1])) as bad,
    ):
        assert (await good.call(address_of(server), ECHO)).code == 0
        with pytest.raises(RemotingError):
            await bad.call(address_of(server), ECHO)
        if need == "optional":
            assert (await nameless.call(address_of(server), ECHO)).code == 0
        else:
            with pytest.raises(RemotingError):
                await nameless.call(address_of(server), ECHO)
        await eventually(lambda: server.metrics.closed["TLS failed"] == (1 if need == "optional" else 2))


@both_loops
async def test_a_changed_certificate_is_used_from_the_next_connection_on(tmp_path: Path) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    cert, key = old.issue("server")
    async with (
        serving(tls=ServerTls(cert_path=cert, key_path=key)) as server,
        calling(tls=ClientTls(trust_cert_path=old.trust_path)) as early,
        calling(tls=ClientTls(trust_cert_path=old.trust_path)) as late,
        calling(tls=ClientTls(trust_cert_path=new.trust_path)) as renewed,
    ):
        await early.call_ok(address_of(server), ECHO)
        assert new.issue("server") == (cert, key)
        await renewed.call_ok(address_of(server), ECHO)
        with pytest.raises(ConnectError, match="certificate verify failed"):
            await late.call(address_of(server), ECHO)
        await early.call_ok(address_of(server), ECHO)


@both_loops
async def test_a_certificate_that_cannot_be_loaded_does_not_replace_the_one_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A certificate and its key are two files; between the two writes they do not fit."""
    authority = Authority(tmp_path, "ours")
    cert, key = authority.issue("server")
    other_cert, other_key = authority.issue("other")
    trust = ClientTls(trust_cert_path=authority.trust_path)
    async with serving(tls=ServerTls(cert_path=cert, key_path=key)) as server:
        for replace in (
            lambda: copy(other_cert, cert),
            lambda: Path(cert).write_text("not a certificate"),
            lambda: Path(cert).unlink(),
        ):
            replace()
            async with calling(tls=trust) as client:
                await client.call_ok(address_of(server), ECHO)
        complaints = [record.message for record in caplog.records if "are not used" in record.message]
        assert len(complaints) == 3
        copy(other_cert, cert)
        copy(other_key, key)
        async with calling(tls=trust) as client:
            await client.call_ok(address_of(server), ECHO)
        assert len([record for record in caplog.records if "are not used" in record.message]) == 3


@both_loops
async def test_settings_that_cannot_work_stop_the_start_with_the_file_and_the_reason(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    cert, key = authority.issue("server")
    locked_cert, locked_key = authority.issue("locked", password="secret")
    _, other_key = authority.issue("other")
    missing = str(tmp_path / "missing.pem")
    for settings, text in [
        (ServerTls(cert_path=missing, key_path=key), r"missing\.pem cannot be read"),
        (ServerTls(cert_path=cert, key_path=other_key), r"server\.crt cannot be loaded"),
        (ServerTls(cert_path=key, key_path=key), r"server\.key cannot be loaded"),
        (
            ServerTls(cert_path=locked_cert, key_path=locked_key),
            "if its key is encrypted, set the key password",
        ),
        (
            ServerTls(cert_path=cert, key_path=key, trust_cert_path=key, need_client_auth="require"),
            r"trust store .*server\.key cannot be loaded",
        ),
    ]:
        server = RemotingServer(host=HOST, tls=settings)
        with pytest.raises(SettingsError, match=text):
            await server.start()
    with pytest.raises(SettingsError, match=r"missing\.pem cannot be loaded"):
        async with calling(tls=ClientTls(trust_cert_path=missing)):
            pass
    opened = ServerTls(cert_path=locked_cert, key_path=locked_key, key_password="secret")
    async with serving(tls=opened) as good, calling(tls=ClientTls()) as client:
        await client.call_ok(address_of(good), ECHO)


@asynccontextmanager
async def tls_connected(server: RemotingServer, *, chunk_bytes: int = 0) -> AsyncIterator[TlsPeer]:
    async with connected(server) as peer:
        tls = TlsPeer(peer, chunk_bytes=chunk_bytes)
        await soon(tls.handshake(), 20)
        yield tls


@pytest.mark.parametrize("chunk_bytes", [0, 1, 7])
@both_loops
async def test_a_handshake_in_any_chunks_succeeds(chunk_bytes: int) -> None:
    async with serving() as server, tls_connected(server, chunk_bytes=chunk_bytes) as tls:
        await tls.echo(b"hello")
        await tls.echo(bytes(100))


@both_loops
async def test_large_frames_pass_through_tls() -> None:
    handlers = Handlers()
    handlers.large_answer = bytes(3_000_000)
    async with serving(handlers) as server, calling(tls=ClientTls()) as client:
        answer = await client.call(address_of(server), ECHO, body=bytes(2_000_000), timeout_s=20)
        assert len(answer.body) == 2_000_000
        answer = await client.call(address_of(server), LARGE, timeout_s=20)
        assert len(answer.body) == 3_000_000


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x16\x16\x16\x16\x16\x16\x16",
        b"\x16\x03\x01\x00\x05hello",
        b"\x16\x03\x01\x40\x00" + bytes(16384),
    ],
)
@both_loops
async def test_garbage_that_begins_like_tls_closes_only_its_connection(garbage: bytes) -> None:
    async with serving() as server, connected(server) as peer, connected(server) as other:
        await peer.send(garbage)
        await soon(peer.end())
        peer.close()
        await eventually(lambda: server.metrics.closed == {"TLS failed": 1})
        assert (await other.ask(ECHO)).code == 0


@both_loops
async def test_garbage_in_an_established_session_closes_it() -> None:
    async with serving() as server, connected(server) as peer:
        tls = TlsPeer(peer)
        await tls.handshake()
        await tls.echo(b"hello")
        await peer.send(b"\x17\x03\x03\x00\x20" + bytes(32))
        await soon(peer.end())
        peer.close()
        await eventually(lambda: server.metrics.closed == {"TLS failed": 1})


@both_loops
async def test_broken_framing_inside_tls_closes_the_connection() -> None:
    async with serving() as server, tls_connected(server) as tls:
        await tls.send(b"\xff" * 8)
        with pytest.raises(GoodbyeError):
            await soon(tls.read(1))
        assert len(server.connections) <= 1


@both_loops
async def test_both_sides_say_goodbye() -> None:
    """An orderly end is told from a cut connection."""
    async with serving() as server:
        async with tls_connected(server) as tls:
            await tls.echo(b"hello")
            await tls.goodbye()
            await eventually(lambda: not any(connection.is_open for connection in server.connections))
        async with tls_connected(server) as tls:
            await tls.echo(b"hello")
            for connection in list(server.connections):
                connection.close("test")
            with pytest.raises(GoodbyeError):
                await soon(tls.read(1))


@both_loops
async def test_nothing_is_written_in_the_clear_before_the_peer_has_said_what_it_speaks() -> None:
    async with serving() as server, connected(server) as peer:
        await eventually(lambda: server.connections)
        (connection,) = server.connections
        pending = connection.call(ECHO, None, b"are you there?", timeout_s=10)
        tls = TlsPeer(peer)
        await tls.handshake()  # would fail if plain bytes came first
        length = int.from_bytes(await soon(tls.read(4)), "big")
        assert (await soon(tls.read(length))).endswith(b"are you there?")
        pending.cancel()


@both_loops
async def test_many_tls_clients_at_once_share_the_making_of_the_certificate() -> None:
    async with serving() as server:

        async def once() -> None:
            async with calling(tls=ClientTls()) as client:
                await client.call_ok(address_of(server), ECHO, timeout_s=20)

        await asyncio.gather(*(once() for _ in range(20)))
