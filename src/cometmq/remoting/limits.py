"""Limits of an endpoint and of its connections."""

from __future__ import annotations

import msgspec

from cometmq.wire.frame.command import MAX_ANSWER_HEADER_BYTES, MAX_HEADER_BYTES
from cometmq.wire.frame.framing import MAX_FRAME_BYTES

KIB = 1024
MIB = 1024 * KIB


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    max_frame_bytes: int = MAX_FRAME_BYTES
    """A larger frame closes its connection before it is read."""
    max_header_bytes: int = MAX_HEADER_BYTES
    """A request with a larger header is answered with an error; the connection stays."""
    max_answer_header_bytes: int = MAX_ANSWER_HEADER_BYTES
    """An answer to one of our calls with a larger header fails that call."""
    max_connections: int = 50_000
    """A connection beyond this, or beyond the share of descriptors, is closed as soon as it is accepted."""
    max_running_per_connection: int = 1_024
    """With this many running handlers of one connection, a server stops reading it; a client reads on, for
    the answers to its own calls, and answers further requests SYSTEM_BUSY."""
    max_running: int = 50_000
    """With this many handlers running in all, further requests are answered SYSTEM_BUSY."""
    max_calls_in_flight: int = 65_535
    """With this many calls awaiting an answer, a further call fails at once."""
    write_high_bytes: int = 1 * MIB
    """With this much unwritten, a server stops reading and handling a connection; calls of a client wait…"""
    write_low_bytes: int = 256 * KIB
    """…until this little is left."""
    max_write_bytes: int = 64 * MIB
    """A peer that lets more than this pile up is closed."""
    max_buffered_bytes: int = 512 * MIB
    """With more than this buffered over all connections, the largest holders are closed."""
    idle_timeout_s: float = 120.0
    """A connection without a byte in either direction for this long is closed; 0 never closes it."""
    frame_timeout_s: float = 30.0
    """A frame, preamble or TLS handshake that takes longer than this to arrive closes its connection."""
    write_timeout_s: float = 30.0
    """A peer that takes none of its waiting bytes for this long is closed."""
    stop_timeout_s: float = 10.0
    """An orderly stop waits this long for running handlers and unwritten answers."""
