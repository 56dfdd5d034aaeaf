"""Calls of our own over a connection, and the answers to them.

Rules kept here:
- An answer finds its call by opaque, in any order; one that nobody waits for is counted and dropped. One that
  cannot be read fails its call, or the connection with all its calls if it does not say whose it is.
- A call ends exactly once: with its answer, at its deadline, with the connection, or when it is forgotten.
- A call that fails says whether the peer may have acted on it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from cometmq.model.errors import (
    CallTimeoutError,
    CometError,
    ConnectionLostError,
    HeaderError,
    MessageError,
    RemotingError,
    TooManyRequestsError,
)
from cometmq.remoting.stream import Stream
from cometmq.wire.frame.command import (
    NO_OPAQUE,
    ONEWAY_FLAG,
    Command,
    Payload,
    encode_request_head,
    payload_bytes,
)
from cometmq.wire.frame.frame import JSON
from cometmq.wire.header.header import Fields

if TYPE_CHECKING:
    from cometmq.remoting.endpoint import Endpoint

E = TypeVar("E", bound=CometError)


class _Call(msgspec.Struct):
    future: asyncio.Future[Command]
    sent_at: float
    deadline: float
    code: int


class Caller(Stream):
    """A connection on which we may ask."""

    __slots__ = ("_calls", "_retired", "_unreadable")

    def __init__(self, endpoint: Endpoint, *, sniff: bool) -> None:
        super().__init__(endpoint, sniff=sniff)
        self._calls: dict[int, _Call] | None = None  # made by the first call: most connections make none
        self._retired = False
        self._unreadable: str | None = None

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
        endpoint = self.endpoint
        loop = endpoint.loop
        future: asyncio.Future[Command] = loop.create_future()
        try:
            if endpoint.calls_in_flight >= endpoint.limits.max_calls_in_flight:
                raise TooManyRequestsError(
                    f"{endpoint.calls_in_flight} calls await answers already; try again later"
                )
            if timeout_s <= 0:
                raise never_sent(CallTimeoutError(f"no time was left to send request {code}"))
            opaque = endpoint.next_opaque()
            self._put_request(code, opaque, 0, fields, body, serialize_type)
        except CometError as error:
            future.set_exception(error)
            return future
        now = loop.time()
        calls = self._calls
        if calls is None:
            calls = self._calls = {}
        if calls:
            self.flush_soon()
        else:  # a single caller does not wait for others
            endpoint.calling.add(cast(Any, self))
            self.flush()
        calls[opaque] = _Call(future, now, now + timeout_s, code)
        endpoint.calls_in_flight += 1
        endpoint.watch_deadline(now + timeout_s)
        return future

    def oneway(
        self,
        code: int,
        fields: Fields | None,
        body: Payload = b"",
        *,
        serialize_type: int = JSON,
    ) -> None:
        """Send a request that nobody answers."""
        self._put_request(code, self.endpoint.next_opaque(), ONEWAY_FLAG, fields, body, serialize_type)
        self.flush()

    def _put_request(
        self,
        code: int,
        opaque: int,
        flag: int,
        fields: Fields | None,
        body: Payload,
        serialize_type: int,
    ) -> None:
        if not self.is_open:
            raise never_sent(ConnectionLostError(f"the connection to {self.remote_address} is closed"))
        body_bytes = payload_bytes(body)
        head = encode_request_head(code, opaque, flag, fields, body_bytes, serialize_type)
        size, limit = len(head) + body_bytes, self.endpoint.limits.max_frame_bytes
        if size > limit:
            raise MessageError(f"a request of {size} bytes is over the {limit} of a frame; send less at once")
        self._put(head, body, body_bytes)

    def _take_answer(self, command: Command) -> None:
        call = None if self._calls is None else self._calls.pop(command.opaque, None)
        if call is None:
            self.endpoint.metrics.unmatched += 1
            return
        self.endpoint.calls_in_flight -= 1
        if not call.future.done():
            call.future.set_result(command)
        if self._retired:
            self.retire()

    def _take_unreadable_answer(self, opaque: int, error: HeaderError) -> None:
        if opaque == NO_OPAQUE and self._calls:
            # One of the calls has its answer, and nobody can tell which: all of them fail at once.
            self._unreadable = error.message
            self.close("an answer cannot be read", abort=True)
            return
        call = None if self._calls is None else self._calls.pop(opaque, None)
        if call is None:
            self.endpoint.metrics.unmatched += 1
            return
        self.endpoint.calls_in_flight -= 1
        if not call.future.done():
            text = (
                f"the answer of {self.remote_address} to request {call.code} cannot be read: {error.message}"
            )
            failure = RemotingError(text)
            failure.maybe_applied = True
            call.future.set_exception(failure)

    def forget(self, future: asyncio.Future[Command]) -> None:
        """Nobody waits for this call any more."""
        for opaque, call in (self._calls or {}).items():
            if call.future is future:
                del (self._calls or {})[opaque]
                self.endpoint.calls_in_flight -= 1
                break
        if self._retired:
            self.retire()

    def retire(self) -> None:
        """Take no new calls; close with the last answer that is due."""
        self._retired = True
        if not self._calls:
            self.close("retired")

    def expire_calls(self, now: float) -> float | None:
        """Fail the calls whose time is over; the answer is the nearest deadline of the others."""
        nearest: float | None = None
        silent = False
        for opaque, call in list((self._calls or {}).items()):
            if call.deadline <= now or call.future.cancelled():
                del (self._calls or {})[opaque]
                self.endpoint.calls_in_flight -= 1
                silent |= self._last_received <= call.sent_at
                if not call.future.done():
                    text = f"{self.remote_address} did not answer request {call.code} in time"
                    call.future.set_exception(CallTimeoutError(text))
            elif nearest is None or call.deadline < nearest:
                nearest = call.deadline
        if silent:
            self.endpoint.fell_silent(cast(Any, self))
        if self._retired:
            self.retire()
        return nearest

    def _ended(self) -> None:
        super()._ended()
        calls, self._calls = self._calls, None
        if not calls:
            return
        self.endpoint.calls_in_flight -= len(calls)
        for call in calls.values():
            if not call.future.done():
                text = f"{self.remote_address} closed the connection before it answered request {call.code}"
                if self._unreadable is not None:
                    text = (
                        f"an answer of {self.remote_address} cannot be read, and may be that to request "
                        f"{call.code}: {self._unreadable}"
                    )
                call.future.set_exception(ConnectionLostError(text))


def never_sent(error: E) -> E:
    """The same error, for a request of which no byte was written."""
    error.maybe_applied = False
    return error
