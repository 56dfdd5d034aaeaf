"""Bytes out: what is put is written at the next flush, joined or in pieces, at once or through the transport.

Rules kept here:
- Nothing is written before it is clear whether the peer speaks TLS.
- What is put in one turn is written with one system call. A socket that has nothing unwritten is written to
  directly; what it does not take goes to the transport, which keeps the order.
- A large body in pieces is written as it is; small ones are joined, because that is quicker.
- A peer that lets too much pile up is closed.
"""

from __future__ import annotations

import asyncio
import os
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from cometmq.remoting.preamble import Preamble
from cometmq.remoting.tls import TlsSession
from cometmq.wire.frame.command import Body, Payload

if TYPE_CHECKING:
    from cometmq.remoting.endpoint import Endpoint

_SMALL_PIECE_BYTES: Final = 2 * 1024
"""Pieces of this size on average are joined: copying them is cheaper than describing them to the kernel."""
_JOINED_BYTES: Final = 64 * 1024
"""So much in all is joined in any case: larger blocks are dear to come by."""
_MAX_PIECES: Final = 1024
"""So many pieces a system call takes."""
_MAX_DELAYED_BYTES: Final = 64 * 1024
"""More than this is not kept until the end of a turn."""


class Outlet(asyncio.Protocol):
    """The writing side of a connection."""

    __slots__ = (
        "_closing_since",
        "_descriptor",
        "_flush_is_due",
        "_out",
        "_out_bytes",
        "_preamble",
        "_sent_bytes",
        "_tls",
        "_transport",
        "_writable",
        "_write_paused",
        "endpoint",
    )

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._transport: asyncio.Transport | None = None
        self._descriptor = -1  # of a socket that may be written to directly
        self._preamble: Preamble | None = None  # until it is clear what the peer speaks
        self._tls: TlsSession | None = None
        self._out: list[Body] = []
        self._out_bytes = 0
        self._flush_is_due = False
        self._write_paused = False
        self._writable: asyncio.Future[None] | None = None
        self._sent_bytes = 0
        self._closing_since: float | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and self._closing_since is None

    @property
    def write_blocked(self) -> bool:
        """So much is unwritten that nothing more should be added."""
        return self._write_paused

    @property
    def takes_calls(self) -> bool:
        """It is open, and what is added is not just piled up."""
        return self._transport is not None and self._closing_since is None and not self._write_paused

    @property
    def unwritten_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @abstractmethod
    def close(self, reason: str, *, abort: bool = False) -> None:
        """End the connection."""

    def _put(self, head: bytes, body: Payload, body_bytes: int) -> None:
        """Add to what the next `flush` writes."""
        self._out.append(head)
        self._out_bytes += len(head) + body_bytes
        if body_bytes:
            if isinstance(body, bytes | bytearray | memoryview):
                self._out.append(body)
            elif body_bytes > len(body) * _SMALL_PIECE_BYTES:
                self._out += body
            else:
                self._out.append(b"".join(body))

    def _put_frames(self, frames: Sequence[bytes]) -> None:
        """Add whole frames to it."""
        self._out += frames
        self._out_bytes += sum(map(len, frames))

    def flush(self) -> None:
        """Write what was put, at once."""
        out = self._out
        if self._closing_since is not None:
            out.clear()  # our side of the stream has ended
            self._out_bytes = 0
        elif out and self._preamble is None:
            tls = self._tls
            if tls is not None and not tls.established:
                return
            size = self._out_bytes
            self._out_bytes = 0
            if size > _JOINED_BYTES and tls is None and self._is_best_in_pieces(size):
                self._out = []
                self._write_pieces(out, size)
                return
            data = b"".join(out) if len(out) > 1 else out[0]
            out.clear()
            self._write_raw(data if tls is None else tls.send(data))

    def _is_best_in_pieces(self, size: int) -> bool:
        count = len(self._out)
        return 1 < count <= _MAX_PIECES and size > count * _SMALL_PIECE_BYTES

    def flush_soon(self) -> None:
        """Write at the end of this turn of the loop, together with what else comes up in it.

        A write costs about as much as all the rest of a request.
        """
        if self._out_bytes > _MAX_DELAYED_BYTES:
            self.flush()
        elif not self._flush_is_due:
            self._flush_is_due = True
            self.endpoint.loop.call_soon(self._flush_now)

    def _flush_now(self) -> None:
        self._flush_is_due = False
        self.flush()

    def _write_pieces(self, pieces: list[Body], size: int) -> None:
        """Write without joining first."""
        transport = self._transport
        if transport is None:
            return
        self._sent_bytes += size
        self.endpoint.metrics.bytes_out += size
        if self._descriptor >= 0 and not transport.get_write_buffer_size() and not transport.is_closing():
            try:
                written = os.writev(self._descriptor, pieces)
            except OSError:  # as in `_write_at_once`
                written = 0
            if written == size:
                return
            pieces = _behind(pieces, written)
        transport.writelines(pieces)
        self._check_backlog(transport)

    def _write_raw(self, data: Body) -> None:
        transport = self._transport
        if transport is None or not data:
            return
        self._sent_bytes += len(data)
        self.endpoint.metrics.bytes_out += len(data)
        if self._descriptor >= 0 and not transport.get_write_buffer_size() and not transport.is_closing():
            data = self._write_at_once(data)
            if not data:
                return
        transport.write(data)
        self._check_backlog(transport)

    def _check_backlog(self, transport: asyncio.Transport) -> None:
        if self._write_paused and transport.get_write_buffer_size() > self.endpoint.limits.max_write_bytes:
            self.close("slow reader", abort=True)

    def _write_at_once(self, data: Body) -> Body:
        """Write what the socket takes now; the answer is the rest. uvloop would wait for its turn's end."""
        try:
            written = os.write(self._descriptor, data)
        except OSError:  # nothing is taken, or the connection is broken: the transport finds out which
            return data
        return b"" if written == len(data) else memoryview(data)[written:]

    async def writable(self) -> None:
        """Wait until the peer has taken enough of what was written to it, or the connection has ended."""
        while self._write_paused and self._closing_since is None:
            if self._writable is None or self._writable.done():
                self._writable = self.endpoint.loop.create_future()
            await asyncio.shield(self._writable)

    def _wake_writers(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)


def _behind(pieces: list[Body], size: int) -> list[Body]:
    """What is left of some pieces without their first bytes."""
    for place, piece in enumerate(pieces):
        if size < len(piece):
            return [memoryview(piece)[size:], *pieces[place + 1 :]]
        size -= len(piece)
    return []
