"""A broker that asks its clients odd things: a real one, with somebody between it and its clients.

Frames go through unchanged in both directions; requests of the run are put in between,
and their answers taken out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cometmq.model.errors import HeaderError
from cometmq.model.route import BrokerData, QueueData, TopicRoute
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, HandlerTable
from cometmq.remoting.server import RemotingServer
from cometmq.wire.bodies.route import encode_route
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import RESPONSE_FLAG, Command, decode_command
from cometmq.wire.frame.framing import Frame, FrameSplitter, pack_head
from cometmq.wire.headers.namesrv import GetRouteInfoRequest
from tests.fuzz.requests import Request
from tests.fuzz.watch import Findings, check_answer

FIRST_OPAQUE = 2**28
"""Clients count their own requests from 0; a run's requests to them begin here."""


class Meddler:
    """Stands between clients and a broker."""

    def __init__(self, broker_port: int, findings: Findings) -> None:
        self._broker_port = broker_port
        self._findings = findings
        self._server: asyncio.Server | None = None
        self._pumps: set[asyncio.Task[None]] = set()
        self.clients: list[asyncio.StreamWriter] = []
        self.open: dict[int, Request] = {}
        self.answered = 0

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", self._broker_port)
        self.clients.append(writer)
        for source, target, is_client in ((reader, broker_writer, True), (broker_reader, writer, False)):
            pump = asyncio.ensure_future(self._pump(source, target, is_client=is_client))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, is_client: bool
    ) -> None:
        splitter = FrameSplitter()
        try:
            while data := await source.read(1 << 16):
                splitter.feed(data)
                while (frame := splitter.next_frame()) is not None:
                    if not is_client or not self._took(frame):
                        body = bytes(frame.body)
                        target.write(pack_head(frame.serialize_type, bytes(frame.header), len(body)) + body)
                await target.drain()
        except ConnectionError:
            pass
        finally:
            target.close()
            if target in self.clients:
                self.clients.remove(target)

    def _took(self, frame: Frame) -> bool:
        """Whether this is an answer to a request of the run."""
        try:
            answer = decode_command(frame)
        except HeaderError as error:
            self._findings.add("an answer that cannot be read", error)
            return True
        if not answer.flag & RESPONSE_FLAG or answer.opaque < FIRST_OPAQUE:
            return False
        request = self.open.pop(answer.opaque, None)
        if request is None:
            self._findings.add("an answer to nothing, or a second one", answer)
        else:
            self.answered += 1
            check_answer(self._findings, answer, request)
        return True

    def ask(self, request: Request) -> None:
        """Ask each client in turn."""
        if not request.is_oneway:
            self.open[request.opaque] = request
        self.clients[request.number % len(self.clients)].write(request.data)


class _Routes:
    """A name server that knows one broker, which is the meddler."""

    def __init__(self, port: int) -> None:
        self._port = port

    def route(self, header: GetRouteInfoRequest, request: Command, connection: Connection) -> Answer:
        route = TopicRoute(
            queue_datas=[QueueData("embedded", 4, 4, 6, 0)],
            broker_datas=[BrokerData("DefaultCluster", "embedded", {0: f"127.0.0.1:{self._port}"})],
        )
        return Answer(body=encode_route(route, standard=True))


@asynccontextmanager
async def meddling(broker_port: int, findings: Findings) -> AsyncIterator[tuple[Meddler, str]]:
    """A meddler in front of a broker, and the address of the name server that leads to it."""
    meddler = Meddler(broker_port, findings)
    await meddler.start()
    table = HandlerTable()
    table.add(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest, _Routes(meddler.port).route)
    namesrv = RemotingServer(host="127.0.0.1", port=0, handlers=table)
    await namesrv.start()
    try:
        yield meddler, f"127.0.0.1:{namesrv.port}"
    finally:
        await namesrv.stop()
        await meddler.stop()
