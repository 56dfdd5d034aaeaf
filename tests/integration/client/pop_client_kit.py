"""A broker for pop consumers that does what a test tells it, and remembers what it was told."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from cometmq.client.consumer.pop.consumer import PopConsumer
from cometmq.model.message import StoredMessage
from cometmq.model.queue import MessageQueue
from cometmq.model.route import BrokerData, QueueData, TopicRoute
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import DEFERRED, Answer, NoHeader, Result, handles
from cometmq.wire.bodies.assignment import QueryAssignmentRequest, encode_assignments
from cometmq.wire.bodies.heartbeat import ConsumeFromWhere
from cometmq.wire.bodies.json_body import decode_json_body
from cometmq.wire.bodies.pop import BatchAck, decode_batch_acks
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
    PopMessageRequest,
    PopMessageResponse,
)
from cometmq.wire.record.codec import Record, encode_record
from cometmq.wire.record.properties import encode_properties
from tests.integration.client.client_kit import FakeNamesrv, FakeServer
from tests.integration.client.queue_broker_kit import BROKER, GROUP, HOST, TOPIC, QueueBroker
from tests.waiting import eventually

POP_TIME_MS = 1_700_000_000_000
WHOLE = MessageQueue(TOPIC, BROKER, -1)


def record(body: str, offset: int, *, queue_id: int = 0, attempts: int = 0, **properties: str) -> bytes:
    """A message as a broker hands it out."""
    return bytes(
        encode_record(
            Record(
                TOPIC,
                body.encode(),
                encode_properties({"UNIQ_KEY": f"ID-{body}", **properties}),
                queue_id=queue_id,
                queue_offset=offset,
                physical_offset=offset * 1000,
                reconsume_times=attempts,
                born_host=HOST,
                store_host=HOST,
            )
        )
    )


def popped(
    *records: bytes,
    starts: str | None = "0 0 0",
    offsets: str | None = None,
    counts: str | None = None,
    invisible_ms: int = 60_000,
    revive_queue: int = 3,
) -> Answer:
    """The answer to a pop."""
    header = PopMessageResponse(
        pop_time=POP_TIME_MS,
        invisible_time=invisible_ms,
        revive_qid=revive_queue,
        rest_num=0,
        start_offset_info=starts,
        msg_offset_info=offsets,
        order_count_info=counts,
    )
    return Answer(header=header, body=b"".join(records))


class PopBroker(QueueBroker):
    """Hands out what a test has prepared, pop by pop."""

    def __init__(self) -> None:
        super().__init__(list)
        self.assigned: list[MessageQueue] | None = []
        self.mode = "PULL"
        self.knows_assignments = True
        self.queries: list[QueryAssignmentRequest] = []
        self.prepared: deque[Answer] = deque()
        self.pops: list[PopMessageRequest] = []
        self.waiting: list[tuple[Command, Connection]] = []
        self.acks: list[AckMessageRequest] = []
        self.batches: list[tuple[BatchAck, ...]] = []
        self.ack_answers: deque[Answer | None] = deque()
        """Answers to the next acknowledgements, before the usual ones; None closes the connection."""
        self.acks_wait: asyncio.Event | None = None
        self.knows_batches = True
        self.changes: list[ChangeInvisibleTimeRequest] = []
        self.change_codes: deque[int] = deque()

    def give(self, *answers: Answer) -> None:
        """Answer the pops that wait, and the next ones."""
        self.prepared.extend(answers)
        while self.prepared and self.waiting:
            request, connection = self.waiting.pop(0)
            connection.answer(request, self.prepared.popleft())

    @property
    def acked(self) -> list[int]:
        """The offsets of all messages that were acknowledged."""
        batched = [offset for batch in self.batches for ack in batch for offset in ack.offsets]
        return sorted([ack.offset for ack in self.acks] + batched)

    @handles(RequestCode.QUERY_ASSIGNMENT, NoHeader)
    def assign(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        self.queries.append(decode_json_body(QueryAssignmentRequest, request.body))
        if not self.knows_assignments:
            return Answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="request type 400 not supported")
        return Answer(body=encode_assignments(self.assigned, self.mode))

    @handles(RequestCode.POP_MESSAGE, PopMessageRequest)
    def pop(self, header: PopMessageRequest, request: Command, connection: Connection) -> Result:
        self.pops.append(header)
        if self.prepared:
            return self.prepared.popleft()
        self.waiting.append((request, connection))
        return DEFERRED

    @handles(RequestCode.ACK_MESSAGE, AckMessageRequest)
    async def ack(self, header: AckMessageRequest, request: Command, connection: Connection) -> Answer:
        return await self._acknowledged(connection, lambda: self.acks.append(header))

    @handles(RequestCode.BATCH_ACK_MESSAGE, NoHeader)
    async def ack_batch(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        if not self.knows_batches:
            return Answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="request type 200151 not supported")
        acks = decode_batch_acks(request.body).acks
        return await self._acknowledged(connection, lambda: self.batches.append(acks))

    async def _acknowledged(self, connection: Connection, remember: Any) -> Answer:
        if self.acks_wait is not None:
            await self.acks_wait.wait()
        answer = self.ack_answers.popleft() if self.ack_answers else Answer()
        if answer is None:
            connection.close("on purpose")
            return Answer()
        if answer.code != ResponseCode.SYSTEM_BUSY:
            remember()
        return answer

    @handles(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ChangeInvisibleTimeRequest)
    def change(self, header: ChangeInvisibleTimeRequest, request: Command, connection: Connection) -> Answer:
        self.changes.append(header)
        if self.change_codes:
            return Answer(self.change_codes.popleft(), remark="not today")
        told = ChangeInvisibleTimeResponse(
            pop_time=POP_TIME_MS, invisible_time=header.invisible_time, revive_qid=3
        )
        return Answer(header=told)


class PopCluster:
    """A name server, a broker, and one pop consumer."""

    def __init__(self) -> None:
        self.namesrv = FakeNamesrv()
        self.broker = PopBroker()
        self.seen: list[StoredMessage] = []

    @property
    def bodies(self) -> list[str]:
        return [message.body.decode() for message in self.seen]

    async def sees(self, *bodies: str) -> None:
        """Wait until these messages were consumed, in any order."""
        await eventually(lambda: sorted(self.bodies) == sorted(bodies), f"{bodies}, not {self.bodies}")

    def make_consumer(self, listener: Any = None, *, expression: str = "*", **options: Any) -> PopConsumer:
        quick = {
            "consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            "min_rebalance_interval_ms": 10,
            "rebalance_interval_ms": 60_000,
            "pull_delay_when_exception_ms": 20,
        }
        consumer = PopConsumer(GROUP, namesrv=self.namesrv.address, **(quick | options))  # type: ignore[arg-type]
        consumer.subscribe(TOPIC, expression, listener=listener or self.seen.append)
        return consumer


@asynccontextmanager
async def pop_cluster() -> AsyncIterator[PopCluster]:
    """A cluster whose broker has the topic `orders` with two queues."""
    cluster = PopCluster()
    servers: Sequence[FakeServer] = (cluster.namesrv, cluster.broker)
    for server in servers:
        await server.start()
    brokers = [BrokerData("DefaultCluster", BROKER, {0: cluster.broker.address})]
    cluster.namesrv.routes[TOPIC] = TopicRoute([QueueData(BROKER, 2, 2, 6)], brokers)
    try:
        yield cluster
    finally:
        await asyncio.gather(*(server.stop() for server in servers))
