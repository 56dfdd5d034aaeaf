"""Sends: putting the messages of clients into the store, and answering when they are safe.

Rules kept here:
- A sender hears of success when its message is as safe as the settings, and the message itself, ask for: at
  once, or when it is on the disk. A topic that was made for the message is on the disk, too.
- What is not for consumers yet waits elsewhere: messages of transactions, and those with a delay or a
  delivery time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Final, NamedTuple

from cometmq.broker.monitor.counters import DELAYED, PLAIN, TRANSACTION, Traffic
from cometmq.broker.saved_tables import SavedTable
from cometmq.broker.send.answers import SendAnswers
from cometmq.broker.send.checks import (
    AnySend,
    SendChecks,
    SendRefused,
    SendTarget,
    refuse_large_batch,
)
from cometmq.broker.send.pressure import Pressure
from cometmq.broker.send.properties import SPECIAL, TIMER_PROPERTIES, PropertyLayouts, stored_block
from cometmq.broker.send.retries import Retries
from cometmq.broker.send.safety import SendSafety
from cometmq.broker.send.unique_ids import UniqueIds
from cometmq.broker.settings import Settings
from cometmq.broker.timers.delay_levels import DelayService, put_aside, read_level
from cometmq.broker.timers.schedule import recall_handle, wants_timer
from cometmq.broker.timers.service import TimerService
from cometmq.broker.topics.topics import Topics
from cometmq.broker.transactions.half_messages import prepare
from cometmq.broker.transactions.service import TransactionService
from cometmq.model.errors import ProtocolError
from cometmq.model.message import Host
from cometmq.model.message_properties import (
    CLUSTER,
    CRC32,
    ONCE,
    POP_CK,
    REAL_TOPIC,
    TRAN_MSG,
    UNIQ_KEY,
    WAIT,
)
from cometmq.model.names import DELAY_TOPIC, MAX_TOPIC_LENGTH, RETRY_PREFIX, TIMER_TOPIC, TRANS_HALF_TOPIC
from cometmq.model.sysflag import TRANSACTION_MASK, TransactionType
from cometmq.ports.clock import Clock
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import DEFERRED, Answer, Deferred
from cometmq.store.log.batch import MessageBatch
from cometmq.store.message_store import MessageStore
from cometmq.store.put.writer import PutResult
from cometmq.store.status import PutStatus
from cometmq.store.tables.tables import TopicTable
from cometmq.wire.codes import ResponseCode
from cometmq.wire.frame.command import Body, Command
from cometmq.wire.record.batch import decode_batch
from cometmq.wire.record.codec import Record
from cometmq.wire.record.ids import pack_host
from cometmq.wire.record.properties import parse_properties

_OK: Final = PutStatus.PUT_OK
_QUEUED_TYPES: Final = (TransactionType.NONE, TransactionType.COMMIT)
_MESSAGE_TYPES: Final = {DELAY_TOPIC: DELAYED, TIMER_TOPIC: DELAYED, TRANS_HALF_TOPIC: TRANSACTION}
"""The message type by the topic in which it waits."""


class PutSend(NamedTuple):
    """A send whose message, or batch, was put or could not be put."""

    result: PutResult
    queue_id: int
    unique_key: str | None
    waits: bool
    """Whether the sender waits for the disk."""
    topic_made: bool
    """Whether the topic was made for it."""
    recall_handle: str | None = None


Finish = Callable[[PutSend, Command, Connection], Answer | Deferred]
"""Answers a send."""


class MessageSender:
    """Puts the messages of sends; belongs to the event loop."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        host: Host,
        store: MessageStore,
        topics: Topics,
        topic_file: SavedTable[TopicTable],
        traffic: Traffic,
        pressure: Pressure,
        safety: SendSafety,
        send_answers: SendAnswers,
        retries: Retries,
        delays: DelayService,
        timers: TimerService,
        transactions: TransactionService,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._store = store
        self._delays = delays
        self._retries = retries
        self._timers = timers
        self._traffic = traffic
        self._topic_file = topic_file
        self.checks = SendChecks(settings, clock, topics)
        self.answers = send_answers
        config = settings.broker
        self.layouts = PropertyLayouts({**self.answers.fields, CLUSTER: config.broker_cluster_name})
        self._ids = UniqueIds(host.ip, clock)
        self.hosts: dict[Connection, bytes] = {}
        """The addresses of clients that have sent something, packed."""
        self.pressure = pressure
        self.open_transactions = transactions.counts
        self.safety = safety
        self.answers_wait = safety.answers_wait

    def connection_closed(self, connection: Connection) -> None:
        """Forget the address of a client that is gone."""
        self.hosts.pop(connection, None)

    def born_host(self, connection: Connection) -> bytes:
        """The address of a client, packed."""
        packed = self.hosts.get(connection)
        if packed is None:
            packed = _pack_address(connection.remote_address)
            if connection.is_open:
                self.hosts[connection] = packed
        return packed

    def record(
        self,
        header: AnySend,
        target: SendTarget,
        connection: Connection,
        queue_id: int,
        body: Body,
        properties_block: bytes = b"",
    ) -> Record:
        """The record of a message, or the head of a batch, as its request says."""
        return Record(
            header.topic,
            body,
            properties_block,
            queue_id=queue_id,
            flag=header.flag,
            sys_flag=header.sys_flag | target.sys_flag,
            born_timestamp_ms=header.born_timestamp,
            born_host=self.born_host(connection),
            reconsume_times=header.reconsume_times or 0,
        )

    # One message

    def send(
        self,
        header: AnySend,
        request: Command,
        connection: Connection,
        *,
        added: Mapping[str, str] | None = None,
        finish: Finish | None = None,
    ) -> Answer | Deferred:
        """Put a message or a batch, whatever is special about it.

        `added` are further properties of the broker; `finish` answers in place of the method of this name.
        """
        if self.pressure.refusal is not None:
            return self.answers.refuse(ResponseCode.SYSTEM_BUSY, self.pressure.refusal)
        try:
            if header.batch:
                return self._send_batch(header, request, connection, added, finish or self.finish)
            topics_before = self._topics.generation
            target = self.checks.target(header, connection.remote_address)
            queue_id = self._queue_id(header, target)
            record, properties = self._record(header, request, connection, target, queue_id, added)
            self._divert(record, properties)
        except SendRefused as refusal:
            return self.answers.refuse(refusal.code or ResponseCode.SYSTEM_ERROR, refusal.message)
        started = perf_counter()
        if self.answers_wait and self._lacks_replicas(properties):
            return self.answers.not_stored(PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH)
        result = self._store.put(record)
        self._count(header.topic, record.topic, result, started)
        recall = None
        if record.topic == DELAY_TOPIC:
            self._delays.stored(record)
        elif record.topic == TIMER_TOPIC:
            recall = recall_handle(properties, self._settings.broker.broker_name)
        elif record.topic == TRANS_HALF_TOPIC and result.status is _OK:
            self.open_transactions.add(properties[REAL_TOPIC], 1)
        send = self._put_send(result, queue_id, properties, topics_before, recall)
        return (finish or self.finish)(send, request, connection)

    def _record(
        self,
        header: AnySend,
        request: Command,
        connection: Connection,
        target: SendTarget,
        queue_id: int,
        added: Mapping[str, str] | None,
    ) -> tuple[Record, dict[str, str]]:
        properties = self._properties(header, added)
        record = self.record(header, target, connection, queue_id, request.body)
        if header.topic.startswith(RETRY_PREFIX):
            self._retries.redirect(header, request.version, record, properties)
        properties.setdefault(UNIQ_KEY, self._ids.next_id())
        properties[CLUSTER] = self._settings.broker.broker_cluster_name
        return record, properties

    def _properties(self, header: AnySend, added: Mapping[str, str] | None) -> dict[str, str]:
        properties = parse_properties(header.properties or "")
        properties.update(self.answers.fields)
        properties.pop(POP_CK, None)
        properties.pop(CRC32, None)  # a checksum of the record, which only the store can know
        properties.pop(ONCE, None)  # of a copy; SEND_ONCE adds its own
        if added is not None:
            properties.update(added)
        return properties

    @staticmethod
    def _queue_id(header: AnySend, target: SendTarget) -> int:
        if header.queue_id >= 0:
            return header.queue_id
        if not target.write_queues:
            remark = f"topic[{header.topic}] has no queue to write to"
            raise SendRefused(ResponseCode.INVALID_PARAMETER, remark)
        return random.randrange(target.write_queues)

    def _divert(self, record: Record, properties: dict[str, str]) -> None:
        """Encode the properties, and put a message aside that is not for consumers yet."""
        record.properties_block = stored_block(properties)
        if not SPECIAL & properties.keys():
            return
        level = read_level(properties)
        if properties.get(TRAN_MSG, "").lower() == "true" and not (record.reconsume_times > 0 and level > 0):
            prepare(self._settings.broker, record, properties, level)
            return
        if record.sys_flag & TRANSACTION_MASK not in _QUEUED_TYPES:
            return
        if level > 0:
            put_aside(record, properties, level, self._delays.levels)
        elif wants_timer(record, properties):
            self._timers.set(record, properties)

    # A batch

    def _send_batch(
        self,
        header: AnySend,
        request: Command,
        connection: Connection,
        added: Mapping[str, str] | None,
        finish: Finish,
    ) -> Answer | Deferred:
        topics_before = self._topics.generation
        target = self.checks.target(header, connection.remote_address)
        topic = header.topic
        if len(topic) > MAX_TOPIC_LENGTH:
            raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(topic)}")
        if topic.startswith(RETRY_PREFIX):
            raise SendRefused(
                ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {topic}"
            )
        properties = self._properties(header, added)
        properties[CLUSTER] = self._settings.broker.broker_cluster_name
        if any(name in properties for name in TIMER_PROPERTIES):
            raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot have a delivery time")
        try:
            items = decode_batch(request.body)
        except ProtocolError as error:
            raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, error.message) from None
        refuse_large_batch(items, len(request.body))
        queue_id, block = self._queue_id(header, target), stored_block(properties)
        head = self.record(header, target, connection, queue_id, b"", block)
        batch = MessageBatch(head, items, len(request.body))
        started = perf_counter()
        if self.answers_wait and self._lacks_replicas(properties):
            return self.answers.not_stored(PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH)
        result = self._store.put_batch(batch)
        self._count(topic, topic, result, started)
        return finish(self._put_send(result, head.queue_id, properties, topics_before), request, connection)

    def _put_send(
        self,
        result: PutResult,
        queue_id: int,
        properties: Mapping[str, str],
        topics_before: int,
        recall: str | None = None,
    ) -> PutSend:
        waits, topic_made = properties.get(WAIT) != "false", self._topics.generation != topics_before
        return PutSend(result, queue_id, properties.get(UNIQ_KEY), waits, topic_made, recall)

    def _count(self, topic: str, stored_in: str, result: PutResult, started: float) -> None:
        if result.status is _OK:
            size = result.end_offset - result.physical_offset
            message_type = _MESSAGE_TYPES.get(stored_in, PLAIN)
            self._traffic.took(topic, len(result.sizes) or 1, size, perf_counter() - started, message_type)

    def _lacks_replicas(self, properties: Mapping[str, str]) -> bool:
        return self.safety.lacks_replicas and properties.get(WAIT) != "false"

    # Answers

    def finish(self, send: PutSend, request: Command, connection: Connection) -> Answer | Deferred:
        """The answer to a send, now or when the message is safe."""
        if send.result.status is not _OK:
            return self.answers.not_stored(send.result.status)

        def answer(status: PutStatus) -> Answer:
            return self.answers.stored(
                send.result, status, send.queue_id, send.unique_key, send.recall_handle
            )

        return self.answer_when_safe(send, request, connection, answer)

    def answer_when_safe(
        self,
        send: PutSend,
        request: Command,
        connection: Connection,
        answer: Callable[[PutStatus], Answer],
    ) -> Answer | Deferred:
        """Answer for a message that was put, now or when it, and its new topic, are on the disk."""
        waits = send.waits and self.answers_wait
        if send.topic_made:

            def after_save(_: OSError | None) -> None:  # the table is saved later, if not now
                if waits:
                    self.answer_when_copied(send.result, request, connection, answer)
                else:
                    connection.answer(request, answer(_OK))

            self._topic_file.when_saved(after_save)
            return DEFERRED
        if waits:
            return self.answer_when_copied(send.result, request, connection, answer)
        return answer(_OK)

    def answer_when_copied(
        self,
        result: PutResult,
        request: Command,
        connection: Connection,
        answer: Callable[[PutStatus], Answer],
    ) -> Deferred:
        """Answer when the message is on the disk and on replicas, as the settings ask, or after too long."""
        started, messages = perf_counter(), len(result.sizes) or 1

        def done(status: PutStatus) -> None:
            self.pressure.waited()
            self._traffic.put_times.took(perf_counter() - started, messages)
            connection.answer(request, answer(status))

        self.pressure.waits()
        self.safety.when_safe(result.end_offset, done)
        return DEFERRED


def _pack_address(address: str) -> bytes:
    host, _, port = address.rpartition(":")
    host = host.partition("%")[0]
    if "." in host:
        host = host.removeprefix("::ffff:")  # IPv4 on a socket that takes both
    return pack_host(Host(host, int(port)))
