"""Sends: one message, or a batch.

Rules kept here:
- Plain messages to a topic that was sent to before take the short way, which costs no more than the work
  itself: their properties are put together from their parts, those that came in one read are put in one go,
  and their answers are made from a template.
- Half messages of transactions do the same, in the topic where they wait. Whatever else is special about a
  message, its topic or its sender is left to `sending.py`, which does the same with all checks.
- The order in which messages came is kept, whichever way they take.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Final, cast

from cometmq.broker.send_checks import SendTarget
from cometmq.broker.sending import Sending
from cometmq.broker.stored_properties import Stored
from cometmq.broker.topic_names import TRANS_HALF_TOPIC
from cometmq.broker.traffic import PLAIN, TRANSACTION
from cometmq.broker.transactions.half_sends import HalfSends
from cometmq.broker.transactions.halves import HALF_QUEUE
from cometmq.model.sysflag import TRANSACTION_MASK
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import DEFERRED, Answer, Deferred, RunResult, handles, handles_runs
from cometmq.store.put_runs import Later, PlainMessage, PutRun
from cometmq.store.status import PutStatus
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import Command
from cometmq.wire.frame import JSON, pack_head
from cometmq.wire.headers.send import SendMessageRequest, SendMessageRequestV2

if TYPE_CHECKING:
    from cometmq.broker.state import BrokerState

_OK: Final = PutStatus.PUT_OK
_NO_TRANSACTION: Final = ~TRANSACTION_MASK


class _PlainSends:
    """Plain sends of one connection to one topic, one behind the other."""

    __slots__ = ("are_halves", "connection", "framed", "messages", "requests", "target", "topic")

    def __init__(
        self, target: SendTarget, connection: Connection, *, framed: bool, are_halves: bool = False
    ) -> None:
        """With `framed`, answers may be given as the frames that they are sent in."""
        self.topic = target.topic
        self.target = target
        self.connection = connection
        self.are_halves = are_halves
        self.framed = framed
        self.requests: list[Command] = []
        self.messages: list[PlainMessage] = []


class SendHandlers:
    """SEND_MESSAGE in its forms."""

    def __init__(self, state: BrokerState) -> None:
        self._sending = Sending(state)
        self._targets = self._sending.checks.targets
        self._hosts = self._sending.hosts
        self._halves = HalfSends(state, self._sending.shapes.added)
        self._open_transactions = state.transactions.counts
        self._find_shape = self._sending.shapes.find
        self._pressure = state.pressure
        self._traffic = state.traffic
        self._put_run = state.store.put_run
        self._flusher = state.store.flusher
        self._waits_for_flush = self._sending.waits_for_flush
        self._answers = self._sending.answers

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
        request.typed = header
        (result,) = self.send_run((request,), connection, framed=False)
        return cast(Answer | Deferred, result)

    @handles_runs(RequestCode.SEND_MESSAGE_V2)
    def send_run(
        self, requests: Sequence[Command], connection: Connection, *, framed: bool = True
    ) -> Sequence[RunResult]:
        """The same for requests that came one behind the other; see `_PlainSends` for `framed`."""
        results: list[RunResult] = []
        sends: _PlainSends | None = None
        for request in requests:
            header = cast(SendMessageRequestV2, request.typed)
            if sends is None or header.topic != sends.topic:
                if sends is not None:
                    results += self._put(sends, None)
                sends = self._collect(header.topic, connection, framed=framed)
            stored = None if sends is None else self._stored(header, sends)
            if stored is None and sends is not None:
                results += self._put(sends, None)
                are_halves = not sends.are_halves
                sends = self._collect(header.topic, connection, framed=framed, are_halves=are_halves)
                stored = None if sends is None else self._stored(header, sends)
            if sends is None or stored is None:
                sends = None  # what is known of the target may change now
                results.append(self._sending.send(header, request, connection))
                continue
            block, code, unique_key, keys, _ = stored
            sends.requests.append(request)
            sends.messages.append(
                (
                    HALF_QUEUE if sends.are_halves else header.queue_id,
                    header.flag,
                    (header.sys_flag & _NO_TRANSACTION if sends.are_halves else header.sys_flag)
                    | sends.target.sys_flag,
                    header.born_timestamp,
                    header.reconsume_times or 0,
                    request.body,
                    block,
                    code,
                    unique_key,
                    keys,
                )
            )
        if sends is not None:
            results += self._put(sends, connection.do_afterwards)
        return results

    def _collect(
        self, topic: str, connection: Connection, *, framed: bool, are_halves: bool = False
    ) -> _PlainSends | None:
        """What collects sends to a topic; None if there is no short way to it."""
        target = self._targets.get(topic)
        if target is None or not target.is_plain or self._pressure.refusal is not None:
            return None
        return _PlainSends(target, connection, framed=framed, are_halves=are_halves)

    def _stored(self, header: SendMessageRequestV2, sends: _PlainSends) -> Stored | None:
        """What is to be stored of the properties of such a message; None if it is none."""
        text, queue_id, target = header.properties, header.queue_id, sends.target
        if text is None or not 0 <= queue_id < target.queues or header.batch or not text.isascii():
            return None
        block, shape = text.encode(), target.shape
        if sends.are_halves:
            stored = self._halves.read(target.topic, queue_id, block)
        else:
            stored = None if shape is None else shape.read(block)
            if stored is None:
                shape = self._find_shape(block)
                if shape is not None:
                    stored = shape.read(block)
                    target.shape = shape
        # Who does not wait for the disk is not answered together with those who do.
        return stored if stored is None or stored[4] or not self._waits_for_flush else None

    def _put(self, sends: _PlainSends, later: Later | None) -> Sequence[RunResult]:
        """Put what was collected; the answers, or what comes of them. The last of all is shown `later`."""
        if not sends.messages:
            return ()
        topic = TRANS_HALF_TOPIC if sends.are_halves else sends.topic
        started = perf_counter()
        born_host = self._hosts.get(sends.connection) or self._sending.born_host(sends.connection)
        run = self._put_run(topic, born_host, sends.messages, later)
        if run.count:
            if sends.are_halves:
                self._open_transactions.add(sends.topic, run.count)
            kind = TRANSACTION if sends.are_halves else PLAIN
            self._traffic.took(sends.topic, run.count, run.size, perf_counter() - started, kind)
            self._answers.count(run.count, run.size, run.end_offset)
            if self._waits_for_flush:
                return self._wait(sends, run)
        return self._answers_to(sends, run, _OK)

    def _answers_to(self, sends: _PlainSends, run: PutRun, status: PutStatus) -> Sequence[Answer | bytes]:
        results: list[Answer | bytes] = []
        answers, framed = self._answers, sends.framed and status is _OK
        for request, message, place in zip(sends.requests, sends.messages, run.places, strict=True):
            queue_id, unique_key = cast(SendMessageRequestV2, request.typed).queue_id, message[8] or b""
            if isinstance(place, PutStatus):
                results.append(answers.not_stored(place))
            elif framed and unique_key.isalnum():
                header = answers.template % (place[1], queue_id, place[0], unique_key, request.opaque)
                results.append(pack_head(JSON, header, 0))
            else:
                results.append(answers.stored_alone(status, queue_id, *place, unique_key))
        return results

    def _wait(self, sends: _PlainSends, run: PutRun) -> Sequence[Deferred]:
        """Answer all of a run when it is on the disk, or when that took too long."""

        def done(status: PutStatus) -> None:
            self._pressure.waited(run.count)
            frames: list[bytes] = []
            for request, result in zip(sends.requests, self._answers_to(sends, run, status), strict=True):
                if isinstance(result, bytes):
                    frames.append(result)
                else:
                    sends.connection.answer(request, result)
            sends.connection.answer_run(sends.requests[0], frames)

        self._pressure.waits(run.count)
        self._flusher.when_flushed(run.end_offset, done)
        return [DEFERRED] * len(sends.requests)
