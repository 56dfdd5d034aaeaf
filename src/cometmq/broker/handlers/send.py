"""Sends: one message, or a batch.

Rules kept here: a plain message to a topic that was sent to before takes the short way, which costs no more
than the work itself: its properties are put together from their parts, the record is put, and the answer
leaves in the same turn. Whatever is special about a message, its topic or its sender is left to `sending.py`,
which does the same with all checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cometmq.broker.sending import Sending
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, Deferred, handles
from cometmq.store.status import PutStatus
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import Command
from cometmq.wire.headers.send import SendMessageRequest, SendMessageRequestV2
from cometmq.wire.record import Record

if TYPE_CHECKING:
    from cometmq.broker.state import BrokerState

_OK: Final = PutStatus.PUT_OK


class SendHandlers:
    """SEND_MESSAGE in its forms."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._sending = Sending(state)
        self._targets = self._sending.checks.targets
        self._find_shape = self._sending.shapes.find
        self._pressure = state.pressure
        self._put = state.store.put
        self._hosts = self._sending.hosts
        self._stored = self._sending.answers.stored

    @handles(RequestCode.SEND_MESSAGE, SendMessageRequest)
    def send_long(
        self, header: SendMessageRequest, request: Command, connection: Connection
    ) -> Answer | Deferred:
        """The form with long field names, of old clients."""
        return self._sending.send(header, request, connection)

    @handles(RequestCode.SEND_MESSAGE_V2, SendMessageRequestV2)
    @handles(RequestCode.SEND_BATCH_MESSAGE, SendMessageRequestV2)
    def send(
        self, header: SendMessageRequestV2, request: Command, connection: Connection
    ) -> Answer | Deferred:
        """Put a message, or a batch if the header says that it is one."""
        sending = self._sending
        target = self._targets.get(header.topic)
        text, queue_id = header.properties, header.queue_id
        if (
            target is None
            or text is None
            or not target.is_plain
            or not 0 <= queue_id < target.queues
            or header.batch
            or not text.isascii()
            or self._pressure.refusal is not None
        ):
            return sending.send(header, request, connection)
        block, shape = text.encode(), target.shape
        values = None if shape is None else shape.match(block)
        if shape is None or values is None:
            shape = target.shape = self._find_shape(block)
            values = None if shape is None else shape.match(block)
            if shape is None or values is None:
                return sending.send(header, request, connection)
        record = Record(
            header.topic,
            request.body,
            shape.stored(values),
            0,
            0,
            None,
            queue_id,
            header.flag,
            0,
            0,
            header.sys_flag | target.sys_flag,
            header.born_timestamp,
            self._hosts.get(connection) or sending.born_host(connection),
            reconsume_times=header.reconsume_times or 0,
        )
        result = self._put(record)
        if result.status is not _OK or sending.waits_for_flush:
            return sending.finish(
                result,
                request,
                connection,
                queue_id=queue_id,
                unique_key=shape.unique_key(values),
                waits=shape.waits(values),
                topic_made=False,
            )
        return self._stored(result, _OK, queue_id, shape.unique_key(values))
