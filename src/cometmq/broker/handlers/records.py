"""Records that a writer has put together itself; see `wire/record/log_records.py`.

Rules kept here:
- Topic and queue are checked as those of any send are, and the records themselves before any of them is put.
- What is answered as stored is as safe as the settings ask for.
- A broker that cannot put records as they are answers as if it did not know the request: because it has no
  NumPy, because it adds something to every record, because it or the writer has an address of 16 bytes, or
  because the topic is not a plain one.
"""

from __future__ import annotations

import asyncio
import logging
from time import perf_counter
from typing import Final

from cometmq.broker.context import BrokerContext
from cometmq.broker.send.checks import SendRefused
from cometmq.model.errors import MessageError
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import DEFERRED, Answer, Deferred, handles
from cometmq.store.index.arrays import arrays_are_loaded, has_arrays, load_arrays
from cometmq.store.put.bulk import RecordBulk, can_take
from cometmq.store.status import PutStatus
from cometmq.wire.codes import ResponseCode
from cometmq.wire.exactly_once import OwnRequestCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.send import SendMessageRequestV2
from cometmq.wire.record.log_records import read_description

log = logging.getLogger("cometmq.broker")

_Sent = tuple[SendMessageRequestV2, Command, Connection, bytes]
"""A request, with the connection that it came by and its address."""
_SEND_BATCHES: Final = "no records are taken here; send batches instead"


class RecordsHandlers:
    """SEND_RECORDS."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._sending = context.sending
        self._max_size = context.settings.store.max_message_size
        self._waiting: list[_Sent] = []
        """What came before the first could be put; connections bound how much that can be."""

    @handles(OwnRequestCode.SEND_RECORDS, SendMessageRequestV2)
    def send(
        self, header: SendMessageRequestV2, request: Command, connection: Connection
    ) -> Answer | Deferred:
        """Put all of them, or none."""
        born_host = self._sending.born_host(connection)
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
        sending, answers = self._sending, self._sending.answers
        if sending.pressure.refusal is not None:
            return answers.refuse(ResponseCode.SYSTEM_BUSY, sending.pressure.refusal)
        topics_before = self._context.topics.generation
        try:
            target = sending.checks.target(header, connection.remote_address)
            if not target.is_plain or target.sys_flag:
                raise SendRefused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, _SEND_BATCHES)
            bulk = self._read(header, request)
        except (SendRefused, MessageError) as refusal:
            return answers.refuse(refusal.code or ResponseCode.MESSAGE_ILLEGAL, refusal.message)
        started = perf_counter()
        result = self._context.store.put_bulk(header.topic, header.queue_id, bulk, born_host)
        if result.status is not PutStatus.PUT_OK:
            return answers.not_stored(result.status)
        seconds, queue_id = perf_counter() - started, header.queue_id
        self._context.traffic.took(header.topic, bulk.count, bulk.size, seconds)
        answers.count(bulk.count, bulk.size, result.end_offset)

        def answer(status: PutStatus) -> Answer:
            return answers.stored_alone(status, queue_id, result.queue_offset, result.physical_offset, b"")

        topic_made = self._context.topics.generation != topics_before
        return sending.answer_when_safe(
            result, request, connection, answer, waits=True, topic_made=topic_made
        )

    def _read(self, header: SendMessageRequestV2, request: Command) -> RecordBulk:
        count, keyed = read_description(header.properties)
        if header.queue_id < 0:
            raise MessageError("records have to be for a queue")
        return RecordBulk(
            request.body,
            count,
            keyed=keyed,
            topic=header.topic.encode(),
            queue_id=header.queue_id,
            max_size=self._max_size,
        )


def _not_supported() -> Answer:
    return Answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=_SEND_BATCHES)
