"""A connection: frames of the peer to handlers, and their answers back.

Rules kept here:
- A frame that cannot be read is answered with an error and the connection goes on.
- A one-way request is never answered; every other one is, with a code and, on failure, a sentence. Whatever a
  handler or a hook does, there is no silence.
- An answer goes out in the header encoding of its request.
- Every complete frame of a read is handled before one write goes out, as long as the answers stay under their
  limit; beyond it, handling and reading wait until the peer has taken some of them.
- A connection whose requests take long lets the others have their turn every 20 ms.
- Everything buffered is counted, and each limit of `Limits` is enforced here or by the endpoint.
- Broken framing ends the connection, but only after everything before it is answered.
- Work that a handler leaves for afterwards runs when the answers are written, and before anything else is
  handled.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Final

from cometmq.model.errors import CometError, FramingError, HeaderError, MessageError
from cometmq.remoting.calls import Calls, put_request
from cometmq.remoting.channel import ByteChannel
from cometmq.remoting.handler import (
    Answer,
    Deferred,
    GroupHandler,
    GroupResult,
    HandlerEntry,
    NoHeader,
    Result,
)
from cometmq.remoting.metrics.counters import LATENCY_BOUNDS_S, UNKNOWN_CODE, CodeMetrics
from cometmq.wire.codes import V5_3_1, ResponseCode
from cometmq.wire.frame.command import (
    NO_OPAQUE,
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    Command,
    Payload,
    decode_command,
    encode_response_head,
    payload_bytes,
    refuse_long_header,
    salvage_flag,
    salvage_opaque,
)
from cometmq.wire.frame.framing import JSON, ROCKETMQ, Frame, FrameSplitter, pack_head
from cometmq.wire.frame.request_reader import (
    LONG_START_BYTES,
    SHORT_START_BYTES,
    RequestReader,
    start_of_request,
)
from cometmq.wire.header.schema import Fields, encode_fields

if TYPE_CHECKING:  # a connection belongs to an endpoint, which has its connections
    from cometmq.remoting.endpoint import Endpoint

log = logging.getLogger("cometmq.remoting")

_BUSY: Final = "[OVERLOAD]system busy, start flow control for a while"
_DEFECT: Final = "the server failed at this request, and its log says why; show that to whoever runs it"
_NO_HEADER: Final = NoHeader()
_SUCCESS: Final = ResponseCode.SUCCESS.value
_NOT_ONEWAY: Final = ~ONEWAY_FLAG
_LARGEST_GROUP: Final = 255
"""The most requests handled with the first one; their answers go out in one write."""
_TURN_S: Final = 0.02
"""The frames of one connection are handled for this long before those of others."""


class Connection:
    """A connection on which both sides may ask. It has a byte channel, and a table of its own calls."""

    __slots__ = (
        "__weakref__",
        "_afterwards",
        "_calls",
        "_finishing",
        "_held",
        "_rests",
        "_running",
        "_splitter",
        "channel",
        "endpoint",
    )

    def __init__(self, endpoint: Endpoint, *, sniff: bool) -> None:
        self.endpoint = endpoint
        self.channel = ByteChannel(endpoint, self, sniff=sniff)
        self._splitter = FrameSplitter(endpoint.limits.max_frame_bytes)
        self._held = 0  # bytes in the splitter, as the endpoint knows them
        self._running = 0  # handlers that have not answered yet
        self._finishing = False
        self._rests = False  # it has had its turn, and goes on in the next one
        self._afterwards: list[Callable[[], None]] = []
        self._calls: Calls | None = None  # made by the first call: most connections make none

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.remote_address or 'not connected'}>"

    @property
    def remote_address(self) -> str:
        return self.channel.remote_address

    @property
    def close_reason(self) -> str:
        return self.channel.close_reason

    @property
    def is_open(self) -> bool:
        return self.channel.is_open

    @property
    def unwritten_bytes(self) -> int:
        return self.channel.unwritten_bytes

    @property
    def held_bytes(self) -> int:
        """Everything buffered for this connection, in both directions."""
        return self._held + self.channel.unwritten_bytes

    def close(self, reason: str, *, abort: bool = False) -> None:
        """End the connection: after everything unwritten, or at once with `abort`."""
        self.channel.close(reason, abort=abort)

    # Called by the channel.

    def opened(self) -> str | None:
        return self.endpoint.opened(self)

    def bytes_received(self, data: bytes) -> None:
        self._splitter.feed(data)
        self._handle_frames()

    def stream_broken(self, error: FramingError) -> None:
        if count := self.endpoint.broken_streams.count():
            log.warning("closing %s and %d more: %s", self.remote_address, count - 1, error)
        self._splitter = FrameSplitter(self.endpoint.limits.max_frame_bytes)  # the rest cannot be split
        self._count_held(0)
        self.finish("broken framing")

    def go_on(self) -> None:
        """Handle the frames that waited, then read on."""
        channel = self.channel
        if channel.closing_since is not None:
            return
        self._rests = False
        if self._splitter.buffered_bytes:
            self._handle_frames()
        if self._finishing:
            self._finish_if_done()
        elif (
            not self._rests
            and not channel.backed_up
            and self._running < self.endpoint.max_running_per_connection
        ):
            channel.resume_reading()

    def is_busy(self) -> bool:
        return self._running > 0

    def ended(self) -> None:
        self._run_afterwards()  # a defect may have come in between
        self._count_held(0)
        calls, self._calls = self._calls, None
        if calls is not None:
            calls.fail_all()
        self.endpoint.closed(self)

    # Frames.

    def _handle_frames(self) -> None:
        """Handle every complete frame that is here, then write all answers at once."""
        channel, splitter, endpoint = self.channel, self._splitter, self.endpoint
        write_high_bytes = endpoint.limits.write_high_bytes
        max_running = endpoint.max_running_per_connection
        self._rests = False
        until = 0.0
        try:
            while not channel.backed_up and self._running < max_running:
                parts = splitter.next_parts()
                if parts is None:
                    break
                if self._afterwards:
                    self._run_afterwards()
                channel.incomplete_since = None
                self._take_frame(*parts)
                if channel.out_bytes >= write_high_bytes:
                    channel.flush()
                if splitter.empty:  # the common end of a read, known without another look
                    break
                if until == 0.0:  # asked for when there is more than one frame, as the clock costs as well
                    until = perf_counter() + _TURN_S
                elif perf_counter() > until:
                    self._rests = True
                    channel.pause_reading()
                    endpoint.loop.call_soon(self.go_on)
                    break
            else:
                channel.pause_reading()
        except FramingError as error:
            channel.flush()
            self._run_afterwards()
            self.stream_broken(error)
            return
        channel.flush()
        if self._afterwards:
            self._run_afterwards()
        held = splitter.buffered_bytes
        if held != self._held:
            self._count_held(held)
        if held and channel.incomplete_since is None and not channel.reading_paused:
            channel.incomplete_since = channel.last_received

    def do_afterwards(self, work: Callable[[], None]) -> None:
        """Do something when the answers to the current frames are written; only for handlers to call."""
        self._afterwards.append(work)

    def _run_afterwards(self) -> None:
        works, self._afterwards = self._afterwards, []
        for work in works:
            try:
                work()
            except Exception:
                log.exception("what was left to be done for %s failed", self.remote_address)

    def _count_held(self, held: int) -> None:
        endpoint = self.endpoint
        endpoint.buffered_bytes += held - self._held
        self._held = held
        if endpoint.buffered_bytes > endpoint.limits.max_buffered_bytes:
            endpoint.shed_load()

    def finish(self, reason: str) -> None:
        """Read no more, answer what was accepted, then close."""
        channel = self.channel
        if channel.closing_since is None:
            channel.close_reason = reason
            self._finishing = channel.drops_input = True
            self._finish_if_done()
            if channel.closing_since is None:
                channel.pause_reading()

    def _finish_if_done(self) -> None:
        channel = self.channel
        if (
            self._running == 0
            and not self._rests
            and not channel.write_paused
            and channel.closing_since is None
        ):
            channel.flush()
            channel.close(channel.close_reason)

    # Calls of our own.

    def call(
        self,
        code: int,
        fields: Fields | None,
        body: Payload = b"",
        *,
        timeout_s: float,
        serialize_type: int = JSON,
    ) -> asyncio.Future[Command]:
        """Send a request; the future gives the answer, or fails with a `CometError`."""
        calls = self._calls
        if calls is None:
            calls = self._calls = Calls(self)
        return calls.call(code, fields, body, timeout_s, serialize_type)

    def oneway(
        self, code: int, fields: Fields | None, body: Payload = b"", *, serialize_type: int = JSON
    ) -> None:
        """Send a request that nobody answers."""
        put_request(
            self.channel, code, self.endpoint.next_opaque(), ONEWAY_FLAG, fields, body, serialize_type
        )
        self.channel.flush()

    def forget(self, future: asyncio.Future[Command]) -> None:
        """Nobody waits for this call any more."""
        if self._calls is not None:
            self._calls.forget(future)

    def retire(self) -> None:
        """Take no new calls; close with the last answer that is due."""
        if self._calls is None:
            self.close("retired")
        else:
            self._calls.retire()

    def expire_calls(self, now: float) -> float | None:
        """Fail the calls whose time is over; returns the nearest deadline of the others."""
        return None if self._calls is None else self._calls.expire(now)

    # Requests of the peer.

    def _take_frame(self, serialize_type: int, raw: bytes, body: memoryview) -> None:
        calls = self._calls
        if calls is not None and calls.pending:  # most likely the answer to one of them
            self._take_any_frame(Frame(serialize_type, raw, body))
            return
        endpoint = self.endpoint
        by_start = endpoint.handlers.by_start
        known = by_start.get(raw[:SHORT_START_BYTES]) or by_start.get(raw[:LONG_START_BYTES])
        if known is not None and serialize_type == JSON and len(raw) <= endpoint.limits.max_header_bytes:
            entry, read = known
            command = read(raw, body)
            if command is not None and not endpoint.going_away:
                function = entry.group_function
                if function is None or command.flag & _NOT_ONEWAY or endpoint.hooks:
                    self._serve(entry, command)
                elif self._splitter.empty:
                    self._finish_group(entry, function, [command])
                else:
                    self._serve_group(entry, function, read, command)
                return
        self._take_any_frame(Frame(serialize_type, raw, body))

    def _serve_group(
        self, entry: HandlerEntry, function: GroupHandler, read: RequestReader, first: Command
    ) -> None:
        """Serve a request together with the requests of its code directly after it."""
        group = [first]
        start = start_of_request(entry.code) or b""
        frames = self._splitter.next_alike(start, _LARGEST_GROUP, self.endpoint.limits.max_header_bytes)
        for raw, body in frames:
            command = read(raw, body)
            if command is not None and not command.flag & _NOT_ONEWAY:
                group.append(command)
                continue
            if group:
                self._finish_group(entry, function, group)
                self._run_afterwards()
                group = []
            if command is None:
                self._take_any_frame(Frame(JSON, raw, body))
            else:
                self._serve(entry, command)
            self._run_afterwards()
        if group:
            self._finish_group(entry, function, group)

    def _finish_group(self, entry: HandlerEntry, function: GroupHandler, group: list[Command]) -> None:
        endpoint = self.endpoint
        metrics = endpoint.metrics.codes.get(entry.code) or endpoint.metrics.of(entry.code)
        started = perf_counter()
        results: Sequence[GroupResult]
        try:
            results = function(group, self)
        except Exception as error:
            results = [self.answer_of_error(error, command) for command in group]
        seconds = (perf_counter() - started) / len(group)
        frames = [result for result in results if result.__class__ is bytes]
        if len(frames) < len(group):
            for command, result in zip(group, results, strict=True):
                if isinstance(result, Answer):
                    self._finish_request(command, result, metrics, seconds)
                elif result.__class__ is not bytes:
                    metrics.requests += 1
                    command.started_s = started
        if frames:
            metrics.requests += len(frames)
            metrics.seconds += seconds * len(frames)
            metrics.latencies[bisect_left(LATENCY_BOUNDS_S, seconds)] += len(frames)
            if seconds > metrics.longest_seconds:
                metrics.longest_seconds = seconds
            self.channel.put_frames(frames)

    def _awaits_answers(self) -> bool:
        return self._calls is not None and bool(self._calls.pending)

    def _take_any_frame(self, frame: Frame) -> None:
        endpoint = self.endpoint
        limits = endpoint.limits
        longest = limits.max_answer_header_bytes if self._awaits_answers() else limits.max_header_bytes
        try:
            command = decode_command(frame, longest)
            if command.flag & RESPONSE_FLAG:
                if self._calls is None:
                    endpoint.metrics.unmatched += 1
                else:
                    self._calls.take_answer(command)
                return
            refuse_long_header(frame, limits.max_header_bytes)
        except HeaderError as error:
            self._answer_unreadable(frame, error)
            return
        entry = endpoint.handlers.get(command.code)
        if entry is None or endpoint.going_away:
            refusal = self._refusal(command, entry)
            if refusal is not None:
                code = UNKNOWN_CODE if entry is None else command.code
                self._finish_request(command, refusal, endpoint.metrics.of(code), 0.0)
                return
        assert entry is not None
        self._serve(entry, command)

    def _serve(self, entry: HandlerEntry, command: Command) -> None:
        endpoint = self.endpoint
        metrics = endpoint.metrics.codes.get(entry.code) or endpoint.metrics.of(entry.code)
        result: Result
        started = perf_counter()
        try:
            refusal = self._run_before_hooks(command) if endpoint.hooks else None
            if refusal is None:
                header = command.typed
                if header is None:
                    header = _NO_HEADER if entry.header is NoHeader else command.header(entry.header)
                result = entry.function(header, command, self)
            else:
                result = refusal
        except Exception as error:
            result = self.answer_of_error(error, command)
        if isinstance(result, Answer):
            self._finish_request(command, result, metrics, perf_counter() - started)
        elif isinstance(result, Deferred):
            metrics.requests += 1
            command.started_s = started
        else:
            self._await_answer(command, result, metrics, started)

    def _refusal(self, command: Command, entry: HandlerEntry | None) -> Answer | None:
        if self.endpoint.going_away and command.version > V5_3_1:
            return Answer(ResponseCode.GO_AWAY, remark="please go away")
        if entry is None:
            remark = f" request type {command.code} not supported"
            return Answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
        return None

    def _run_before_hooks(self, command: Command) -> Answer | None:
        for hook in self.endpoint.hooks:
            refusal = hook.before_request(command, self)
            if refusal is not None:
                return refusal
        return None

    def answer_of_error(self, error: Exception, command: Command) -> Answer:
        """Returns the answer for an exception; all but a `CometError` are defects, and logged."""
        if isinstance(error, CometError):
            return Answer(error.code or ResponseCode.SYSTEM_ERROR, remark=error.message)
        log.error("request %d of %s failed", command.code, self.remote_address, exc_info=error)
        return Answer(ResponseCode.SYSTEM_ERROR, remark=_DEFECT)

    def _await_answer(
        self, command: Command, result: Awaitable[Answer], metrics: CodeMetrics, started: float
    ) -> None:
        endpoint = self.endpoint
        limits = endpoint.limits
        if (
            endpoint.metrics.running >= limits.max_running
            or self._running >= limits.max_running_per_connection
        ):
            if asyncio.iscoroutine(result):
                result.close()
            elif isinstance(result, asyncio.Future):
                result.cancel()
            self._finish_request(command, Answer(ResponseCode.SYSTEM_BUSY, remark=_BUSY), metrics, 0.0)
            return
        self._running += 1
        endpoint.metrics.running += 1
        metrics.running += 1
        task = asyncio.ensure_future(self._run_to_answer(command, result, metrics, started))
        endpoint.tasks.add(task)
        task.add_done_callback(endpoint.tasks.discard)

    async def _run_to_answer(
        self, command: Command, result: Awaitable[Answer], metrics: CodeMetrics, started: float
    ) -> None:
        try:
            answer = await result
            if not isinstance(answer, Answer):
                raise TypeError(f"the handler gave a {type(answer).__name__} and no answer")
        except asyncio.CancelledError:
            answer = Answer(ResponseCode.SYSTEM_ERROR, remark="the server stopped before it was done")
        except Exception as error:
            answer = self.answer_of_error(error, command)
        self._running -= 1
        self.endpoint.metrics.running -= 1
        metrics.running -= 1
        self._finish_request(command, answer, metrics, perf_counter() - started)
        self.channel.flush_soon()
        self.go_on()

    def answer(self, request: Command, answer: Answer) -> None:
        """Answer a request whose handler returned `DEFERRED`."""
        metrics = self.endpoint.metrics.of(request.code)
        if answer.code != _SUCCESS:
            metrics.count_failure(answer.code)
        if request.started_s:  # its handler has returned
            metrics.count_late(answer.code, perf_counter() - request.started_s, is_held=request.is_held)
        self._run_after_hooks(request, answer)
        if not request.flag & ONEWAY_FLAG:
            self._put_answer(request, answer)
            self.channel.flush_soon()

    def answer_group(self, first: Command, frames: Sequence[bytes]) -> None:
        """Send encoded answers, all of them successes, to deferred requests of the group of `first`."""
        if frames and first.started_s:
            seconds = perf_counter() - first.started_s
            self.endpoint.metrics.of(first.code).count_late(_SUCCESS, seconds, times=len(frames))
        self.channel.put_frames(frames)
        self.channel.flush_soon()

    def _finish_request(self, command: Command, answer: Answer, metrics: CodeMetrics, seconds: float) -> None:
        metrics.requests += 1
        metrics.seconds += seconds
        if seconds > metrics.longest_seconds:
            metrics.longest_seconds = seconds
        if answer.code != _SUCCESS:
            metrics.count_failure(answer.code, seconds)
        else:
            metrics.latencies[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1
        if self.endpoint.hooks:
            self._run_after_hooks(command, answer)
        if command.flag & ONEWAY_FLAG:
            metrics.oneways += 1
        else:
            self._put_answer(command, answer)

    def _run_after_hooks(self, command: Command, answer: Answer) -> None:
        for hook in self.endpoint.hooks:
            try:
                hook.after_request(command, answer, self)
            except Exception:
                log.exception("a hook failed after request %d of %s", command.code, self.remote_address)

    def _put_answer(self, command: Command, answer: Answer) -> None:
        body = answer.body
        try:
            body_bytes = len(body) if body.__class__ is bytes else payload_bytes(body)
            if answer.head is not None:
                head = pack_head(JSON, answer.head, body_bytes)
            else:
                head = _encoded_head(command, answer, body_bytes)
            if len(head) + body_bytes > self.endpoint.limits.max_frame_bytes:
                raise MessageError(f"the answer of {body_bytes} bytes is too large for a frame; ask for less")
        except Exception as error:
            refusal = self.answer_of_error(error, command)
            head = self._plain_head(command.opaque, command.serialize_type, refusal.remark)
            body, body_bytes = b"", 0
        self.channel.put(head, body, body_bytes)

    def _answer_unreadable(self, frame: Frame, error: HeaderError) -> None:
        opaque, flag = salvage_opaque(frame), salvage_flag(frame)
        self.endpoint.note_unreadable(self, error.message)
        if flag & RESPONSE_FLAG or (opaque == NO_OPAQUE and self._awaits_answers()):
            if self._calls is None:
                self.endpoint.metrics.unmatched += 1
            else:
                self._calls.take_unreadable_answer(opaque, error)
        elif not flag & ONEWAY_FLAG:
            remark = f"the request cannot be read: {error.message}"
            self.channel.put(self._plain_head(opaque, frame.serialize_type, remark), b"", 0)

    @staticmethod
    def _plain_head(opaque: int, serialize_type: int, remark: str | None) -> bytes:
        return encode_response_head(
            opaque,
            ResponseCode.SYSTEM_ERROR,
            remark=remark,
            serialize_type=ROCKETMQ if serialize_type == ROCKETMQ else JSON,
        )


def _encoded_head(command: Command, answer: Answer, body_bytes: int) -> bytes:
    header, fields = answer.header, answer.fields
    if header is not None and fields is not None:
        fields = {**encode_fields(header), **fields}
        header = None
    return encode_response_head(
        command.opaque,
        answer.code,
        fields if header is None else header,
        body_bytes,
        answer.remark,
        command.serialize_type,
    )
