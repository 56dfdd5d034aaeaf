"""Our own calls over a connection, and the answers to them.

Rules kept here:
- An answer finds its call by opaque, in any order; one that nobody waits for is counted and dropped. One that
  cannot be read fails its call, or the connection with all its calls if it does not say whose it is.
- A call ends exactly once: with its answer, at its deadline, with the connection, or when it is forgotten.
- A call that fails says whether the peer may have acted on it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

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
from cometmq.remoting.channel import ByteChannel
from cometmq.wire.frame.command import NO_OPAQUE, Command, Payload, encode_request_head, payload_bytes
from cometmq.wire.header.schema import Fields

if TYPE_CHECKING:  # a call belongs to a connection, which has its calls
    from cometmq.remoting.connection import Connection

E = TypeVar("E", bound=CometError)


class _Call(msgspec.Struct):
    future: asyncio.Future[Command]
    sent_at: float
    deadline: float
    code: int


class Calls:
    """The calls of one connection that await an answer, by opaque."""

    __slots__ = ("_connection", "_endpoint", "_retired", "_unreadable", "pending")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._endpoint = connection.endpoint
        self.pending: dict[int, _Call] = {}
        self._retired = False
        self._unreadable: str | None = None

    def call(
        self, code: int, fields: Fields | None, body: Payload, timeout_s: float, serialize_type: int
    ) -> asyncio.Future[Command]:
        """Send a request; the future gives the answer, or fails with a `CometError`."""
        endpoint, channel, pending = self._endpoint, self._connection.channel, self.pending
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
            put_request(channel, code, opaque, 0, fields, body, serialize_type)
        except CometError as error:
            future.set_exception(error)
            return future
        now = loop.time()
        if pending:
            channel.flush_soon()
        else:  # a single caller does not wait for others
            endpoint.calling.add(self._connection)
            channel.flush()
        pending[opaque] = _Call(future, now, now + timeout_s, code)
        endpoint.calls_in_flight += 1
        endpoint.watch_deadline(now + timeout_s)
        return future

    def take_answer(self, command: Command) -> None:
        call = self._pop(command.opaque)
        if call is not None:
            if not call.future.done():
                call.future.set_result(command)
            if self._retired:
                self.retire()

    def take_unreadable_answer(self, opaque: int, error: HeaderError) -> None:
        address = self._connection.remote_address
        if opaque == NO_OPAQUE and self.pending:
            # One of the calls has its answer, and nobody can tell which: all of them fail at once.
            self._unreadable = error.message
            self._connection.close("an answer cannot be read", abort=True)
            return
        call = self._pop(opaque)
        if call is not None and not call.future.done():
            failure = RemotingError(
                f"the answer of {address} to request {call.code} cannot be read: {error.message}"
            )
            failure.maybe_applied = True
            call.future.set_exception(failure)

    def _pop(self, opaque: int) -> _Call | None:
        call = self.pending.pop(opaque, None)
        if call is None:
            self._endpoint.metrics.unmatched += 1
        else:
            self._endpoint.calls_in_flight -= 1
        return call

    def forget(self, future: asyncio.Future[Command]) -> None:
        """Nobody waits for this call any more."""
        for opaque, call in self.pending.items():
            if call.future is future:
                del self.pending[opaque]
                self._endpoint.calls_in_flight -= 1
                break
        if self._retired:
            self.retire()

    def retire(self) -> None:
        """Close the connection with the last answer that is due."""
        self._retired = True
        if not self.pending:
            self._connection.close("retired")

    def expire(self, now: float) -> float | None:
        """Fail the calls whose time is over; returns the nearest deadline of the others."""
        nearest: float | None = None
        silent = False
        channel = self._connection.channel
        for opaque, call in list(self.pending.items()):
            if call.deadline <= now or call.future.cancelled():
                del self.pending[opaque]
                self._endpoint.calls_in_flight -= 1
                silent |= channel.last_received <= call.sent_at
                if not call.future.done():
                    text = f"{channel.remote_address} did not answer request {call.code} in time"
                    call.future.set_exception(CallTimeoutError(text))
            elif nearest is None or call.deadline < nearest:
                nearest = call.deadline
        if silent:
            self._endpoint.fell_silent(self._connection)
        if self._retired:
            self.retire()
        return nearest

    def fail_all(self) -> None:
        """Fail all calls: the connection has ended."""
        calls, self.pending = self.pending, {}
        self._endpoint.calls_in_flight -= len(calls)
        address = self._connection.remote_address
        for call in calls.values():
            if not call.future.done():
                text = f"{address} closed the connection before it answered request {call.code}"
                if self._unreadable is not None:
                    text = (
                        f"an answer of {address} cannot be read, and may be that to request "
                        f"{call.code}: {self._unreadable}"
                    )
                call.future.set_exception(ConnectionLostError(text))


def put_request(
    channel: ByteChannel,
    code: int,
    opaque: int,
    flag: int,
    fields: Fields | None,
    body: Payload,
    serialize_type: int,
) -> None:
    """Put a request; raises a `CometError` if the channel is closed or the request too large."""
    if not channel.is_open:
        raise never_sent(ConnectionLostError(f"the connection to {channel.remote_address} is closed"))
    body_bytes = payload_bytes(body)
    head = encode_request_head(code, opaque, flag, fields, body_bytes, serialize_type)
    size, limit = len(head) + body_bytes, channel.endpoint.limits.max_frame_bytes
    if size > limit:
        raise MessageError(f"a request of {size} bytes is over the {limit} of a frame; send less at once")
    channel.put(head, body, body_bytes)


def never_sent(error: E) -> E:
    """Mark an error of a request of which no byte was written."""
    error.maybe_applied = False
    return error
