"""A running name server on loopback, with brokers and clients that talk to it over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from cometmq.model.topic import DataVersion, TopicConfig
from cometmq.namesrv.config import NamesrvConfig, NamesrvSettings
from cometmq.namesrv.service import Namesrv
from cometmq.ports.clock import Clock
from cometmq.ports.files import Files
from cometmq.remoting.client import RemotingClient
from cometmq.remoting.handler import HandlerTable
from cometmq.wire.bodies.registration import encode_registration
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import Command, decode_command, encode_command
from cometmq.wire.frame.framing import JSON, ROCKETMQ, FrameSplitter
from cometmq.wire.header.schema import Header
from cometmq.wire.headers.namesrv import (
    BrokerHeartbeatRequest,
    GetRouteInfoRequest,
    QueryDataVersionRequest,
    RegisterBrokerRequest,
    UnRegisterBrokerRequest,
)
from cometmq.wire.json import fastjson
from tests.answers import Told, told

CLUSTER = "DefaultCluster"
NAME = "broker-a"
A1 = "127.0.0.1:10911"
A2 = "127.0.0.1:20911"
PATIENCE_S = 30.0
TODAY = 479

both_encodings = pytest.mark.parametrize("encoding", [JSON, ROCKETMQ], ids=["json", "binary"])


OK = Told(0, None, {}, b"")


class FakeBroker:
    """A broker that only announces itself, on a connection of its own."""

    def __init__(
        self,
        namesrv: str,
        address: str,
        broker_id: int,
        name: str,
        topics: Iterable[str | TopicConfig],
        acting: bool | None,
        handlers: HandlerTable | None,
    ) -> None:
        self.namesrv = namesrv
        self.address = address
        self.broker_id = broker_id
        self.name = name
        self.topics = [TopicConfig(each, 4, 4) if isinstance(each, str) else each for each in topics]
        self.version = DataVersion(0, 1_700_000_000_000, 1)
        self.filter_servers: list[str] = []
        host, _, port = address.rpartition(":")
        self.header = RegisterBrokerRequest(
            broker_name=name,
            broker_addr=address,
            cluster_name=CLUSTER,
            ha_server_addr=f"{host}:{int(port) + 1}",
            broker_id=broker_id,
            enable_acting_master=acting,
        )
        self.client = RemotingClient(handlers=handlers)

    async def register(self, body: bytes | None = None, encoding: int = JSON) -> Told:
        if body is None:
            body = encode_registration(self.topics, self.version, self.filter_servers)
        self.client.serialize_type = encoding
        return told(await self.client.call(self.namesrv, RequestCode.REGISTER_BROKER, self.header, body=body))

    async def query_version(self, version: DataVersion | None, encoding: int = JSON) -> Told:
        body = b"" if version is None else msgspec.json.encode(version)
        header = QueryDataVersionRequest(
            broker_name=self.name, broker_addr=self.address, cluster_name=CLUSTER, broker_id=self.broker_id
        )
        self.client.serialize_type = encoding
        code = RequestCode.QUERY_DATA_VERSION
        return told(await self.client.call(self.namesrv, code, header, body=body))

    async def heartbeat(self) -> Told:
        header = BrokerHeartbeatRequest(broker_name=self.name, broker_addr=self.address, cluster_name=CLUSTER)
        return told(await self.client.call(self.namesrv, RequestCode.BROKER_HEARTBEAT, header))

    async def unregister(self) -> Told:
        header = UnRegisterBrokerRequest(
            broker_name=self.name, broker_addr=self.address, cluster_name=CLUSTER, broker_id=self.broker_id
        )
        return told(await self.client.call(self.namesrv, RequestCode.UNREGISTER_BROKER, header))

    async def vanish(self) -> None:
        """Close the connection without a word, as a killed process does."""
        await self.client.stop()

    def reconnect(self) -> RemotingClient:
        """Use a new connection from now on; the old one is given to the caller, still open."""
        old, self.client = self.client, RemotingClient()
        return old


class Visit:
    """One name server and everyone who talks to it; ends with everything closed."""

    def __init__(self, server: Namesrv) -> None:
        self.server = server
        self._clients = {encoding: RemotingClient(serialize_type=encoding) for encoding in (JSON, ROCKETMQ)}
        self._brokers: list[FakeBroker] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    async def ask(
        self, code: int, header: Header | None = None, *, body: bytes = b"", encoding: int = JSON
    ) -> Told:
        return told(await self._clients[encoding].call(self.address, code, header, body=body))

    async def route(self, topic: str, encoding: int = JSON) -> Told:
        header = GetRouteInfoRequest(topic=topic)
        return await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, encoding=encoding)

    async def addresses(self, topic: str) -> dict[str, dict[str, str]]:
        """The addresses in a topic's route, by broker name and id; nothing if it has no route."""
        answer = await self.route(topic)
        if answer.code != 0:
            return {}
        route = fastjson.loads(answer.body)
        return {each["brokerName"]: each["brokerAddrs"] for each in route["brokerDatas"]}

    async def configure(self, text: str) -> Told:
        return await self.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=text.encode())

    async def setting(self, key: str) -> str:
        text = (await self.ask(RequestCode.GET_NAMESRV_CONFIG)).body.decode()
        return dict(line.split("=", 1) for line in text.splitlines())[key]

    def broker(
        self,
        address: str = A1,
        broker_id: int = 0,
        name: str = NAME,
        *,
        topics: Iterable[str | TopicConfig] = ("T1", "T2"),
        acting: bool | None = False,
        handlers: HandlerTable | None = None,
    ) -> FakeBroker:
        broker = FakeBroker(self.address, address, broker_id, name, topics, acting, handlers)
        self._brokers.append(broker)
        return broker

    async def end(self) -> None:
        for client in [*self._clients.values(), *(broker.client for broker in self._brokers)]:
            await client.stop()
        await self.server.stop()


def config_in(folder: Path) -> NamesrvConfig:
    """Settings of a name server on a free port of loopback, with its files in a folder."""
    return NamesrvConfig(
        bind_address="127.0.0.1",
        listen_port=0,
        kv_config_path=str(folder / "kvConfig.json"),
        config_store_path=str(folder / "namesrv.properties"),
    )


@asynccontextmanager
async def running_namesrv(
    folder: Path,
    *,
    clock: Clock | None = None,
    files: Files | None = None,
    settings: NamesrvSettings | None = None,
    environment: Mapping[str, str] | None = None,
    **config: object,
) -> AsyncIterator[Visit]:
    """A name server with its files in `folder`; `config` takes RocketMQ's settings by their Python names."""
    server = Namesrv(
        msgspec.structs.replace(config_in(folder), **config),
        settings,
        clock=clock,
        files=files,
        environment=environment or {},
    )
    await server.start()
    visit = Visit(server)
    try:
        yield visit
    finally:
        await visit.end()


class Wire:
    """A plain connection, for requests that no client of ours would send."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._splitter = FrameSplitter()

    async def ask(
        self,
        code: int,
        fields: Mapping[str, str | None] | None = None,
        *,
        body: bytes = b"",
        version: int = TODAY,
        encoding: int = JSON,
        language: str = "JAVA",
    ) -> Told:
        return await self.send(
            encode_command(
                code, 7, 0, fields, body=body, version=version, serialize_type=encoding, language=language
            )
        )

    async def send(self, frame: bytes) -> Told:
        """Send a whole frame and wait for the answer."""
        return told(await self.exchange(frame))

    async def exchange(self, frame: bytes) -> Command:
        self._writer.write(frame)
        async with asyncio.timeout(PATIENCE_S):
            while (answer := self._splitter.next_frame()) is None:
                data = await self._reader.read(65_536)
                assert data, "the server closed the connection"
                self._splitter.feed(data)
        return decode_command(answer)

    async def ended(self) -> bool:
        """Wait for the server to close the connection; whatever it still sends is not looked at."""
        async with asyncio.timeout(PATIENCE_S):
            while await self._reader.read(65_536):
                pass
        return True


@asynccontextmanager
async def plain_connection(address: str) -> AsyncIterator[Wire]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()
        await writer.wait_closed()
