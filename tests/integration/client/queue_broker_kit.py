"""A broker for consumers that does what a test tells it: queues in memory, and answers out of the usual."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from cometmq.client.consumer.push import PushConsumer
from cometmq.model.message import Host, StoredMessage
from cometmq.model.queue import MessageQueue
from cometmq.model.route import BrokerData, QueueData, TopicRoute
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import DEFERRED, Answer, Result, handles
from cometmq.wire.bodies.consumer_info import decode_lock_request, encode_locked
from cometmq.wire.bodies.heartbeat import ConsumeFromWhere, HeartbeatData, decode_heartbeat
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.offset import (
    GetMaxOffsetRequest,
    GetMaxOffsetResponse,
    QueryConsumerOffsetRequest,
    QueryConsumerOffsetResponse,
    UpdateConsumerOffsetRequest,
)
from cometmq.wire.headers.pull import PullMessageRequest, PullMessageResponse
from cometmq.wire.headers.send import ConsumerSendMsgBackRequest, SendMessageRequestV2, SendMessageResponse
from cometmq.wire.headers.session import (
    GetConsumerListByGroupRequest,
    HeartbeatRequest,
    LockBatchMqRequest,
    UnlockBatchMqRequest,
    UnregisterClientRequest,
)
from cometmq.wire.json import fastjson
from cometmq.wire.record.codec import Record, encode_record
from cometmq.wire.record.ids import pack_host
from cometmq.wire.record.properties import encode_properties
from tests.integration.client.client_kit import FakeNamesrv, FakeServer
from tests.waiting import eventually

TOPIC = "orders"
GROUP = "billing"
RETRIES = f"%RETRY%{GROUP}"
BROKER = "broker-a"
HOST = pack_host(Host("127.0.0.1", 10911))


class QueueBroker(FakeServer):
    """Has queues, offsets, members and locks of one group."""

    def __init__(self, members: Callable[[], list[str] | None]) -> None:
        super().__init__()
        self._members = members
        self.queues: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.first_offset = 0
        """The offset of the oldest message of every queue."""
        self.committed: dict[tuple[str, int], int] = {}
        self.pulls: list[PullMessageRequest] = []
        self.pull_codes: deque[int] = deque()
        """Answers to the next pulls, before the usual ones."""
        self.suggested_broker_id = 0
        self.held: list[tuple[PullMessageRequest, Command, Connection]] = []
        self.sent_back: list[ConsumerSendMsgBackRequest] = []
        self.send_back_codes: deque[int] = deque()
        self.copies: list[tuple[SendMessageRequestV2, bytes]] = []
        self.send_codes: deque[int] = deque()
        self.heartbeats: list[HeartbeatData] = []
        self.locks_denied = False
        self.unanswered: set[RequestCode] = set()
        """Requests for locks or offsets that get no answer."""
        self.asked: list[RequestCode] = []
        """The requests that got none."""
        self.unlocked: list[MessageQueue] = []

    def add(self, *bodies: str, topic: str = TOPIC, queue_id: int = 0) -> None:
        """Put messages into a queue, and give them to whoever waits for them."""
        records = self.queues[topic, queue_id]
        for body in bodies:
            properties = encode_properties({"UNIQ_KEY": f"ID-{body}", "RETRY_TOPIC": TOPIC})
            offset = self.first_offset + len(records)
            record = Record(
                topic,
                body.encode(),
                properties,
                queue_id=queue_id,
                queue_offset=offset,
                physical_offset=offset * 1000,
                born_host=HOST,
                store_host=HOST,
            )
            records.append(bytes(encode_record(record)))
        held, self.held = self.held, []
        for header, request, connection in held:
            answer = self._read(header)
            if answer is None:
                self.held.append((header, request, connection))
            else:
                connection.answer(request, answer)

    @handles(RequestCode.PULL_MESSAGE, PullMessageRequest)
    @handles(RequestCode.LITE_PULL_MESSAGE, PullMessageRequest)
    def pull(self, header: PullMessageRequest, request: Command, connection: Connection) -> Result:
        self.pulls.append(header)
        if self.pull_codes:
            return Answer(self.pull_codes.popleft(), remark="not today")
        answer = self._read(header)
        if answer is None:
            self.held.append((header, request, connection))
            return DEFERRED
        return answer

    def _read(self, header: PullMessageRequest) -> Answer | None:
        records = self.queues[header.topic, header.queue_id]
        least, most = self.first_offset, self.first_offset + len(records)
        at = header.queue_offset
        if not least <= at <= most:
            return self._answer(ResponseCode.PULL_OFFSET_MOVED, least if at < least else most, most)
        found = records[at - least : at - least + header.max_msg_nums]
        if not found:
            return None
        return self._answer(ResponseCode.SUCCESS, at + len(found), most, b"".join(found))

    def _answer(self, code: ResponseCode, next_offset: int, most: int, body: bytes = b"") -> Answer:
        header = PullMessageResponse(
            suggest_which_broker_id=self.suggested_broker_id,
            next_begin_offset=next_offset,
            min_offset=self.first_offset,
            max_offset=most,
        )
        return Answer(code, header=header, body=body)

    @handles(RequestCode.HEART_BEAT, HeartbeatRequest)
    def heartbeat(self, header: HeartbeatRequest, request: Command, connection: Connection) -> Answer:
        self.heartbeats.append(decode_heartbeat(request.body))
        return Answer()

    @handles(RequestCode.UNREGISTER_CLIENT, UnregisterClientRequest)
    def leave(self, header: UnregisterClientRequest, request: Command, connection: Connection) -> Answer:
        return Answer()

    @handles(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequest)
    def members(
        self, header: GetConsumerListByGroupRequest, request: Command, connection: Connection
    ) -> Answer:
        members = self._members()
        if members is None:
            return Answer(ResponseCode.SYSTEM_ERROR, remark="no consumer for this group")
        return Answer(body=fastjson.dumps({"consumerIdList": members}))

    @handles(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequest)
    def offset(self, header: QueryConsumerOffsetRequest, request: Command, connection: Connection) -> Result:
        if self._ignores(RequestCode.QUERY_CONSUMER_OFFSET):
            return DEFERRED
        offset = self.committed.get((header.topic, header.queue_id))
        if offset is None:
            return Answer(ResponseCode.QUERY_NOT_FOUND, remark="Not found")
        return Answer(header=QueryConsumerOffsetResponse(offset=offset))

    @handles(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequest)
    def commit(self, header: UpdateConsumerOffsetRequest, request: Command, connection: Connection) -> Answer:
        self.committed[header.topic, header.queue_id] = header.commit_offset
        return Answer()

    @handles(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequest)
    def max_offset(self, header: GetMaxOffsetRequest, request: Command, connection: Connection) -> Answer:
        count = len(self.queues[header.topic, header.queue_id])
        return Answer(header=GetMaxOffsetResponse(offset=self.first_offset + count))

    def _ignores(self, code: RequestCode) -> bool:
        if code in self.unanswered:
            self.asked.append(code)
        return code in self.unanswered

    @handles(RequestCode.LOCK_BATCH_MQ, LockBatchMqRequest)
    def lock(self, header: LockBatchMqRequest, request: Command, connection: Connection) -> Result:
        if self._ignores(RequestCode.LOCK_BATCH_MQ):
            return DEFERRED
        queues = decode_lock_request(request.body).queues
        return Answer(body=encode_locked(() if self.locks_denied else queues))

    @handles(RequestCode.UNLOCK_BATCH_MQ, UnlockBatchMqRequest)
    def unlock(self, header: UnlockBatchMqRequest, request: Command, connection: Connection) -> Answer:
        self.unlocked += decode_lock_request(request.body).queues
        return Answer()

    @handles(RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequest)
    def send_back(
        self, header: ConsumerSendMsgBackRequest, request: Command, connection: Connection
    ) -> Answer:
        self.sent_back.append(header)
        return Answer(self.send_back_codes.popleft() if self.send_back_codes else 0, remark="not today")

    @handles(RequestCode.SEND_MESSAGE_V2, SendMessageRequestV2)
    def send(self, header: SendMessageRequestV2, request: Command, connection: Connection) -> Answer:
        self.copies.append((header, bytes(request.body)))
        if self.send_codes:
            return Answer(self.send_codes.popleft(), remark="not today")
        return Answer(header=SendMessageResponse(msg_id="0", queue_id=header.queue_id, queue_offset=0))


class QueueCluster:
    """A name server, a master and a replica of it, and one consumer."""

    def __init__(self) -> None:
        self.namesrv = FakeNamesrv()
        self.consumer: PushConsumer | None = None
        self.other_members: list[str] = []
        self.lists_members = True
        self.broker = QueueBroker(self.members)
        self.replica = QueueBroker(self.members)
        self.seen: list[StoredMessage] = []

    def members(self) -> list[str] | None:
        if not self.lists_members:
            return None
        consumer = self.consumer
        own = [] if consumer is None or consumer._instance is None else [consumer._instance.client_id]
        return own + self.other_members

    @property
    def bodies(self) -> list[str]:
        return [message.body.decode() for message in self.seen]

    async def sees(self, *bodies: str) -> None:
        """Wait until these messages were consumed, in any order."""
        await eventually(lambda: sorted(self.bodies) == sorted(bodies), f"{bodies}, not {self.bodies}")

    def make_consumer(self, listener: Any = None, **options: Any) -> PushConsumer:
        quick = {
            "consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            "min_rebalance_interval_ms": 10,
            "rebalance_interval_ms": 60_000,
            "persist_consumer_offset_interval_ms": 20,
            "pull_delay_when_exception_ms": 20,
        }
        consumer = PushConsumer(GROUP, namesrv=self.namesrv.address, **(quick | options))  # type: ignore[arg-type]
        consumer.subscribe(TOPIC, listener=listener or self.seen.append)
        self.consumer = consumer
        return consumer

    def set_routes(self, queues: int) -> None:
        addresses = {0: self.broker.address, 1: self.replica.address}
        for topic, count in ((TOPIC, queues), (RETRIES, 1)):
            self.namesrv.routes[topic] = TopicRoute(
                [QueueData(BROKER, count, count, 6)], [BrokerData("DefaultCluster", BROKER, addresses)]
            )


@asynccontextmanager
async def queue_cluster(queues: int = 1) -> AsyncIterator[QueueCluster]:
    """A cluster whose broker has the topic `orders` and the retry topic of the group."""
    cluster = QueueCluster()
    servers: Sequence[FakeServer] = (cluster.namesrv, cluster.broker, cluster.replica)
    for server in servers:
        await server.start()
    cluster.set_routes(queues)
    try:
        yield cluster
    finally:
        await asyncio.gather(*(server.stop() for server in servers))


def queue(number: int = 0, topic: str = TOPIC) -> MessageQueue:
    return MessageQueue(topic, BROKER, number)
