"""A byte channel: the transport side of a connection, with TLS, writing, back-pressure, health and close.

Rules kept here:
- Nothing is written before it is clear whether the peer speaks TLS.
- Everything that is put in one turn of the loop is written with one system call. A socket with nothing
  unwritten is written to directly; what it does not take goes to the transport, which keeps the order.
- A large body in chunks is written as it is; small chunks are joined, because that is quicker.
- Everything written is delivered before an orderly close: our side of the stream ends first, and input is
  read and dropped for a moment, because a close on unread bytes destroys what is under way.
- A peer that is silent, drips its bytes, or does not take ours is closed; nobody else waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from cometmq.model.errors import CometError, FramingError
from cometmq.ports.system import WRITES_TO_SOCKETS
from cometmq.remoting.preamble import Detected, Preamble
from cometmq.remoting.tls import TlsSession
from cometmq.wire.frame.command import Body, Payload

if TYPE_CHECKING:  # a channel belongs to an endpoint, which has its connections
    from cometmq.remoting.endpoint import Endpoint

log = logging.getLogger("cometmq.remoting")

LINGER_S: Final = 1.0
"""How long a peer may take to end its side after we ended ours."""
_SMALL_CHUNK_BYTES: Final = 2 * 1024
"""Chunks of this average size are joined: copying them is cheaper than describing them to the kernel."""
_JOINED_BYTES: Final = 64 * 1024
"""Up to this size everything is joined; allocating a larger block costs more than `writev`."""
_MAX_CHUNKS: Final = 1024
"""The most chunks that `writev` takes."""
_MAX_DELAYED_BYTES: Final = 64 * 1024
"""More than this does not wait for the end of the turn."""


class Receiver(Protocol):
    """The user of a channel."""

    def opened(self) -> str | None:
        """The channel is connected; returns the reason to refuse it, or None."""

    def bytes_received(self, data: bytes) -> None:
        """Bytes of the peer, without preamble and TLS."""

    def stream_broken(self, error: FramingError) -> None:
        """The peer's bytes make no sense."""

    def go_on(self) -> None:
        """The peer takes our bytes again."""

    def is_busy(self) -> bool:
        """Work for the peer is under way, so that its silence is no idleness."""

    def ended(self) -> None:
        """The channel is gone."""


class ByteChannel(asyncio.Protocol):
    """Bytes in both directions. The receiver reads the attributes without underscore for every frame."""

    __slots__ = (
        "_descriptor",
        "_flush_is_due",
        "_out",
        "_preamble",
        "_receiver",
        "_sent_bytes",
        "_stuck_since",
        "_taken_at",
        "_taken_bytes",
        "_transport",
        "_writable",
        "backed_up",
        "close_reason",
        "closing_since",
        "drops_input",
        "endpoint",
        "incomplete_since",
        "last_received",
        "out_bytes",
        "reading_paused",
        "remote_address",
        "tls",
        "write_paused",
    )

    def __init__(self, endpoint: Endpoint, receiver: Receiver, *, sniff: bool) -> None:
        self.endpoint = endpoint
        self._receiver = receiver
        self.remote_address = ""
        self.close_reason = "peer closed"
        self._transport: asyncio.Transport | None = None
        self._descriptor = -1  # of a socket that may be written to directly
        self._preamble = Preamble() if sniff else None  # until it is clear what the peer speaks
        self.tls: TlsSession | None = None
        self._out: list[Body] = []
        self.out_bytes = 0
        self._flush_is_due = False
        self.write_paused = False
        self._writable: asyncio.Future[None] | None = None
        self._sent_bytes = 0
        self.reading_paused = False
        self.backed_up = False  # too much is unwritten to read on
        self.drops_input = False
        self.closing_since: float | None = None
        self._taken_bytes = 0  # sent bytes that the peer had taken at the last check
        self._taken_at = 0.0
        self._stuck_since: float | None = None
        self.last_received = 0.0
        self.incomplete_since: float | None = None  # of a frame, a preamble or a handshake

    @property
    def is_open(self) -> bool:
        return self._transport is not None and self.closing_since is None

    @property
    def takes_calls(self) -> bool:
        """The channel is open and does not just pile up what is put."""
        return self._transport is not None and self.closing_since is None and not self.write_paused

    @property
    def unwritten_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        limits = self.endpoint.limits
        self._transport.set_write_buffer_limits(limits.write_high_bytes, limits.write_low_bytes)
        self.remote_address = address_text(transport.get_extra_info("peername"))
        self.last_received = self.endpoint.loop.time()
        sock = transport.get_extra_info("socket")
        if WRITES_TO_SOCKETS and sock is not None and transport.get_extra_info("ssl_object") is None:
            self._descriptor = sock.fileno()
        refusal = self._receiver.opened()
        if refusal is not None:
            if count := self.endpoint.refusals.count():
                log.warning("refused %s and %d more: %s", self.remote_address, count - 1, refusal)
            self.close(refusal, abort=True)

    def data_received(self, data: bytes) -> None:
        endpoint = self.endpoint
        self.last_received = endpoint.loop.time()
        endpoint.metrics.bytes_in += len(data)
        if self.closing_since is not None or self.drops_input:
            return
        if self._preamble is not None:
            self._sniff(self._preamble, data)
        elif self.tls is not None:
            self._tls_received(self.tls, data)
        else:
            self._receiver.bytes_received(data)

    def pause_writing(self) -> None:
        self.write_paused = True
        if self.endpoint.answers_first:
            self.backed_up = True
            self.pause_reading()

    def resume_writing(self) -> None:
        self.write_paused = self.backed_up = False
        self._wake_writers()
        self._receiver.go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is None:
            return
        if self.closing_since is None:
            self.closing_since = self.endpoint.loop.time()
        self._wake_writers()
        self._receiver.ended()
        self._transport = None
        self._descriptor = -1
        del self._receiver  # a cycle would keep both until the next garbage collection

    # The first bytes: PROXY header, TLS or plain.

    def _sniff(self, preamble: Preamble, data: bytes) -> None:
        if preamble.detected is Detected.TLS:  # the context is not loaded yet
            preamble.rest += data
            return
        try:
            detected = preamble.feed(data)
        except FramingError as error:
            self._receiver.stream_broken(error)
            return
        if preamble.proxy is not None:
            self.remote_address = address_text(preamble.proxy.source)
        mode = self.endpoint.tls_mode
        if detected is Detected.MORE:
            self.incomplete_since = self.incomplete_since or self.last_received
        elif detected is Detected.TLS and mode != "disabled":
            self._start_tls(preamble)
        elif detected is Detected.TLS or mode == "enforcing":
            self.close("TLS is disabled here" if detected is Detected.TLS else "TLS is required here")
        else:
            self._preamble = None
            self.incomplete_since = None
            self._receiver.bytes_received(preamble.rest)

    def _start_tls(self, preamble: Preamble) -> None:
        """Load the context on a worker thread, then go on with the handshake."""
        contexts = self.endpoint.tls_contexts
        if contexts is None:
            self.close("TLS is disabled here")
            return
        since = self.incomplete_since or self.last_received
        self.pause_reading()
        self.incomplete_since = since
        loading = self.endpoint.loop.run_in_executor(None, contexts.current)

        def loaded(future: asyncio.Future[ssl.SSLContext]) -> None:
            error = None if future.cancelled() else future.exception()
            if self.closing_since is not None:
                return
            if error is not None or future.cancelled():
                log.error("TLS is not possible: %s", error)
                self.close("TLS is not possible", abort=True)
                return
            self._preamble = None
            self.tls = TlsSession(future.result())
            self.resume_reading()
            self._tls_received(self.tls, preamble.rest)

        loading.add_done_callback(loaded)

    def _tls_received(self, tls: TlsSession, data: bytes) -> None:
        was_established = tls.established
        try:
            plain = tls.receive(data)
        except CometError as error:
            log.info("%s: %s", self.remote_address, error)
            self._write_raw(tls.take_outgoing())
            self.close("TLS failed")
            return
        self._write_raw(tls.take_outgoing())
        if tls.established and not was_established:
            self.incomplete_since = None
            self.flush()
        if plain:
            self._receiver.bytes_received(plain)
        if tls.ended:
            self.close("peer closed")

    def pause_reading(self) -> None:
        if not self.reading_paused and self._transport is not None:
            self.reading_paused = True
            self.incomplete_since = None
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self.reading_paused and self._transport is not None:
            self.reading_paused = False
            self.last_received = self.endpoint.loop.time()
            self._transport.resume_reading()

    # Writing.

    def put(self, head: bytes, body: Payload, body_bytes: int) -> None:
        """Add a frame to what the next `flush` writes."""
        self._out.append(head)
        self.out_bytes += len(head) + body_bytes
        if body_bytes:
            if isinstance(body, bytes | bytearray | memoryview):
                self._out.append(body)
            elif body_bytes > len(body) * _SMALL_CHUNK_BYTES:
                self._out += body
            else:
                self._out.append(b"".join(body))

    def put_frames(self, frames: Sequence[bytes]) -> None:
        """Add encoded frames to what the next `flush` writes."""
        self._out += frames
        self.out_bytes += sum(map(len, frames))

    def flush(self) -> None:
        """Write what was put, at once."""
        out = self._out
        if self.closing_since is not None:
            out.clear()  # our side of the stream has ended
            self.out_bytes = 0
        elif out and self._preamble is None:
            tls = self.tls
            if tls is not None and not tls.established:
                return
            size = self.out_bytes
            self.out_bytes = 0
            if size > _JOINED_BYTES and tls is None and self._is_best_in_chunks(size):
                self._out = []
                self._write_chunks(out, size)
                return
            data = b"".join(out) if len(out) > 1 else out[0]
            out.clear()
            self._write_raw(data if tls is None else tls.send(data))

    def _is_best_in_chunks(self, size: int) -> bool:
        count = len(self._out)
        return 1 < count <= _MAX_CHUNKS and size > count * _SMALL_CHUNK_BYTES

    def flush_soon(self) -> None:
        """Write at the end of this turn of the loop: a write costs about as much as the rest of a request."""
        if self.out_bytes > _MAX_DELAYED_BYTES:
            self.flush()
        elif not self._flush_is_due:
            self._flush_is_due = True
            self.endpoint.loop.call_soon(self._flush_now)

    def _flush_now(self) -> None:
        self._flush_is_due = False
        self.flush()

    def _write_chunks(self, chunks: list[Body], size: int) -> None:
        """Write without joining first."""
        transport = self._transport
        if transport is None:
            return
        self._sent_bytes += size
        self.endpoint.metrics.bytes_out += size
        if self._descriptor >= 0 and not transport.get_write_buffer_size() and not transport.is_closing():
            try:
                written = os.writev(self._descriptor, chunks)
            except OSError:  # as in `_write_raw`
                written = 0
            if written == size:
                return
            chunks = _after(chunks, written)
        transport.writelines(chunks)
        self._check_backlog(transport)

    def _write_raw(self, data: Body) -> None:
        transport = self._transport
        if transport is None or not data:
            return
        self._sent_bytes += len(data)
        self.endpoint.metrics.bytes_out += len(data)
        if self._descriptor >= 0 and not transport.get_write_buffer_size() and not transport.is_closing():
            # At once: uvloop would wait for the end of its turn.
            try:
                written = os.write(self._descriptor, data)
            except OSError:  # nothing is taken, or the connection is broken: the transport finds out which
                written = 0
            if written == len(data):
                return
            if written:
                data = memoryview(data)[written:]
        transport.write(data)
        self._check_backlog(transport)

    def _check_backlog(self, transport: asyncio.Transport) -> None:
        if self.write_paused and transport.get_write_buffer_size() > self.endpoint.limits.max_write_bytes:
            self.close("slow reader", abort=True)

    async def writable(self) -> None:
        """Wait until the peer has taken enough of what was written to it, or the channel has ended."""
        while self.write_paused and self.closing_since is None:
            if self._writable is None or self._writable.done():
                self._writable = self.endpoint.loop.create_future()
            await asyncio.shield(self._writable)

    def _wake_writers(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    # The end.

    def close(self, reason: str, *, abort: bool = False) -> None:
        """End the channel: after everything unwritten, or at once with `abort`."""
        if self.closing_since is None and not abort:
            self.flush()
        first = self.closing_since is None
        if first:
            self.closing_since = self.endpoint.loop.time()
            self.close_reason = reason
        transport = self._transport
        if transport is not None:
            if abort:
                transport.abort()
            elif first:
                self._close_in_order(transport)
        self._wake_writers()

    def _close_in_order(self, transport: asyncio.Transport) -> None:
        if self.tls is not None and self.tls.established:
            self._write_raw(self.tls.end())
        quiet = self.endpoint.loop.time() - self.last_received > LINGER_S and not self.reading_paused
        if quiet or not transport.can_write_eof():
            transport.close()
            return
        try:
            transport.write_eof()
        except OSError:  # the peer is gone already
            transport.abort()
            return
        self.resume_reading()  # input is dropped now, until the peer ends its side or time is over

    def check_health(self, now: float) -> None:
        """Close the channel if it is idle, stuck in a frame, not read by its peer, or never ends."""
        limits = self.endpoint.limits
        unwritten = self.unwritten_bytes
        taken = self._sent_bytes - unwritten
        if taken != self._taken_bytes or not unwritten:
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = now
        elif now - self._stuck_since > limits.write_timeout_s:
            self.close("slow reader", abort=True)
        if taken != self._taken_bytes:
            self._taken_bytes = taken
            self._taken_at = now
        if self.closing_since is not None:
            if not unwritten and now - self.closing_since > LINGER_S:
                self.close(self.close_reason, abort=True)
        elif self.incomplete_since is not None and now - self.incomplete_since > limits.frame_timeout_s:
            if count := self.endpoint.slow_senders.count():
                log.warning(
                    "closing %s and %d more: a frame does not arrive whole in time",
                    *(self.remote_address, count - 1),
                )
            self.close("slow sender", abort=True)
        elif (
            0 < limits.idle_timeout_s < now - max(self.last_received, self._taken_at)
            and not self._receiver.is_busy()
        ):
            self.close("idle")


def _after(chunks: list[Body], size: int) -> list[Body]:
    """Returns the chunks without their first `size` bytes."""
    for index, chunk in enumerate(chunks):
        if size < len(chunk):
            return [memoryview(chunk)[size:], *chunks[index + 1 :]]
        size -= len(chunk)
    return []


def address_text(address: Any) -> str:
    """Returns `host:port` of a socket address."""
    if isinstance(address, tuple) and len(address) >= 2:
        return f"{address[0]}:{address[1]}"
    return str(address or "unknown")
