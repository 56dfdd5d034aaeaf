"""A connection as a stream of frames: splitting, the order of work, and what may wait.

Rules kept here:
- Every complete frame in a read is handled before one write goes out, as long as what is to be written stays
  under its limit; beyond it, handling and reading wait until the peer has taken some of it.
- A connection whose requests take long lets the others have their turn after each few milliseconds.
- Everything buffered is counted, and each limit of `Limits` is enforced here or by the endpoint.
- Broken framing ends the connection, but only after everything that came before it is answered.
- What a handler leaves to be done behind its answers is done when they are written, so that the peer has them
  meanwhile, and before anything else is handled.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Final

from cometmq.model.errors import FramingError
from cometmq.remoting.channel import Channel
from cometmq.wire.frame.frame import FrameSplitter

if TYPE_CHECKING:
    from cometmq.remoting.endpoint import Endpoint

log = logging.getLogger("cometmq.remoting")

_TURN_S: Final = 0.02
"""So long the frames of one connection are handled before those of others."""


class Stream(Channel):
    """Frames of the peer, one after the other; what they say is up to the subclass."""

    __slots__ = ("_afterwards", "_finishing", "_held", "_rests", "_running", "_splitter")

    def __init__(self, endpoint: Endpoint, *, sniff: bool) -> None:
        super().__init__(endpoint, sniff=sniff)
        self._splitter = FrameSplitter(endpoint.limits.max_frame_bytes)
        self._held = 0  # bytes in the splitter, as the endpoint knows them
        self._running = 0  # handlers that have not answered yet
        self._finishing = False
        self._rests = False  # it has had its turn, and goes on in the next one
        self._afterwards: list[Callable[[], None]] = []

    @abstractmethod
    def _take_frame(self, serialize_type: int, raw: bytes, body: memoryview) -> None:
        """Handle one frame; answers go to `_put`."""

    @property
    def held_bytes(self) -> int:
        """Everything buffered for this connection, in both directions."""
        return self._held + self.unwritten_bytes

    def data_received(self, data: bytes) -> None:
        endpoint = self.endpoint
        self._last_received = endpoint.loop.time()
        endpoint.metrics.bytes_in += len(data)
        if self._closing_since is not None or self._finishing:
            return
        if self._preamble is None and self._tls is None:
            self._splitter.feed(data)
            self._handle_frames()
        else:
            self._take_coded(data)

    def _take_plain(self, data: bytes) -> None:
        self._splitter.feed(data)
        self._handle_frames()

    def _handle_frames(self) -> None:
        """Handle every complete frame that is here, then write all answers at once."""
        splitter = self._splitter
        endpoint = self.endpoint
        write_high_bytes = endpoint.limits.write_high_bytes
        max_running = endpoint.max_running_per_connection
        self._rests = False
        until = 0.0
        try:
            while not self._backed_up and self._running < max_running:
                parts = splitter.next_parts()
                if parts is None:
                    break
                if self._afterwards:
                    self._do_afterwards()
                self._incomplete_since = None
                self._take_frame(*parts)
                if self._out_bytes >= write_high_bytes:
                    self.flush()
                if splitter.empty:  # the common end of a read, known without another look
                    break
                if until == 0.0:  # asked for when there is more than one frame, as the clock costs as well
                    until = perf_counter() + _TURN_S
                elif perf_counter() > until:
                    self._rests = True
                    self._pause_reading()
                    endpoint.loop.call_soon(self._go_on)
                    break
            else:
                self._pause_reading()
        except FramingError as error:
            self.flush()
            self._do_afterwards()
            self._refuse_stream(error)
            return
        self.flush()
        if self._afterwards:
            self._do_afterwards()
        held = splitter.buffered_bytes
        if held != self._held:
            self._count_held(held)
        if held and self._incomplete_since is None and not self._reading_paused:
            self._incomplete_since = self._last_received

    def do_afterwards(self, work: Callable[[], None]) -> None:
        """Do something when the answers to what is being handled are written; only for handlers to call."""
        self._afterwards.append(work)

    def _do_afterwards(self) -> None:
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

    def _go_on(self) -> None:
        """Handle what waited, then read on."""
        if self._closing_since is not None:
            return
        self._rests = False
        if self._splitter.buffered_bytes:
            self._handle_frames()
        if self._finishing:
            self._finish_if_done()
        elif (
            not self._rests
            and not self._backed_up
            and self._running < self.endpoint.max_running_per_connection
        ):
            self._resume_reading()

    def _refuse_stream(self, error: FramingError) -> None:
        if count := self.endpoint.broken_streams.count():
            log.warning("closing %s and %d more: %s", self.remote_address, count - 1, error)
        self._splitter = FrameSplitter(self.endpoint.limits.max_frame_bytes)  # the rest cannot be split
        self._count_held(0)
        self.finish("broken framing")

    def finish(self, reason: str) -> None:
        """Read no more, answer what was accepted, then close."""
        if self._closing_since is None:
            self.close_reason = reason
            self._finishing = True
            self._finish_if_done()
            if self._closing_since is None:
                self._pause_reading()

    def _finish_if_done(self) -> None:
        if self._running == 0 and not self._rests and not self._write_paused and self._closing_since is None:
            self.flush()
            self.close(self.close_reason)

    def _is_busy(self) -> bool:
        return self._running > 0

    def _ended(self) -> None:
        self._do_afterwards()  # a defect may have come in between
        self._count_held(0)
