"""The byte side of a connection: its first bytes, TLS, back-pressure, health and end.

Rules kept here:
- Nothing is written before it is clear whether the peer speaks TLS.
- What was written is delivered before an orderly close: our side of the stream ends first, and what the peer
  still sends is read and dropped for a moment, because a close on unread bytes destroys what is under way.
- A peer that is silent, drips its bytes, or does not take ours is closed; nobody else waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final, cast

from cometmq.model.errors import CometError, FramingError
from cometmq.remoting.outlet import Outlet
from cometmq.remoting.preamble import Preamble, Verdict
from cometmq.remoting.tls import TlsSession

if TYPE_CHECKING:
    from cometmq.remoting.endpoint import Endpoint

log = logging.getLogger("cometmq.remoting")

LINGER_S: Final = 1.0
"""How long a peer may take to end its side after we ended ours."""


class Channel(Outlet):
    """Bytes in both directions; what they mean is up to the subclass."""

    __slots__ = (
        "__weakref__",
        "_backed_up",
        "_incomplete_since",
        "_last_received",
        "_reading_paused",
        "_stuck_since",
        "_taken_at",
        "_taken_bytes",
        "close_reason",
        "remote_address",
    )

    def __init__(self, endpoint: Endpoint, *, sniff: bool) -> None:
        super().__init__(endpoint)
        self.remote_address = ""
        self.close_reason = "peer closed"
        self._preamble = Preamble() if sniff else None
        self._reading_paused = False
        self._backed_up = False  # so much is unwritten that nothing more should be read
        self._taken_bytes = 0  # how much of what was sent the peer had taken at the last look
        self._taken_at = 0.0
        self._stuck_since: float | None = None
        self._last_received = 0.0
        self._incomplete_since: float | None = None  # of a frame, a preamble or a handshake

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.remote_address or 'not connected'}>"

    @abstractmethod
    def _take_plain(self, data: bytes) -> None:
        """Bytes of the peer, without preamble and TLS."""

    @abstractmethod
    def _go_on(self) -> None:
        """A reason to wait is gone."""

    @abstractmethod
    def _ended(self) -> None:
        """The connection is gone."""

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        limits = self.endpoint.limits
        self._transport.set_write_buffer_limits(limits.write_high_bytes, limits.write_low_bytes)
        self.remote_address = address_text(transport.get_extra_info("peername"))
        self._last_received = self.endpoint.loop.time()
        sock = transport.get_extra_info("socket")
        if sock is not None and transport.get_extra_info("ssl_object") is None:
            self._descriptor = sock.fileno()
        refusal = self.endpoint.opened(cast(Any, self))
        if refusal is not None:
            if count := self.endpoint.refusals.count():
                log.warning("refused %s and %d more: %s", self.remote_address, count - 1, refusal)
            self.close(refusal, abort=True)

    def pause_writing(self) -> None:
        self._write_paused = True
        if self.endpoint.answers_first:
            self._backed_up = True
            self._pause_reading()

    def resume_writing(self) -> None:
        self._write_paused = self._backed_up = False
        self._wake_writers()
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._closing_since is None:
            self._closing_since = self.endpoint.loop.time()
        self._wake_writers()
        self._ended()
        self.endpoint.closed(cast(Any, self))
        self._transport = None
        self._descriptor = -1

    # The first bytes: PROXY header, TLS or plain.

    def _take_coded(self, data: bytes) -> None:
        """Bytes of a peer that is not known to be plain."""
        if self._preamble is not None:
            self._sniff(self._preamble, data)
        elif self._tls is not None:
            self._tls_received(self._tls, data)

    def _sniff(self, preamble: Preamble, data: bytes) -> None:
        if preamble.verdict is Verdict.TLS:  # the context is not there yet
            preamble.rest += data
            return
        try:
            verdict = preamble.feed(data)
        except FramingError as error:
            self._refuse_stream(error)
            return
        if preamble.proxy is not None:
            self.remote_address = address_text(preamble.proxy.source)
        mode = self.endpoint.tls_mode
        if verdict is Verdict.MORE:
            self._incomplete_since = self._incomplete_since or self._last_received
        elif verdict is Verdict.TLS and mode != "disabled":
            self._start_tls(preamble)
        elif verdict is Verdict.TLS or mode == "enforcing":
            self.close("TLS is disabled here" if verdict is Verdict.TLS else "TLS is required here")
        else:
            self._preamble = None
            self._incomplete_since = None
            self._take_plain(preamble.rest)

    def _start_tls(self, preamble: Preamble) -> None:
        """Load the context on a worker thread, then go on with the handshake."""
        contexts = self.endpoint.tls_contexts
        if contexts is None:
            self.close("TLS is disabled here")
            return
        since = self._incomplete_since or self._last_received
        self._pause_reading()
        self._incomplete_since = since
        loading = self.endpoint.loop.run_in_executor(None, contexts.current)

        def loaded(future: asyncio.Future[ssl.SSLContext]) -> None:
            error = None if future.cancelled() else future.exception()
            if self._closing_since is not None:
                return
            if error is not None or future.cancelled():
                log.error("TLS is not possible: %s", error)
                self.close("TLS is not possible", abort=True)
                return
            self._preamble = None
            self._tls = TlsSession(future.result())
            self._resume_reading()
            self._tls_received(self._tls, preamble.rest)

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
            self._incomplete_since = None
            self.flush()
        if plain:
            self._take_plain(plain)
        if tls.ended:
            self.close("peer closed")

    @abstractmethod
    def _refuse_stream(self, error: FramingError) -> None:
        """What the peer sends makes no sense any more."""

    def _pause_reading(self) -> None:
        if not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._incomplete_since = None
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._reading_paused and self._transport is not None:
            self._reading_paused = False
            self._last_received = self.endpoint.loop.time()
            self._transport.resume_reading()

    # The end.

    def close(self, reason: str, *, abort: bool = False) -> None:
        """End the connection: after what is unwritten, or at once with `abort`."""
        if self._closing_since is None and not abort:
            self.flush()
        first = self._closing_since is None
        if first:
            self._closing_since = self.endpoint.loop.time()
            self.close_reason = reason
        transport = self._transport
        if transport is not None:
            if abort:
                transport.abort()
            elif first:
                self._close_in_order(transport)
        self._wake_writers()

    def _close_in_order(self, transport: asyncio.Transport) -> None:
        if self._tls is not None and self._tls.established:
            self._write_raw(self._tls.end())
        quiet = self.endpoint.loop.time() - self._last_received > LINGER_S and not self._reading_paused
        if quiet or not transport.can_write_eof():
            transport.close()
            return
        try:
            transport.write_eof()
        except OSError:  # the peer is gone already
            transport.abort()
            return
        self._resume_reading()  # what comes now is dropped, until the peer ends its side or time is over

    def check_health(self, now: float) -> None:
        """Close the connection if it is idle, stuck in a frame, not read by its peer, or never ends."""
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
        if self._closing_since is not None:
            if not unwritten and now - self._closing_since > LINGER_S:
                self.close(self.close_reason, abort=True)
        elif self._incomplete_since is not None and now - self._incomplete_since > limits.frame_timeout_s:
            if count := self.endpoint.slow_senders.count():
                log.warning(
                    "closing %s and %d more: what they send does not arrive whole in time",
                    *(self.remote_address, count - 1),
                )
            self.close("slow sender", abort=True)
        elif (
            0 < limits.idle_timeout_s < now - max(self._last_received, self._taken_at) and not self._is_busy()
        ):
            self.close("idle")

    @abstractmethod
    def _is_busy(self) -> bool:
        """Work for the peer is under way, so that its silence is no idleness."""


def address_text(address: Any) -> str:
    """`host:port` of a socket address."""
    if isinstance(address, tuple) and len(address) >= 2:
        return f"{address[0]}:{address[1]}"
    return str(address or "unknown")
