"""A running broker on loopback, and consumers that talk to it in plain requests over real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cometmq.broker.broker import Broker
from cometmq.broker.config import BrokerConfig
from cometmq.model.topic import TopicConfig
from cometmq.ports.clock import Clock
from cometmq.remoting.client import RemotingClient
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, HandlerTable, NoHeader
from cometmq.store.config import StoreConfig
from cometmq.wire.bodies.heartbeat import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
    encode_heartbeat,
)
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import Command
from cometmq.wire.header.schema import Header
from cometmq.wire.headers.pull import PullMessageRequest
from cometmq.wire.headers.send import SendMessageRequest
from cometmq.wire.headers.session import HeartbeatRequest, UnregisterClientRequest
from cometmq.wire.java_hash import java_hash
from cometmq.wire.record.properties import format_properties
from tests.answers import Told, told

PATIENCE_S = 30.0
TOPIC = "Orders"
GROUP = "billing"
COMMIT, HOLD, BRINGS_SUBSCRIPTION = 1, 2, 4


def tags(topic: str, *names: str, version: int = 1) -> SubscriptionData:
    """A subscription to tags; to everything without any."""
    return SubscriptionData(
        topic, " || ".join(names) or "*", names, tuple(map(java_hash, names)), sub_version=version
    )


def sql(topic: str, expression: str, version: int = 1) -> SubscriptionData:
    return SubscriptionData(topic, expression, sub_version=version, expression_type="SQL92")


class Visitor:
    """A client with a connection of its own; it remembers what the broker asks it."""

    def __init__(self, address: str, client_id: str = "visitor") -> None:
        self.address = address
        self.client_id = client_id
        self.heard: list[tuple[int, dict[str, str | None], bytes]] = []
        self.answers: dict[int, Callable[[Command], Answer]] = {}
        table = HandlerTable()
        for code in (
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
        ):
            table.add(code, NoHeader, self._hear)
        self.client = RemotingClient(handlers=table)

    def _hear(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        self.heard.append((request.code, dict(request.fields()), bytes(request.body)))
        answer = self.answers.get(request.code)
        return Answer() if answer is None else answer(request)

    def times_heard(self, code: int) -> int:
        return sum(heard == code for heard, _, _ in self.heard)

    async def ask(
        self,
        code: int,
        header: Header | None = None,
        *,
        body: bytes = b"",
        timeout_s: float = PATIENCE_S,
    ) -> Told:
        return told(await self.client.call(self.address, code, header, body=body, timeout_s=timeout_s))

    async def heartbeat(
        self,
        *subscriptions: SubscriptionData,
        group: str = GROUP,
        consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY,
        model: MessageModel = MessageModel.CLUSTERING,
        fingerprint: int = 0,
        without_sub: bool = False,
    ) -> Told:
        consumer = ConsumerData(group, consume_type, model, subscription_data_set=subscriptions)
        data = HeartbeatData(self.client_id, (), (consumer,), fingerprint, without_sub)
        return await self.ask(RequestCode.HEART_BEAT, HeartbeatRequest(), body=encode_heartbeat(data))

    async def leave(self, group: str = GROUP) -> Told:
        header = UnregisterClientRequest(client_id=self.client_id, consumer_group=group)
        return await self.ask(RequestCode.UNREGISTER_CLIENT, header)

    async def pull(
        self,
        offset: int = 0,
        *,
        topic: str = TOPIC,
        group: str = GROUP,
        queue_id: int = 0,
        flag: int = 0,
        hold_ms: int = 15_000,
        code: int = RequestCode.PULL_MESSAGE,
        **fields: Any,
    ) -> Told:
        header = PullMessageRequest(
            **{
                "consumer_group": group,
                "topic": topic,
                "queue_id": queue_id,
                "queue_offset": offset,
                "max_msg_nums": 32,
                "sys_flag": flag,
                "commit_offset": 0,
                "suspend_timeout_millis": hold_ms,
                "sub_version": 0,
                **fields,
            }
        )
        return await self.ask(code, header, timeout_s=hold_ms / 1000 + PATIENCE_S)

    async def send(self, body: bytes, *, topic: str = TOPIC, queue_id: int = 0, **properties: str) -> Told:
        header = SendMessageRequest(
            producer_group="shop",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=0,
            born_timestamp=1,
            flag=0,
            properties=format_properties(properties),
        )
        answer = await self.ask(RequestCode.SEND_MESSAGE, header, body=body)
        assert answer.code == 0, answer
        return answer


class Visit:
    """A broker, and the clients that a test has let in."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.context = broker.context
        self._visitors: list[Visitor] = []

    def visitor(self, client_id: str = "visitor") -> Visitor:
        visitor = Visitor(f"127.0.0.1:{self.broker.port}", client_id)
        self._visitors.append(visitor)
        return visitor

    async def end(self) -> None:
        for visitor in self._visitors:
            await visitor.client.stop()
        await self.broker.stop()


@asynccontextmanager
async def running_broker(
    folder: Path, *, clock: Clock | None = None, store: Mapping[str, Any] | None = None, **config: Any
) -> AsyncIterator[Visit]:
    """A broker with a topic of four queues; `config` takes RocketMQ's settings by their Python names."""
    broker = Broker(
        BrokerConfig(
            **{
                "listen_port": 0,
                "bind_address": "127.0.0.1",
                "broker_ip1": "127.0.0.1",
                "broker_ip2": "127.0.0.1",
                "broker_name": "broker-a",
                **config,
            }
        ),
        StoreConfig(
            **{
                "store_path_root_dir": str(folder),
                "mapped_file_size_commit_log": 1024 * 1024,
                "mapped_file_size_consume_queue": 60_000,
                **(store or {}),
            }
        ),
        clock=clock,
    )
    await broker.start()
    broker.context.topics.update(TopicConfig(TOPIC, 4, 4))
    visit = Visit(broker)
    try:
        yield visit
    finally:
        await visit.end()
