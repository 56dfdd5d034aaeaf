"""One connection of a load: sends pre-encoded frames, reads the answers, and measures latencies.

Rules kept here:

- All requests of a cycle lie in one block of bytes, in sending order, so neighbouring requests are one slice
  of it and one `send`.
- The digits of its opaque identify a request from `send` until its answer. Until then it is not sent again,
  whatever the order of answers: latencies are exact, per request.
- An answer is a success only if its code is 0. The first answers of a connection are decoded in full; later
  ones are compared with the header's start, or with its start and end where fields of changing length lie
  between code and opaque. Anything that does not look like a success is decoded in full.
"""

from __future__ import annotations

import socket
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from bench.errors import FrameError, LoadError
from bench.load.frames import (
    BINARY_TYPE,
    FIRST_OPAQUE,
    MAX_OPAQUES,
    OPAQUE_DIGITS,
    RESPONSE_FLAG,
    read_answer,
    renumbered,
)
from cometmq.cli.bench.figures import Latencies

RECEIVE_BUFFER_BYTES = 256 * 1024
MAX_ANSWER_BYTES = 64 * 1024 * 1024
ANSWERS_READ_IN_FULL = 16
PATIENCE_MS = 100

_SUCCESS = b'{"code":0,'
_OPAQUE = b'"opaque":'
_BINARY_START = struct.Struct(">hxxxii")
_MAX_HEAD_BYTES = 512


@dataclass(slots=True)
class Tally:
    """The counts of all connections of a load."""

    latency: Latencies = field(default_factory=Latencies)
    answers: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    error_codes: Counter[int] = field(default_factory=Counter)
    first_error: str = ""


class Cycle:
    """The requests of a load in sending order, each with its own opaque."""

    def __init__(self, frames: Sequence[bytes], in_flight: int) -> None:
        if not frames:
            raise FrameError("there is no frame to send")
        # Four times the number in flight leaves some to send even when some answers are held back.
        repeats = -(-4 * in_flight // len(frames))
        self.length = repeats * len(frames)
        if self.length > MAX_OPAQUES:
            raise FrameError(f"{self.length} frames are more than the {MAX_OPAQUES} distinct opaques")
        opaques = range(FIRST_OPAQUE, FIRST_OPAQUE + self.length)
        numbered = [renumbered(frames[index % len(frames)], opaque) for index, opaque in enumerate(opaques)]
        self.digits = [b"%d" % opaque for opaque in opaques]
        self._block = memoryview(b"".join(numbered))
        self._offsets = [0, *accumulate(map(len, numbered))]

    def chunk(self, first: int, count: int) -> memoryview:
        """The bytes of `count` neighbouring requests."""
        return self._block[self._offsets[first] : self._offsets[first + count]]


class _Inbox:
    """Received bytes that are not yet taken, at the front of one reused buffer."""

    def __init__(self, capacity: int) -> None:
        self.filled = 0
        self.buffer = bytearray()
        self._make_room(capacity)

    def _make_room(self, capacity: int) -> None:
        kept = self.buffer[: self.filled]
        # Longer than its room, because an answer's head may be looked at before all of it is there.
        self.buffer = kept + bytes(capacity + _MAX_HEAD_BYTES + 64 - len(kept))
        self._room = memoryview(self.buffer)[:capacity]

    def fill_from(self, source: socket.socket, flags: int) -> int:
        count = source.recv_into(self._room[self.filled :], 0, flags)
        self.filled += count
        return count

    def drop(self, position: int) -> None:
        """Drop the bytes before `position`, and make room for the frame that begins there."""
        rest = self.filled - position
        if position and rest:
            self.buffer[:rest] = self.buffer[position : self.filled]
        self.filled = rest
        if rest >= 4:
            frame_bytes = 4 + int.from_bytes(self.buffer[:4], "big")
            if frame_bytes > MAX_ANSWER_BYTES:
                raise FrameError(f"a frame of {frame_bytes} bytes")
            if frame_bytes > len(self._room):
                self._make_room(frame_bytes)


class _HeaderStart:
    """The start of a connection's answers: the header up to the opaque, which seldom changes.

    An answer that begins with it is a response with code 0.
    """

    def __init__(self, head: bytes) -> None:
        self.head = head
        self.unpack_from = struct.Struct(f">I4x{len(head)}s{OPAQUE_DIGITS}s").unpack_from


class _HeaderEnd:
    """The end of a connection's headers: the opaque and the constant bytes after it.

    Answers to sends and pulls have fields of changing length before their opaque, so its distance is fixed
    from the end of the header, not from its start.
    """

    start = struct.Struct(f">I{len(_SUCCESS)}s")
    """The header's length, and how a success begins."""

    def __init__(self, rest: bytes) -> None:
        self.rest = rest
        self._unpack_from = struct.Struct(f"{len(_OPAQUE)}s{OPAQUE_DIGITS}s{len(rest)}s").unpack_from
        self._from_end = len(_OPAQUE) + OPAQUE_DIGITS + len(rest)

    def digits(self, buffer: bytearray, position: int) -> bytes:
        """The opaque of the answer at this position; empty when it is no success or ends otherwise."""
        header_bytes, code = self.start.unpack_from(buffer, position + 4)
        at = position + 8 + header_bytes - self._from_end
        if code != _SUCCESS or at < position:
            return b""
        key, digits, rest = self._unpack_from(buffer, at)
        return bytes(digits) if key == _OPAQUE and rest == self.rest else b""


class LoadConnection:
    """A socket with a fixed number of requests in flight."""

    def __init__(
        self, address: tuple[str, int], cycle: Cycle, first: int, tally: Tally, receive_bytes: int
    ) -> None:
        self._address = address
        self._cycle = cycle
        self._next = first
        self._tally = tally
        self._sent_at_ns: dict[bytes, int] = {}
        self._unsent = memoryview(b"")
        self._inbox = _Inbox(receive_bytes)
        self._unread_in_full = ANSWERS_READ_IN_FULL
        self._header_start = _HeaderStart(b"(nothing learnt yet)")
        self._header_end = _HeaderEnd(b"(nothing learnt yet)")
        try:
            self.socket = socket.create_connection(address, timeout=5.0)
        except OSError as problem:
            raise self._lost(f"no connection: {problem}") from problem
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Every call says by itself whether it waits; how long is the kernel's business, not a second call's.
        self.socket.setblocking(True)
        patience = struct.pack("@ll", *divmod(PATIENCE_MS * 1000, 1_000_000))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)

    @property
    def in_flight(self) -> int:
        return len(self._sent_at_ns)

    @property
    def has_unsent(self) -> bool:
        return len(self._unsent) > 0

    def send_requests(self, count: int, now_ns: int) -> None:
        """Put `count` more requests in flight with one system call."""
        cycle, sent_at_ns = self._cycle, self._sent_at_ns
        chunks = [self._unsent] if self._unsent else []
        while count:
            first = self._next
            digits = cycle.digits[first : first + count]
            if not sent_at_ns.keys().isdisjoint(digits):
                # Some answer is overdue by a whole cycle: step over the requests that still wait.
                digits = [] if digits[0] in sent_at_ns else digits[:1]
            sent_at_ns |= dict.fromkeys(digits, now_ns)
            chunks.append(cycle.chunk(first, len(digits)))
            self._next = (first + (len(digits) or 1)) % cycle.length
            count -= len(digits)
        self._unsent = chunks[0] if len(chunks) == 1 else memoryview(b"".join(chunks))
        self.send_rest()

    def send_rest(self) -> None:
        """Hand unsent bytes to the socket, which may take only a part."""
        try:
            sent = self.socket.send(self._unsent, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError as problem:
            raise self._lost(f"the server closed the connection ({problem.strerror})") from problem
        self._tally.bytes_out += sent
        self._unsent = self._unsent[sent:]

    def receive(self, *, patient: bool = False) -> None:
        """Read received bytes into the buffer; when patient, wait up to PATIENCE_MS for them."""
        try:
            count = self._inbox.fill_from(self.socket, 0 if patient else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError as problem:
            raise self._lost(f"the server closed the connection ({problem.strerror})") from problem
        if count == 0:
            raise self._lost("the server closed the connection (end of stream)")
        self._tally.bytes_in += count

    def take_answers(self, now_ns: int) -> int:
        """Take every whole answer out of the buffer; returns the number of answered requests."""
        buffer, filled = self._inbox.buffer, self._inbox.filled
        unpack_from, success = self._header_start.unpack_from, self._header_start.head
        sent_at_ns = self._sent_at_ns
        counts: dict[int, int] = {}  # by time of sending: requests that were sent together share it
        position = answered = 0
        while filled - position >= 8:
            length, head, digits = unpack_from(buffer, position)
            end = position + 4 + length
            if end > filled:
                break
            if head != success:
                digits = self._look_closer(position, end)
            position = end
            sent_ns = sent_at_ns.pop(digits, 0)
            if not sent_ns:
                if digits:
                    raise self._lost(f"an answer to opaque {digits.decode()}, which was not asked")
                continue
            counts[sent_ns] = counts.get(sent_ns, 0) + 1
            answered += 1
        for sent_ns, count in counts.items():
            self._tally.latency.took_us((now_ns - sent_ns) // 1000, count)
        self._drop(position)
        self._tally.answers += answered
        return answered

    def _drop(self, position: int) -> None:
        try:
            self._inbox.drop(position)
        except FrameError as problem:
            raise self._lost(str(problem)) from problem

    def _look_closer(self, position: int, end: int) -> bytes:
        """The opaque of an answer that does not begin like those before it; empty for no answer."""
        buffer, start = self._inbox.buffer, position + 8
        if self._unread_in_full:
            self._unread_in_full -= 1
            return self._read_in_full(position, end)
        if digits := self._header_end.digits(buffer, position):
            return digits
        if buffer[position + 4] == BINARY_TYPE:
            code, opaque, flag = _BINARY_START.unpack_from(buffer, start)
            if code == 0 and flag & RESPONSE_FLAG:
                return b"%d" % opaque
        elif buffer.startswith(_SUCCESS, start):
            at = buffer.find(_OPAQUE, start, end)
            digits = bytes(buffer[at + len(_OPAQUE) : at + len(_OPAQUE) + OPAQUE_DIGITS])
            if at > 0 and digits.isdigit():
                return digits
        return self._read_in_full(position, end)

    def _read_in_full(self, position: int, end: int) -> bytes:
        try:
            answer = read_answer(self._inbox.buffer[position:end])
        except FrameError as problem:
            raise self._lost(str(problem)) from problem
        if not answer.is_response:
            return b""
        if answer.code:
            self._tally.error_codes[answer.code] += 1
            self._tally.first_error = self._tally.first_error or f"code {answer.code}: {answer.remark}"
        elif not self._unread_in_full:
            self._learn_header(position)
        return b"%d" % answer.opaque

    def _learn_header(self, position: int) -> None:
        buffer, start = self._inbox.buffer, position + 8
        at = buffer.find(_OPAQUE, start, start + _MAX_HEAD_BYTES)
        if buffer.startswith(_SUCCESS, start) and at > 0:
            header_end = start + int.from_bytes(buffer[position + 5 : start], "big")
            self._header_start = _HeaderStart(bytes(buffer[start : at + len(_OPAQUE)]))
            self._header_end = _HeaderEnd(bytes(buffer[at + len(_OPAQUE) + OPAQUE_DIGITS : header_end]))

    def _lost(self, reason: str) -> LoadError:
        host, port = self._address
        return LoadError(f"{host}:{port} with {self.in_flight} requests in flight: {reason}")
