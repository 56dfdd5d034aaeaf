"""A cluster that does what a test tells it: name servers and brokers in this process, over real sockets."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import NamedTuple

from cometmq.model.queue import MessageQueue
from cometmq.model.route import BrokerData, QueueData, TopicRoute
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import DEFERRED, Answer, HandlerTable, NoHeader, Result, handles
from cometmq.remoting.server import RemotingServer
from cometmq.wire.bodies.heartbeat import HeartbeatData, decode_heartbeat
from cometmq.wire.bodies.route import encode_route
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import ONEWAY_FLAG, Command
from cometmq.wire.headers.namesrv import GetRouteInfoRequest
from cometmq.wire.headers.offset import GetMaxOffsetRequest, GetMaxOffsetResponse
from cometmq.wire.headers.send import EndTransactionRequest, SendMessageRequestV2, SendMessageResponse
from cometmq.wire.headers.session import HeartbeatRequest, UnregisterClientRequest
from cometmq.wire.record.batch import decode_batch
from cometmq.wire.record.properties import parse_properties

HOST = "127.0.0.1"
PATIENCE_S = 30.0
TOPIC = "orders"
RW = 6
SILENT = "does not answer"
HANG_UP = "closes the connection"

Reaction = int | str | Callable[[], Answer]
"""A code to answer with, `SILENT`, `HANG_UP`, or what makes the answer."""


class Received(NamedTuple):
    """A message that came to a broker."""

    header: SendMessageRequestV2
    body: bytes
    code: int
    oneway: bool
    fields: dict[str, str | None]

    @property
    def properties(self) -> dict[str, str]:
        return parse_properties(self.header.properties or "")


class FakeServer:
    """A server whose handlers are the marked methods of its class."""

    def __init__(self) -> None:
        self._port = 0
        self._make()

    def _make(self) -> None:
        table = HandlerTable()
        table.add_handlers(self)
        self.server = RemotingServer(host=HOST, port=self._port, handlers=table)

    @property
    def address(self) -> str:
        return f"{HOST}:{self._port}"

    async def start(self) -> None:
        await self.server.start()
        self._port = self.server.port

    async def stop(self) -> None:
        await self.server.stop()

    async def restart(self) -> None:
        """Come back on the same port."""
        self._make()
        await self.start()


class FakeNamesrv(FakeServer):
    """Knows the routes that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.routes: dict[str, TopicRoute] = {}
        self.asked: list[str] = []
        self.silent = False
        self.slow: asyncio.Event | None = None
        """What routes have to wait for."""

    @handles(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest)
    def route(self, header: GetRouteInfoRequest, request: Command, connection: Connection) -> Result:
        self.asked.append(header.topic)
        if self.silent:
            return DEFERRED
        return (
            self._answer(header.topic) if self.slow is None else self._answer_later(header.topic, self.slow)
        )

    def _answer(self, topic: str) -> Answer:
        route = self.routes.get(topic)
        if route is None:
            return Answer(ResponseCode.TOPIC_NOT_EXIST, remark=f"no topic route info for {topic}")
        return Answer(body=encode_route(route, standard=True))

    async def _answer_later(self, topic: str, gate: asyncio.Event) -> Answer:
        await gate.wait()
        return self._answer(topic)


class FakeBroker(FakeServer):
    """Stores nothing, and answers as it is told: first the reactions in line, then success."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.reactions: deque[Reaction] = deque()
        self.always: Reaction = ResponseCode.SUCCESS
        self.received: list[Received] = []
        self.heartbeats: list[HeartbeatData] = []
        self.left: list[UnregisterClientRequest] = []
        self.ended: list[EndTransactionRequest] = []
        self.offset_questions = 0
        self.held: list[tuple[Command, Connection, Answer]] = []
        self.connections: list[Connection] = []

    @handles(RequestCode.SEND_MESSAGE_V2, SendMessageRequestV2)
    @handles(RequestCode.SEND_BATCH_MESSAGE, SendMessageRequestV2)
    @handles(RequestCode.SEND_REPLY_MESSAGE_V2, SendMessageRequestV2)
    def send(self, header: SendMessageRequestV2, request: Command, connection: Connection) -> Result:
        self.received.append(
            Received(header, bytes(request.body), request.code, request.flag == ONEWAY_FLAG, request.fields())
        )
        reaction = self.reactions.popleft() if self.reactions else self.always
        if reaction == HANG_UP:
            connection.close("told to", abort=True)
            return DEFERRED
        if reaction == SILENT:
            self.held.append((request, connection, self._stored(header, request)))
            return DEFERRED
        if callable(reaction):
            return reaction()
        answer = self._stored(header, request)
        if reaction not in (0, 10, 11, 12):
            return Answer(int(reaction), remark="not today", fields={"MSG_REGION": "DefaultRegion"})
        answer.code = int(reaction)
        return answer

    def _stored(self, header: SendMessageRequestV2, request: Command) -> Answer:
        count = len(decode_batch(request.body)) if header.batch else 1
        number = len(self.received)
        answer = SendMessageResponse(
            msg_id=",".join(f"{number:016X}{item:016X}" for item in range(count)),
            queue_id=header.queue_id,
            queue_offset=number,
            msg_region="DefaultRegion",
            trace_on=True,
        )
        return Answer(header=answer)

    def answer_held(self) -> None:
        """Answer everything that was left unanswered."""
        for request, connection, answer in self.held:
            connection.answer(request, answer)
        self.held.clear()

    @handles(RequestCode.HEART_BEAT, HeartbeatRequest)
    def heartbeat(self, header: HeartbeatRequest, request: Command, connection: Connection) -> Answer:
        self.heartbeats.append(decode_heartbeat(request.body))
        self.connections.append(connection)
        return Answer(fields={"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "false"})

    @handles(RequestCode.UNREGISTER_CLIENT, UnregisterClientRequest)
    def leave(self, header: UnregisterClientRequest, request: Command, connection: Connection) -> Answer:
        self.left.append(header)
        return Answer()

    @handles(RequestCode.END_TRANSACTION, EndTransactionRequest)
    def end(self, header: EndTransactionRequest, request: Command, connection: Connection) -> Answer:
        self.ended.append(header)
        return Answer()

    @handles(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequest)
    def max_offset(self, header: GetMaxOffsetRequest, request: Command, connection: Connection) -> Answer:
        self.offset_questions += 1
        return Answer(header=GetMaxOffsetResponse(offset=0))

    @handles(RequestCode.UPDATE_BROKER_CONFIG, NoHeader)
    def nothing(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        return Answer()


class FakeCluster:
    """Name servers that all know the same, and brokers."""

    def __init__(self, brokers: int, name_servers: int) -> None:
        self.name_servers = [FakeNamesrv() for _ in range(name_servers)]
        self.brokers = [FakeBroker(f"broker-{letter}") for letter in "abcdefgh"[:brokers]]

    @property
    def namesrv(self) -> str:
        return ";".join(server.address for server in self.name_servers)

    @property
    def received(self) -> list[Received]:
        return [message for broker in self.brokers for message in broker.received]

    async def start(self) -> None:
        for server in (*self.name_servers, *self.brokers):
            await server.start()

    async def stop(self) -> None:
        for server in (*self.brokers, *self.name_servers):
            await server.stop()

    def set_route(
        self,
        topic: str = TOPIC,
        *,
        queues: int = 4,
        perm: int = RW,
        brokers: Iterable[FakeBroker] | None = None,
        order_conf: str | None = None,
    ) -> None:
        """Give a topic queues on some brokers, or on all."""
        chosen = list(self.brokers if brokers is None else brokers)
        route = TopicRoute(
            [QueueData(broker.name, queues, queues, perm) for broker in chosen],
            [BrokerData("DefaultCluster", broker.name, {0: broker.address}) for broker in chosen],
            order_topic_conf=order_conf,
        )
        for server in self.name_servers:
            server.routes[topic] = route

    def by_name(self, name: str) -> FakeBroker:
        return next(broker for broker in self.brokers if broker.name == name)


def queue(number: int = 0, broker: str = "broker-a", topic: str = TOPIC) -> MessageQueue:
    return MessageQueue(topic, broker, number)


@asynccontextmanager
async def running_cluster(brokers: int = 1, name_servers: int = 1) -> AsyncIterator[FakeCluster]:
    """A cluster whose brokers all have the topic `orders`."""
    cluster = FakeCluster(brokers, name_servers)
    await cluster.start()
    cluster.set_route()
    try:
        yield cluster
    finally:
        await cluster.stop()
