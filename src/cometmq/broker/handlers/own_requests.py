"""Requests that only CometMQ brokers answer: exactly-once sends, and records encoded by the sender.

Rules kept here:
- Topic and queue are checked as those of any send are, and records before any of them is put.
- What is answered as stored is as safe as the settings ask for.
- A broker that cannot put records as they are answers as if it did not know the request: because it has no
  NumPy, adds something to every record, it or the writer has an address of 16 bytes, or the topic is no plain
  one.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable
from time import perf_counter
from typing import Final

import msgspec
from zlib_ng.zlib_ng import crc32

from cometmq.broker.context import BrokerContext
from cometmq.broker.send.checks import SendRefused
from cometmq.broker.send.exactly_once import OnceRefused, WriterSequence
from cometmq.broker.send.send import PutSend
from cometmq.model.errors import MessageError
from cometmq.model.message_properties import ONCE
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import DEFERRED, Answer, Deferred, handles
from cometmq.store.index.arrays import arrays_are_loaded, has_arrays, load_arrays
from cometmq.store.put.bulk import RecordBulk, can_take
from cometmq.store.status import PutStatus
from cometmq.wire.codes import ResponseCode
from cometmq.wire.exactly_once import (
    OnceStep,
    OwnRequestCode,
    SendOnceRequest,
    SendOnceResponse,
    StandingRequest,
    StandingResponse,
    without_first,
)
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.send import SendMessageRequestV2
from cometmq.wire.record.codec import Record
from cometmq.wire.record.preencoded import read_description

log = logging.getLogger("cometmq.broker")

_OK: Final = PutStatus.PUT_OK
_NOT_SAFE: Final = "what is stored is not known to be on the disk; ask again"
_ASK_FIRST: Final = "ask for the state of the writer sequence before the first message is sent"
_Sent = tuple[SendMessageRequestV2, Command, Connection, bytes]
"""A request, with the connection that it came by and its address."""
_SEND_BATCHES: Final = "no records are taken here; send batches instead"


class OnceHandlers:
    """GET_STANDING and SEND_ONCE."""

    def __init__(self, context: BrokerContext) -> None:
        self._once = context.once
        self._sender = context.sender

    @handles(OwnRequestCode.GET_STANDING, StandingRequest)
    async def sequence_state(self, header: StandingRequest) -> Answer:
        """How far a sequence is, and safely so."""
        await self._once.prepare()
        sequence = self._once.sequences.get(header.query, header.topic, header.partition)
        if not await self._once.wait_safe(sequence.end_offset):
            return Answer(ResponseCode.FLUSH_DISK_TIMEOUT, remark=_NOT_SAFE)
        return Answer(
            header=StandingResponse(
                batch=sequence.batch,
                next_sequence=sequence.next_sequence,
                digest=sequence.digest,
                shards=sequence.shards,
            )
        )

    @handles(OwnRequestCode.SEND_ONCE, SendOnceRequest)
    def send(
        self, header: SendOnceRequest, request: Command, connection: Connection
    ) -> Answer | Deferred | Awaitable[Answer]:
        """Put what a sequence has not got yet."""
        if not self._once.is_ready:
            raise OnceRefused(_ASK_FIRST)
        sequences = self._once.sequences
        sequence = sequences.get(header.query, header.topic, header.partition)
        step = _step_of(header)
        first = sequences.missing_from(sequence, step)
        if first is None:
            return self._nothing_to_store(sequence) if self._sender.answers_wait else _state_of(sequence)
        body, digest = request.body, header.digest_before
        if first > step.first:
            known, body = without_first(body, first - step.first)
            digest = crc32(known, digest)
        sequences.check_digest(sequence, step, digest)
        step = msgspec.structs.replace(step, first=first, count=step.end - first)
        command = msgspec.structs.replace(request, body=body)
        return self._sender.send(
            _plain_send(header),
            command,
            connection,
            added={ONCE: step.value()},
            finish=functools.partial(self._finish, sequence, step),
        )

    def _finish(
        self,
        sequence: WriterSequence,
        step: OnceStep,
        send: PutSend,
        request: Command,
        connection: Connection,
    ) -> Answer | Deferred:
        """Let a sequence go on with its messages, and answer when they are safe."""
        sender, result = self._sender, send.result
        if result.status is not _OK:
            return sender.answers.not_stored(result.status)
        self._once.is_dirty = True
        advanced = self._once.sequences.advance(sequence, step, result.end_offset, result.store_timestamp_ms)
        sender.answers.count(step.count, result.end_offset - result.physical_offset, result.end_offset)

        def answer(status: PutStatus) -> Answer:
            if status is _OK:
                return _state_of(advanced, step.count)
            return Answer(ResponseCode.FLUSH_DISK_TIMEOUT, remark=_NOT_SAFE)

        return sender.answer_when_safe(send, request, connection, answer)

    async def _nothing_to_store(self, sequence: WriterSequence) -> Answer:
        if not await self._once.wait_safe(sequence.end_offset):
            return Answer(ResponseCode.FLUSH_DISK_TIMEOUT, remark=_NOT_SAFE)
        return _state_of(sequence)


def _state_of(sequence: WriterSequence, stored: int = 0) -> Answer:
    """The answer to a writer."""
    return Answer(
        header=SendOnceResponse(
            batch=sequence.batch,
            next_sequence=sequence.next_sequence,
            digest=sequence.digest,
            shards=sequence.shards,
            stored=stored,
        )
    )


def _step_of(header: SendOnceRequest) -> OnceStep:
    if (
        header.count < 1
        or (header.single and header.count > 1)
        or min(header.first_sequence, header.batch) < 0
    ):
        raise OnceRefused("a request has at least one message, and numbers from 0 on")
    if not header.query or any(ord(each) < 0x20 for each in header.query):
        raise OnceRefused("a query has a name without control characters")
    return OnceStep(
        header.query,
        header.batch,
        header.partition,
        header.first_sequence,
        header.count,
        header.digest_after,
        header.shards,
    )


def _plain_send(header: SendOnceRequest) -> SendMessageRequestV2:
    """The request as it would be without a sequence."""
    return SendMessageRequestV2(
        producer_group=header.producer_group,
        topic=header.topic,
        default_topic=header.default_topic,
        default_topic_queue_nums=header.default_topic_queue_nums,
        queue_id=header.queue_id,
        sys_flag=0,
        born_timestamp=header.born_timestamp,
        flag=0,
        properties=header.properties,
        batch=not header.single,
    )


class RecordsHandlers:
    """SEND_RECORDS."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._sender = context.sender
        self._waiting: list[_Sent] = []
        """Requests that came before NumPy was loaded; connections bound how many."""

    @handles(OwnRequestCode.SEND_RECORDS, SendMessageRequestV2)
    def send(
        self, header: SendMessageRequestV2, request: Command, connection: Connection
    ) -> Answer | Deferred:
        """Put all of them, or none."""
        born_host = self._sender.born_host(connection)
        takes_them = self._context.store.writer.takes_bulks and can_take(born_host, born_host)
        if not takes_them or not has_arrays():
            return _not_supported()
        if not arrays_are_loaded():
            self._wait((header, request, connection, born_host))
            return DEFERRED
        return self._put(header, request, connection, born_host)

    def _wait(self, sent: _Sent) -> None:
        """Put the first ones, in their order, when what is needed for it is loaded."""
        self._waiting.append(sent)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().run_in_executor(None, load_arrays).add_done_callback(self._go_on)

    def _go_on(self, loading: asyncio.Future[bool]) -> None:
        waiting, self._waiting = self._waiting, []
        failure = loading.exception()
        if failure is not None:
            log.error("NumPy is installed and cannot be loaded: %s; records are not taken", failure)
        for header, request, connection, born_host in waiting:
            if failure is not None:
                result: Answer | Deferred = _not_supported()
            else:
                result = self._put(header, request, connection, born_host)
            if isinstance(result, Answer):
                connection.answer(request, result)

    def _put(
        self, header: SendMessageRequestV2, request: Command, connection: Connection, born_host: bytes
    ) -> Answer | Deferred:
        sender, answers = self._sender, self._sender.answers
        if sender.pressure.refusal is not None:
            return answers.refuse(ResponseCode.SYSTEM_BUSY, sender.pressure.refusal)
        topics_before = self._context.topics.generation
        try:
            target = sender.checks.target(header, connection.remote_address)
            if not target.is_plain or target.sys_flag:
                raise SendRefused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, _SEND_BATCHES)
            bulk = self._read(header, request, born_host)
        except (SendRefused, MessageError) as refusal:
            return answers.refuse(refusal.code or ResponseCode.MESSAGE_ILLEGAL, refusal.message)
        started = perf_counter()
        result = self._context.store.put_batch(bulk)
        if result.status is not PutStatus.PUT_OK:
            return answers.not_stored(result.status)
        seconds, queue_id = perf_counter() - started, header.queue_id
        self._context.traffic.took(header.topic, bulk.count, bulk.packed_size, seconds)
        answers.count(bulk.count, bulk.packed_size, result.end_offset)

        def answer(status: PutStatus) -> Answer:
            return answers.stored_alone(status, queue_id, result.queue_offset, result.physical_offset, b"")

        topic_made = self._context.topics.generation != topics_before
        send = PutSend(result, queue_id, None, waits=True, topic_made=topic_made)
        return sender.answer_when_safe(send, request, connection, answer)

    def _read(self, header: SendMessageRequestV2, request: Command, born_host: bytes) -> RecordBulk:
        count, keyed = read_description(header.properties)
        if header.queue_id < 0:
            raise MessageError("records have to be for a queue")
        head = Record(header.topic, b"", queue_id=header.queue_id, born_host=born_host)
        max_size = self._context.settings.store.max_message_size
        return RecordBulk(head, request.body, count, keyed=keyed, max_size=max_size)


def _not_supported() -> Answer:
    return Answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=_SEND_BATCHES)
