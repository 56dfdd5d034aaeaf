"""What the tests of remoting share: both event loops, a server with simple handlers, peers made of sockets.

A test marked with `both_loops` runs on uvloop and on plain asyncio. It fails if anything went wrong behind
its back: an exception that only the loop saw, or a test that does not come to its end.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
import uvloop

from cometmq.model.errors import CometError
from cometmq.remoting.client import RemotingClient
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import DEFERRED, Answer, HandlerTable, NoHeader, Result, handles
from cometmq.remoting.limits import Limits
from cometmq.remoting.server import RemotingServer
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Body, Command, decode_command, encode_command
from cometmq.wire.frame.framing import JSON, Frame
from cometmq.wire.headers.namesrv import GetRouteInfoRequest

HOST: Final = "127.0.0.1"
TEST_SECONDS: Final = 30.0

# Any code serves; these names say nothing about what the handlers below do.
ECHO: Final = RequestCode.GET_KV_CONFIG
REFUSE: Final = RequestCode.PUT_KV_CONFIG
CRASH: Final = RequestCode.DELETE_KV_CONFIG
WAIT: Final = RequestCode.GET_KVLIST_BY_NAMESPACE
DEFER: Final = RequestCode.GET_BROKER_CLUSTER_INFO
NEED_TOPIC: Final = RequestCode.GET_ROUTEINFO_BY_TOPIC
LARGE: Final = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
CALL_BACK: Final = RequestCode.GET_NAMESRV_CONFIG
UNSERVED: Final = 31_999

LOOPS: Final = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


def both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on uvloop and on plain asyncio."""

    @functools.wraps(test)
    def run(loop_name: str, **arguments: Any) -> None:
        problems: list[str] = []

        async def guarded() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: problems.append(repr(context)))
            async with asyncio.timeout(TEST_SECONDS):
                await test(**arguments)

        with asyncio.Runner(loop_factory=LOOPS[loop_name]) as runner:
            runner.run(guarded())
        if problems:
            pytest.fail("\n".join(problems))

    del run.__dict__["__wrapped__"]
    signature = inspect.signature(test)
    loop_parameter = inspect.Parameter("loop_name", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__dict__["__signature__"] = signature.replace(
        parameters=[loop_parameter, *signature.parameters.values()]
    )
    marked: Callable[..., None] = pytest.mark.parametrize("loop_name", list(LOOPS))(run)
    return marked


async def soon(awaitable: Awaitable[Any], seconds: float = 20.0) -> Any:
    """The result of what must not take long."""
    async with asyncio.timeout(seconds):
        return await awaitable


class Handlers:
    """Handlers that do what their code says, and remember what they saw."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.deferred: list[tuple[Command, Connection]] = []
        self.gate = asyncio.Event()
        self.waiting = 0
        self.large_answer: bytes | list[Body] = bytes(1000)

    def table(self) -> HandlerTable:
        table = HandlerTable()
        table.add_handlers(self)
        return table

    @handles(ECHO, NoHeader)
    def echo(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        """The body comes back."""
        self.seen.append(bytes(request.body))
        return Answer(body=bytes(request.body), fields=request.fields() or None)

    @handles(REFUSE, NoHeader)
    def refuse(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        self.seen.append(bytes(request.body))
        raise CometError("not today; come back tomorrow", code=ResponseCode.NO_PERMISSION)

    @handles(CRASH, NoHeader)
    def crash(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        self.seen.append(bytes(request.body))
        raise ZeroDivisionError("an apple among no children")

    @handles(WAIT, NoHeader)
    async def wait(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        """Answers when the gate opens; a body `crash` fails then."""
        self.waiting += 1
        try:
            await self.gate.wait()
        finally:
            self.waiting -= 1
        if bytes(request.body) == b"crash":
            raise ZeroDivisionError("an apple among no children")
        return Answer(body=bytes(request.body))

    @handles(DEFER, NoHeader)
    def defer(self, header: NoHeader, request: Command, connection: Connection) -> Result:
        self.deferred.append((request, connection))
        return DEFERRED

    @handles(NEED_TOPIC, GetRouteInfoRequest)
    def need_topic(self, header: GetRouteInfoRequest, request: Command, connection: Connection) -> Answer:
        return Answer(body=header.topic.encode())

    @handles(LARGE, NoHeader)
    def large(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        self.seen.append(bytes(request.body))
        return Answer(body=self.large_answer)

    @handles(CALL_BACK, NoHeader)
    async def call_back(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        """Asks the one who asks, on the same connection, and hands on what it says."""
        answer = await connection.call(ECHO, None, bytes(request.body), timeout_s=5)
        return Answer(answer.code, body=bytes(answer.body))


@asynccontextmanager
async def serving(
    handlers: Handlers | None = None, *, table: HandlerTable | None = None, **options: Any
) -> AsyncIterator[RemotingServer]:
    """A server on a free port, stopped at the end."""
    handlers = handlers or Handlers()
    server = RemotingServer(host=HOST, handlers=table or handlers.table(), **options)
    await server.start()
    try:
        yield server
    finally:
        handlers.gate.set()
        await server.stop()


@asynccontextmanager
async def calling(**options: Any) -> AsyncIterator[RemotingClient]:
    """A client, stopped at the end; no call of it may be left over then."""
    client = RemotingClient(**options)
    try:
        yield client
    finally:
        await client.stop()
    assert client.calls_in_flight == 0
    assert not client.connections


def address_of(server: RemotingServer) -> str:
    return f"{HOST}:{server.port}"


def quick_limits(**changes: Any) -> Limits:
    """Limits whose waiting times suit tests."""
    return Limits(**{"idle_timeout_s": 30.0, "frame_timeout_s": 5.0, "write_timeout_s": 5.0, **changes})


def request(code: int, opaque: int = 1, *, body: bytes = b"", flag: int = 0, kind: int = JSON) -> bytes:
    """A whole request frame."""
    return encode_command(code, opaque, flag, body=body, serialize_type=kind)


class Peer:
    """The other side of a connection, byte for byte."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._loop = asyncio.get_running_loop()
        self._buffer = b""

    async def send(self, data: bytes, *, chunk_bytes: int = 0) -> None:
        """Send everything, in one piece or in chunks that are read one by one."""
        if not chunk_bytes:
            await self._loop.sock_sendall(self.sock, data)
            return
        for start in range(0, len(data), chunk_bytes):
            await self._loop.sock_sendall(self.sock, data[start : start + chunk_bytes])
            await asyncio.sleep(0)

    async def receive(self) -> bytes:
        """The next bytes, at least one."""
        data = await self._loop.sock_recv(self.sock, 1 << 16)
        if not data:
            raise EOFError("closed")
        return data

    async def read(self, size: int) -> bytes:
        """Exactly this many bytes."""
        while len(self._buffer) < size:
            self._buffer += await self.receive()
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    async def answer(self) -> Command:
        """The next frame."""
        length, mark = struct.unpack(">II", await soon(self.read(8), 10))
        rest = await soon(self.read(length - 4), 10)
        header_bytes = mark & 0xFFFFFF
        view = memoryview(rest)
        return decode_command(Frame(mark >> 24, view[:header_bytes], view[header_bytes:]))

    async def ask(self, code: int, opaque: int = 1, **options: Any) -> Command:
        await self.send(request(code, opaque, **options))
        return await self.answer()

    async def end(self) -> bytes:
        """What comes until the server closes; a reset is an end, too."""
        data, self._buffer = self._buffer, b""
        while True:
            try:
                part = await self._loop.sock_recv(self.sock, 1 << 16)
            except ConnectionError:
                return data
            if not part:
                return data
            data += part

    def close(self) -> None:
        self.sock.close()


@asynccontextmanager
async def connected(server: RemotingServer, *, receive_bytes: int = 0) -> AsyncIterator[Peer]:
    """A plain connection to a server; with `receive_bytes`, one that buffers little."""
    sock = socket.socket()
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        await asyncio.get_running_loop().sock_connect(sock, (HOST, server.port))
        yield Peer(sock)
    finally:
        sock.close()
