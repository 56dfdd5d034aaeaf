"""One connection, either side: requests to handlers, answers back, and calls of our own with their answers.

Rules kept here:
- A frame that cannot be read is answered with an error and the connection goes on.
- A one-way request is never answered; every other one is, with a code and, on failure, a sentence.
- An answer goes out in the header encoding of its request.
- A call that fails says whether the peer may have acted on it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.model.errors import (
    CallTimeoutError,
    CometError,
    ConnectionLostError,
    HeaderError,
    TooManyRequestsError,
)
from cometmq.remoting.handler import Answer, Deferred, HandlerEntry, NoHeader, Result
from cometmq.remoting.metrics import UNKNOWN_CODE, CodeMetrics
from cometmq.remoting.stream import Stream
from cometmq.wire.codes import V5_3_1, ResponseCode
from cometmq.wire.command import (
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    Body,
    Command,
    decode_command,
    encode_command,
    encode_response_head,
    salvage_opaque,
)
from cometmq.wire.frame import JSON, Frame
from cometmq.wire.header import encode_fields

if TYPE_CHECKING:
    from cometmq.remoting.endpoint import Endpoint

log = logging.getLogger("cometmq.remoting")

_BUSY: Final = "[OVERLOAD]system busy, start flow control for a while"
_NO_HEADER: Final = NoHeader()
_SUCCESS: Final = ResponseCode.SUCCESS.value


class _Call(msgspec.Struct):
    future: asyncio.Future[Command]
    deadline: float
    code: int


class Connection(Stream):
    """A connection on which both sides may ask."""

    __slots__ = ("_calls",)

    def __init__(self, endpoint: Endpoint, *, sniff: bool) -> None:
        super().__init__(endpoint, sniff=sniff)
        self._calls: dict[int, _Call] | None = None  # made by the first call: most connections make none

    # Requests of the peer.

    def _take_frame(self, frame: Frame) -> None:
        try:
            command = decode_command(frame, self.endpoint.limits.max_header_bytes)
        except HeaderError as error:
            self._answer_unreadable(frame, error)
            return
        if command.flag & RESPONSE_FLAG:
            self._take_answer(command)
            return
        endpoint = self.endpoint
        if endpoint.going_away and command.version > V5_3_1:
            answer = Answer(ResponseCode.GO_AWAY, remark="please go away")
            self._finish_request(command, answer, endpoint.metrics.of(UNKNOWN_CODE), 0.0)
            return
        entry = endpoint.handlers.get(command.code)
        if entry is None:
            remark = f" request type {command.code} not supported"
            answer = Answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
            self._finish_request(command, answer, endpoint.metrics.of(UNKNOWN_CODE), 0.0)
            return
        metrics = endpoint.metrics.of(command.code)
        started = perf_counter()
        result = self._run_handler(entry, command)
        if isinstance(result, Answer):
            self._finish_request(command, result, metrics, perf_counter() - started)
        elif isinstance(result, Deferred):
            metrics.requests += 1
        else:
            self._await_answer(command, result, metrics, started)

    def _run_handler(self, entry: HandlerEntry, command: Command) -> Result:
        endpoint = self.endpoint
        try:
            for hook in endpoint.hooks:
                refusal = hook.before_request(command, self)
                if refusal is not None:
                    return refusal
            header = _NO_HEADER if entry.header is NoHeader else command.header(entry.header)
            return entry.function(header, command, self)
        except Exception as error:
            return self._answer_of_error(error, command)

    def _answer_of_error(self, error: Exception, command: Command) -> Answer:
        if isinstance(error, CometError):
            return Answer(error.code or ResponseCode.SYSTEM_ERROR, remark=error.message)
        log.error("request %d of %s failed", command.code, self.remote_address, exc_info=error)
        return Answer(
            ResponseCode.SYSTEM_ERROR,
            remark=f"{type(error).__name__}: {error}; the server's log has the details",
        )

    def _await_answer(
        self, command: Command, result: Awaitable[Answer], metrics: CodeMetrics, started: float
    ) -> None:
        endpoint = self.endpoint
        if endpoint.metrics.running >= endpoint.limits.max_running:
            if asyncio.iscoroutine(result):
                result.close()
            self._finish_request(command, Answer(ResponseCode.SYSTEM_BUSY, remark=_BUSY), metrics, 0.0)
            return
        self._running += 1
        endpoint.metrics.running += 1
        task = asyncio.ensure_future(self._run_to_answer(command, result, metrics, started))
        endpoint.tasks.add(task)
        task.add_done_callback(endpoint.tasks.discard)

    async def _run_to_answer(
        self, command: Command, result: Awaitable[Answer], metrics: CodeMetrics, started: float
    ) -> None:
        try:
            answer = await result
        except asyncio.CancelledError:
            answer = Answer(ResponseCode.SYSTEM_ERROR, remark="the server stopped before it was done")
        except Exception as error:
            answer = self._answer_of_error(error, command)
        self._running -= 1
        self.endpoint.metrics.running -= 1
        self._finish_request(command, answer, metrics, perf_counter() - started)
        self.flush()
        self._go_on()

    def answer(self, request: Command, answer: Answer) -> None:
        """Answer a request whose handler returned `DEFERRED`."""
        for hook in self.endpoint.hooks:
            hook.after_request(request, answer, self)
        if not request.flag & ONEWAY_FLAG:
            self._put_answer(request, answer)
            self.flush()

    def _finish_request(self, command: Command, answer: Answer, metrics: CodeMetrics, seconds: float) -> None:
        metrics.requests += 1
        metrics.seconds += seconds
        if seconds > metrics.longest_seconds:
            metrics.longest_seconds = seconds
        if answer.code != _SUCCESS:
            metrics.failures[answer.code] = metrics.failures.get(answer.code, 0) + 1
        for hook in self.endpoint.hooks:
            hook.after_request(command, answer, self)
        if command.flag & ONEWAY_FLAG:
            metrics.oneways += 1
        else:
            self._put_answer(command, answer)

    def _put_answer(self, command: Command, answer: Answer) -> None:
        fields: Mapping[str, str | None] | None = answer.fields
        if answer.header is not None:
            fields = {**encode_fields(answer.header), **(fields or {})}
        head = encode_response_head(
            command.opaque,
            answer.code,
            fields,
            body_bytes=len(answer.body),
            remark=answer.remark,
            serialize_type=command.serialize_type,
        )
        self._put(head, answer.body)

    def _answer_unreadable(self, frame: Frame, error: HeaderError) -> None:
        self.endpoint.metrics.unreadable += 1
        head = encode_response_head(
            salvage_opaque(frame),
            ResponseCode.SYSTEM_ERROR,
            remark=f"the request cannot be read: {error.message}",
        )
        self._put(head, b"")

    # Calls of our own.

    def call(
        self,
        code: int,
        fields: Mapping[str, str | None] | None,
        body: Body = b"",
        *,
        timeout_s: float,
        serialize_type: int = JSON,
    ) -> asyncio.Future[Command]:
        """Send a request; the future gives the answer, or fails with a `RemotingError`."""
        endpoint = self.endpoint
        future: asyncio.Future[Command] = endpoint.loop.create_future()
        if not self.is_open:
            future.set_exception(ConnectionLostError(f"the connection to {self.remote_address} is closed"))
            return future
        if endpoint.calls_in_flight >= endpoint.limits.max_calls_in_flight:
            future.set_exception(
                TooManyRequestsError(
                    f"{endpoint.calls_in_flight} calls await answers already; try again later"
                )
            )
            return future
        if self._calls is None:
            self._calls = {}
        opaque = endpoint.next_opaque()
        deadline = endpoint.loop.time() + timeout_s
        self._calls[opaque] = _Call(future, deadline, code)
        endpoint.calls_in_flight += 1
        endpoint.calling.add(self)
        endpoint.watch_deadline(deadline)
        self._put(encode_command(code, opaque, 0, fields, body=body, serialize_type=serialize_type), b"")
        self.flush()
        return future

    def oneway(
        self,
        code: int,
        fields: Mapping[str, str | None] | None,
        body: Body = b"",
        *,
        serialize_type: int = JSON,
    ) -> None:
        """Send a request that nobody answers."""
        opaque = self.endpoint.next_opaque()
        self._put(
            encode_command(code, opaque, ONEWAY_FLAG, fields, body=body, serialize_type=serialize_type), b""
        )
        self.flush()

    def _take_answer(self, command: Command) -> None:
        call = None if self._calls is None else self._calls.pop(command.opaque, None)
        if call is None:
            self.endpoint.metrics.unmatched += 1
            return
        self.endpoint.calls_in_flight -= 1
        if not call.future.done():
            call.future.set_result(command)

    def expire_calls(self, now: float) -> float | None:
        """Fail the calls whose time is over; the answer is the nearest deadline of the others."""
        if not self._calls:
            return None
        nearest: float | None = None
        for opaque, call in list(self._calls.items()):
            if call.deadline <= now or call.future.cancelled():
                del self._calls[opaque]
                self.endpoint.calls_in_flight -= 1
                if not call.future.done():
                    call.future.set_exception(
                        CallTimeoutError(f"{self.remote_address} did not answer request {call.code} in time")
                    )
            elif nearest is None or call.deadline < nearest:
                nearest = call.deadline
        return nearest

    def _ended(self) -> None:
        calls, self._calls = self._calls, None
        if not calls:
            return
        self.endpoint.calls_in_flight -= len(calls)
        for call in calls.values():
            if not call.future.done():
                text = f"{self.remote_address} closed the connection before it answered request {call.code}"
                call.future.set_exception(ConnectionLostError(text))
