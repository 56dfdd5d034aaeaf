"""The byte side of a connection: first bytes, TLS, splitting, back-pressure and health.

Rules kept here:
- Every complete frame in a read is handled before one write goes out, as long as what is to be written stays
  under its limit; beyond it, handling and reading wait until the peer has taken some of it.
- Everything buffered is counted, and each limit of `Limits` is enforced here or by the endpoint.
- Broken framing ends the connection, after the answers to what came before it are written.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, cast

from cometmq.model.errors import CometError, FramingError
from cometmq.remoting.preamble import Preamble, Verdict
from cometmq.remoting.tls import TlsSession
from cometmq.wire.command import Body
from cometmq.wire.frame import Frame, FrameSplitter

if TYPE_CHECKING:
    from cometmq.remoting.endpoint import Endpoint

log = logging.getLogger("cometmq.remoting")


class Stream(asyncio.Protocol):
    """A connection as a stream of frames; what the frames say is up to the subclass."""

    __slots__ = (
        "__weakref__",
        "_closing_since",
        "_finishing",
        "_frame_since",
        "_held",
        "_last_activity",
        "_out",
        "_out_bytes",
        "_preamble",
        "_reading_paused",
        "_running",
        "_sent_bytes",
        "_splitter",
        "_taken",
        "_tls",
        "_transport",
        "_writable",
        "_write_paused",
        "close_reason",
        "endpoint",
        "remote_address",
    )

    def __init__(self, endpoint: Endpoint, *, sniff: bool) -> None:
        self.endpoint = endpoint
        self.remote_address = ""
        self.close_reason = "peer closed"
        self._transport: asyncio.Transport | None = None
        self._preamble: Preamble | None = Preamble() if sniff else None
        self._tls: TlsSession | None = None
        self._splitter = FrameSplitter(endpoint.limits.max_frame_bytes)
        self._out: list[Body] = []
        self._out_bytes = 0
        self._running = 0  # handlers that have not answered yet
        self._held = 0  # bytes in the splitter, as the endpoint knows them
        self._reading_paused = False
        self._write_paused = False
        self._writable: asyncio.Future[None] | None = None
        self._sent_bytes = 0
        self._taken = (0, 0.0)  # how much the peer has taken of it, and since when it is that much
        self._last_activity = 0.0
        self._frame_since: float | None = None
        self._closing_since: float | None = None
        self._finishing = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.remote_address or 'not connected'}>"

    @abstractmethod
    def _take_frame(self, frame: Frame) -> None:
        """Handle one frame; answers go to `_put`."""

    @abstractmethod
    def _ended(self) -> None:
        """The connection is gone."""

    @property
    def is_open(self) -> bool:
        return self._transport is not None and self._closing_since is None

    @property
    def write_blocked(self) -> bool:
        """So much is unwritten that nothing more should be added."""
        return self._write_paused

    @property
    def held_bytes(self) -> int:
        """Everything buffered for this connection, in both directions."""
        return self._held + self._unwritten_bytes()

    def _unwritten_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        limits = self.endpoint.limits
        self._transport.set_write_buffer_limits(limits.write_high_bytes, limits.write_low_bytes)
        self.remote_address = address_text(transport.get_extra_info("peername"))
        self._last_activity = self.endpoint.loop.time()
        if not self.endpoint.opened(cast(Any, self)):
            log.warning("refused %s: %d connections are open", self.remote_address, limits.max_connections)
            self.close("too many connections", abort=True)

    def data_received(self, data: bytes) -> None:
        endpoint = self.endpoint
        self._last_activity = endpoint.loop.time()
        endpoint.metrics.bytes_in += len(data)
        if self._closing_since is not None:
            return
        if self._preamble is None and self._tls is None:
            self._splitter.feed(data)
            self._handle_frames()
        elif self._preamble is not None:
            self._sniff(self._preamble, data)
        elif self._tls is not None:
            self._tls_received(self._tls, data)

    def pause_writing(self) -> None:
        self._write_paused = True
        self._pause_reading()

    def resume_writing(self) -> None:
        self._write_paused = False
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._closing_since is None:
            self._closing_since = self.endpoint.loop.time()
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._count_held(0)
        self._ended()
        self.endpoint.closed(cast(Any, self))
        self._transport = None

    # The first bytes: PROXY header, TLS or plain.

    def _sniff(self, preamble: Preamble, data: bytes) -> None:
        try:
            verdict, rest = preamble.feed(data)
        except FramingError as error:
            self._refuse_stream(error)
            return
        if preamble.proxy is not None:
            self.remote_address = address_text(preamble.proxy.source)
        if verdict is Verdict.MORE:
            self._frame_since = self._frame_since or self._last_activity
            return
        self._preamble = None
        self._frame_since = None
        mode = self.endpoint.tls_mode
        if verdict is Verdict.TLS and mode != "disabled":
            self._start_tls(rest)
        elif verdict is Verdict.TLS or mode == "enforcing":
            self.close("TLS is disabled here" if verdict is Verdict.TLS else "TLS is required here")
        else:
            self._splitter.feed(rest)
            self._handle_frames()

    def _start_tls(self, hello: bytes) -> None:
        """Load the context on a worker thread, then go on with the handshake."""
        contexts = self.endpoint.tls_contexts
        if contexts is None:
            self.close("TLS is disabled here")
            return
        self._frame_since = self._last_activity
        self._pause_reading()
        loading = self.endpoint.loop.run_in_executor(None, contexts.current)

        def loaded(future: asyncio.Future[ssl.SSLContext]) -> None:
            error = future.exception()
            if self._closing_since is not None:
                return
            if error is not None:
                log.error("TLS is not possible: %s", error)
                self.close("TLS is not possible", abort=True)
                return
            self._tls = TlsSession(future.result())
            self._resume_reading()
            self._tls_received(self._tls, hello)

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
            self._frame_since = None
        if plain:
            self._splitter.feed(plain)
            self._handle_frames()

    # Frames in.

    def _handle_frames(self) -> None:
        """Handle every complete frame that is here, then write all answers at once."""
        splitter = self._splitter
        limits = self.endpoint.limits
        try:
            while not self._write_paused and self._running < limits.max_running_per_connection:
                frame = splitter.next_frame()
                if frame is None:
                    break
                self._frame_since = None
                self._take_frame(frame)
                if self._out_bytes >= limits.write_high_bytes:
                    self.flush()
            else:
                self._pause_reading()
        except FramingError as error:
            self.flush()
            self._refuse_stream(error)
            return
        self.flush()
        held = splitter.buffered_bytes
        if held != self._held:
            self._count_held(held)
        if held and self._frame_since is None and not self._reading_paused:
            self._frame_since = self._last_activity

    def _count_held(self, held: int) -> None:
        endpoint = self.endpoint
        endpoint.buffered_bytes += held - self._held
        self._held = held
        if endpoint.buffered_bytes > endpoint.limits.max_buffered_bytes:
            endpoint.shed_load()

    def _go_on(self) -> None:
        """A reason to wait is gone: handle what waited, then read on."""
        if self._closing_since is not None:
            return
        if self._splitter.buffered_bytes:
            self._handle_frames()
        blocked = self._write_paused or self._running >= self.endpoint.limits.max_running_per_connection
        if self._finishing:
            self._finish_if_done()
        elif not blocked:
            self._resume_reading()

    def _refuse_stream(self, error: FramingError) -> None:
        log.warning("closing %s: %s", self.remote_address, error)
        self.close("broken framing")

    def _pause_reading(self) -> None:
        if not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._frame_since = None
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._reading_paused and self._transport is not None and self._closing_since is None:
            self._reading_paused = False
            self._last_activity = self.endpoint.loop.time()
            self._transport.resume_reading()

    # Bytes out.

    def _put(self, head: bytes, body: Body) -> None:
        """Add to what the next `flush` writes."""
        self._out.append(head)
        self._out_bytes += len(head)
        if body:
            self._out.append(body)
            self._out_bytes += len(body)

    def flush(self) -> None:
        """Write what was put, in one piece."""
        out = self._out
        if out:
            data = b"".join(out) if len(out) > 1 else out[0]
            out.clear()
            self._out_bytes = 0
            self._write_raw(data if self._tls is None else self._tls.send(bytes(data)))

    def _write_raw(self, data: Body) -> None:
        transport = self._transport
        if transport is None or not data:
            return
        self._sent_bytes += len(data)
        self.endpoint.metrics.bytes_out += len(data)
        transport.write(data)
        if self._write_paused and transport.get_write_buffer_size() > self.endpoint.limits.max_write_bytes:
            self.close("slow reader", abort=True)

    async def writable(self) -> None:
        """Wait until the peer has taken enough of what was written to it."""
        while self._write_paused and self._closing_since is None:
            if self._writable is None or self._writable.done():
                self._writable = self.endpoint.loop.create_future()
            await asyncio.shield(self._writable)

    # The end.

    def close(self, reason: str, *, abort: bool = False) -> None:
        """End the connection: after what is unwritten, or at once with `abort`."""
        transport = self._transport
        if self._closing_since is None:
            self._closing_since = self.endpoint.loop.time()
            self.close_reason = reason
        if transport is not None:
            if abort:
                transport.abort()
            else:
                transport.close()

    def finish(self, reason: str) -> None:
        """Read no more, answer what was accepted, then close."""
        if self._closing_since is None:
            self.close_reason = reason
            self._finishing = True
            self._pause_reading()
            self._finish_if_done()

    def _finish_if_done(self) -> None:
        if self._running == 0 and not self._write_paused:
            self.flush()
            self.close(self.close_reason)

    def check_health(self, now: float) -> None:
        """Close the connection if it is idle, stuck in a frame, not read by its peer, or never ends."""
        limits = self.endpoint.limits
        unwritten = self._unwritten_bytes()
        if unwritten:
            taken = self._sent_bytes - unwritten
            if taken != self._taken[0]:
                self._taken = (taken, now)
                self._last_activity = now
            elif now - self._taken[1] > limits.write_timeout_s:
                self.close("slow reader", abort=True)
        else:
            self._taken = (self._sent_bytes, now)
        if self._closing_since is not None:
            if not unwritten and now - self._closing_since > limits.write_timeout_s:
                self.close(self.close_reason, abort=True)
        elif self._frame_since is not None and now - self._frame_since > limits.frame_timeout_s:
            log.warning("closing %s: a frame did not arrive whole in time", self.remote_address)
            self.close("slow sender", abort=True)
        elif 0 < limits.idle_timeout_s < now - self._last_activity and not self._running:
            self.close("idle")


def address_text(address: Any) -> str:
    """`host:port` of a socket address."""
    if isinstance(address, tuple) and len(address) >= 2:
        return f"{address[0]}:{address[1]}"
    return str(address or "unknown")
