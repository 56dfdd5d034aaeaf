"""Group sends: plain messages that came in one read of a connection, put in one group append.

Rules kept here:
- Plain messages to a topic that was sent to before take this short way: their properties are stored by
  layout, they are put together, and their answers are made from a template. Half messages do the same, in the
  half topic.
- Every other message, by its properties, its topic or its sender, is left to `send.py`, with all checks.
- The order in which messages came is kept, whichever way they take.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final, cast

from cometmq.broker.monitor.counters import PLAIN, TRANSACTION, Traffic
from cometmq.broker.send.checks import SendTarget
from cometmq.broker.send.properties import HalfMessageLayouts, StoredProperties
from cometmq.broker.send.send import MessageSender
from cometmq.broker.settings import Settings
from cometmq.broker.transactions.half_messages import HALF_QUEUE
from cometmq.model.names import TRANS_HALF_TOPIC
from cometmq.model.sysflag import TRANSACTION_MASK
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import DEFERRED, Answer, Deferred, GroupResult
from cometmq.store.message_store import MessageStore
from cometmq.store.put.writer import Later, PlainMessage, PutGroupResult, unique_key_of
from cometmq.store.status import PutStatus
from cometmq.wire.frame.command import Command
from cometmq.wire.frame.framing import json_frame
from cometmq.wire.headers.send import SendMessageRequestV2

if TYPE_CHECKING:

    class _Send(Command, kw_only=True):
        typed: SendMessageRequestV2


_OK: Final = PutStatus.PUT_OK
_NO_TRANSACTION: Final = ~TRANSACTION_MASK


class _PlainSends:
    """Plain sends of one connection, one after the other."""

    __slots__ = ("connection", "framed", "messages", "ranges", "requests")

    def __init__(self, connection: Connection, *, framed: bool) -> None:
        """With `framed`, answers may be given as the frames that they are sent in."""
        self.connection = connection
        self.framed = framed
        self.requests: list[_Send] = []
        self.messages: list[PlainMessage] = []
        self.ranges: list[tuple[SendTarget, str, int]] = []
        """Target and type of messages that have both in common, and which is the first of them."""


class GroupSender:
    """Puts the messages of requests that came together; belongs to the event loop."""

    def __init__(
        self, settings: Settings, store: MessageStore, traffic: Traffic, sender: MessageSender
    ) -> None:
        self._sender = sender
        self._targets = sender.checks.targets
        self._hosts = sender.hosts
        self._halves = HalfMessageLayouts(settings, sender.layouts.added)
        self._open_transactions = sender.open_transactions
        self._find_layout = sender.layouts.find
        self._pressure = sender.pressure
        self._traffic = traffic
        self._put_group = store.put_group
        self._safety = sender.safety
        self._answers_wait = sender.answers_wait
        self._answers = sender.answers

    def send(
        self, requests: Sequence[Command], connection: Connection, *, framed: bool = True
    ) -> Sequence[GroupResult]:
        """Put the messages of requests that came together; see `_PlainSends` for `framed`."""
        results: list[GroupResult] = []
        born_host = self._hosts.get(connection) or self._sender.born_host(connection)
        sends = _PlainSends(connection, framed=framed)
        messages = sends.messages
        target: SendTarget | None = None
        topic, is_half, begun = None, False, None
        for request in cast("Sequence[_Send]", requests):
            header = request.typed
            if header.topic != topic:
                topic = header.topic
                target = self._target(topic)
            stored = None if target is None else self._stored(header, target, is_half=is_half)
            if stored is None and target is not None:
                is_half = not is_half
                stored = self._stored(header, target, is_half=is_half)
            if target is None or stored is None:
                results += self._put(sends, None)
                results.append(self._send_alone(header, request, connection))
                topic = begun = None  # what is known of the target may be another now
                sends = _PlainSends(connection, framed=framed)
                messages = sends.messages
                continue
            if begun != (topic, is_half):
                begun = topic, is_half
                sends.ranges.append((target, TRANSACTION if is_half else PLAIN, len(messages)))
            block, code, unique_key, keys, _ = stored
            sends.requests.append(request)
            messages.append(
                (
                    TRANS_HALF_TOPIC if is_half else header.topic,
                    HALF_QUEUE if is_half else header.queue_id,
                    header.flag,
                    (header.sys_flag & _NO_TRANSACTION if is_half else header.sys_flag) | target.sys_flag,
                    header.born_timestamp,
                    born_host,
                    header.reconsume_times or 0,
                    0,
                    request.body,
                    block,
                    code,
                    unique_key,
                    keys,
                )
            )
        if messages:
            results += self._put(sends, connection.do_afterwards)
        return results

    def _send_alone(
        self, header: SendMessageRequestV2, request: Command, connection: Connection
    ) -> Answer | Deferred:
        """Put one message; if it fails, those of its group before it are put, and have their answers."""
        try:
            return self._sender.send(header, request, connection)
        except Exception as error:
            return connection.answer_of_error(error, request)

    def _target(self, topic: str) -> SendTarget | None:
        """A topic that there is a short way to; None if it is none."""
        target = self._targets.get(topic)
        return target if target is not None and target.is_plain and self._pressure.refusal is None else None

    def _stored(
        self, header: SendMessageRequestV2, target: SendTarget, *, is_half: bool
    ) -> StoredProperties | None:
        """The properties to store of a plain or half message; None if it is neither."""
        text, queue_id = header.properties, header.queue_id
        if text is None or not 0 <= queue_id < target.queues or header.batch or not text.isascii():
            return None
        block, layout = text.encode(), target.layout
        if is_half:
            stored = self._halves.read(target.topic, queue_id, block)
        else:
            stored = None if layout is None else layout.read(block)
            if stored is None:
                layout = self._find_layout(block)
                if layout is not None:
                    stored = layout.read(block)
                    target.layout = layout
        if stored is not None and self._answers_wait:
            _, _, _, _, waits = stored
            return stored if waits else None  # who does not wait is not answered together with those who do
        return stored

    def _put(self, sends: _PlainSends, later: Later | None) -> Sequence[GroupResult]:
        """Put the collected messages in one group append, and answer; consumers see them `later`."""
        if not sends.messages:
            return ()
        started = perf_counter()
        if self._answers_wait and self._safety.lacks_replicas:
            refusal = self._answers.not_stored(PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH)
            return [refusal] * len(sends.messages)
        put = self._put_group(sends.messages, later)
        if put.count:
            seconds = perf_counter() - started
            self._answers.count(put.count, put.size, put.end_offset)
            if later is None:
                self._note(sends, put, seconds)
            else:
                later(partial(self._note, sends, put, seconds))
            if self._answers_wait:
                return self._wait(sends, put, started)
        return self._answers_to(sends, put, _OK)

    def _note(self, sends: _PlainSends, put: PutGroupResult, seconds: float) -> None:
        """Count what was put, topic by topic."""
        self._traffic.appended(seconds, put.count)
        if len(sends.ranges) == 1:
            ((target, message_type, _),) = sends.ranges
            self._count(target, message_type, put.count, put.size)
            return
        end = len(put.offsets)
        for target, message_type, first in reversed(sends.ranges):
            stored = [each for each in put.offsets[first:end] if not isinstance(each, PutStatus)]
            end = first
            if stored:
                size = sum([size for _, _, size in stored])
                self._count(target, message_type, len(stored), size)

    def _count(self, target: SendTarget, message_type: str, count: int, size: int) -> None:
        if message_type is TRANSACTION:
            self._traffic.took_of(target.topic, message_type, count, size)
            self._open_transactions.add(target.topic, count)
            return
        if target.sizes is None:
            target.sizes = self._traffic.sizes_of(target.topic, message_type)
        target.sizes.observe(size / count, count)

    def _answers_to(
        self, sends: _PlainSends, put: PutGroupResult, status: PutStatus
    ) -> Sequence[Answer | bytes]:
        results: list[Answer | bytes] = []
        answers, framed = self._answers, sends.framed and status is _OK
        template, framed_by = answers.template, json_frame
        keys = map(unique_key_of, sends.messages)
        for request, key, offsets in zip(sends.requests, keys, put.offsets, strict=True):
            if isinstance(offsets, PutStatus):
                results.append(answers.not_stored(offsets))
                continue
            queue_id, unique_key = request.typed.queue_id, key or b""
            queue_offset, physical_offset, _ = offsets
            if framed and unique_key.isalnum() and not request.flag:
                values = physical_offset, queue_id, queue_offset, unique_key, request.opaque
                results.append(framed_by(template % values))
            else:
                results.append(
                    answers.stored_alone(status, queue_id, queue_offset, physical_offset, unique_key)
                )
        return results

    def _wait(self, sends: _PlainSends, put: PutGroupResult, started: float) -> Sequence[Deferred]:
        """Answer all of a group when it is safe, or when that took too long."""

        def done(status: PutStatus) -> None:
            self._pressure.waited(put.count)
            self._traffic.put_times.took(perf_counter() - started, put.count)
            frames: list[bytes] = []
            for request, result in zip(sends.requests, self._answers_to(sends, put, status), strict=True):
                if isinstance(result, bytes):
                    frames.append(result)
                else:
                    sends.connection.answer(request, result)
            sends.connection.answer_group(sends.requests[0], frames)

        self._pressure.waits(put.count)
        self._safety.when_safe(put.end_offset, done)
        return [DEFERRED] * len(sends.requests)
