"""Frame splitting: commands travel in length-prefixed frames.

    length (4, does not count itself) | serialize type (1) | header length (3) | header | body

Rules kept here:
- The splitter takes bytes in any chunking. It returns the small header as a copy and the body as a view: the
  body of a frame within one read is never copied, the body of a frame that spans reads once.
- A length is checked as soon as its four bytes are there, before anything is buffered for it.
- Broken framing raises `FramingError`; the splitter must not be used after that.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from cometmq.model.errors import FramingError, HeaderError

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
"""The largest frame a RocketMQ peer accepts by default, its length prefix included."""

JSON: Final = 0
ROCKETMQ: Final = 1
"""The two serialize types of a header: JSON text, and RocketMQ's binary layout."""

_PREFIX: Final = Struct(">II")
FRAME_PREFIX_BYTES: Final = 8
"""Before the header: two lengths and the serialize type."""
_LENGTH: Final = Struct(">I")
_NOTHING: Final = memoryview(b"")
_MAX_HEADER_BYTES: Final = 0xFFFFFF
_SHORT_HEADER: Final = 512
_SHORT_PREFIXES: Final = tuple(
    _PREFIX.pack(4 + length, JSON << 24 | length) for length in range(_SHORT_HEADER)
)
"""Frame prefixes by header length, for frames without a body."""


class Frame(NamedTuple):
    """One frame. A view stays valid while it is held, and keeps the whole read in memory."""

    serialize_type: int
    header: bytes | memoryview
    body: memoryview


class FrameSplitter:
    """Splits a byte stream into frames: `feed` each read, then call `next_frame` until it returns None."""

    __slots__ = ("_data", "_end", "_pending", "_pos", "_view", "empty", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._data: bytes | bytearray = b""
        self._view = memoryview(b"")
        self._pos = 0
        self._end = 0
        self._pending: bytearray | None = None  # an incomplete frame; never exported while it grows
        self.empty = True
        """Nothing is buffered, so there is no need to ask for another frame."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes held and not yet handed out as frames."""
        pending = 0 if self._pending is None else len(self._pending)
        return self._end - self._pos + pending

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self.empty = False
        if self._pending is not None:
            self._pending += data
        elif self._pos == self._end:
            self._expose(data)
        else:  # complete frames wait here because the reader was told to stop; keep the order
            self._pending = bytearray(self._view[self._pos :])
            self._pending += data
            self._expose(b"")

    def next_frame(self) -> Frame | None:
        """Returns the next complete frame, or None until more bytes are fed."""
        parts = self.next_parts()
        return None if parts is None else Frame._make(parts)

    def next_parts(self) -> tuple[int, bytes, memoryview] | None:
        """Like `next_frame`, as a plain tuple, which costs less."""
        pos = self._pos
        if self._end - pos < FRAME_PREFIX_BYTES:
            if self._pending is None or not self._promote_pending():
                self._keep_rest()
                return None
            pos = self._pos
        length, mark = _PREFIX.unpack_from(self._data, pos)
        header_start = pos + FRAME_PREFIX_BYTES
        header_end = header_start + (mark & _MAX_HEADER_BYTES)
        frame_end = pos + 4 + length
        if length + 4 > self.max_frame_bytes or header_end > frame_end:
            self._refuse(length, mark)
        if frame_end > self._end:
            self._keep_rest()
            return None
        header = self._data[header_start:header_end]
        body = self._view[header_end:frame_end] if header_end < frame_end else _NOTHING
        if not isinstance(header, bytes):
            header = bytes(header)
        if frame_end == self._end and self._pending is None:
            self._let_go()
        else:
            self._pos = frame_end
        return mark >> 24, header, body

    def next_alike(self, start: bytes, most: int, max_header_bytes: int) -> list[tuple[bytes, memoryview]]:
        """Returns headers and bodies of the next complete frames while they are JSON and begin with `start`.

        All other frames, and broken ones, are left to `next_frame`.
        """
        found: list[tuple[bytes, memoryview]] = []
        data, view, pos, end = self._data, self._view, self._pos, self._end
        unpack_from, longest = _PREFIX.unpack_from, self.max_frame_bytes - 4
        max_header_bytes = min(max_header_bytes, _MAX_HEADER_BYTES)
        while len(found) < most and end - pos >= FRAME_PREFIX_BYTES:
            length, header_bytes = unpack_from(data, pos)  # larger than any header if it is not JSON
            header_at = pos + FRAME_PREFIX_BYTES
            body_at = header_at + header_bytes
            frame_end = pos + 4 + length
            if (
                frame_end > end
                or body_at > frame_end
                or length > longest
                or header_bytes > max_header_bytes
                or not data.startswith(start, header_at)
            ):
                break
            found.append((bytes(data[header_at:body_at]), view[body_at:frame_end]))
            pos = frame_end
        self._pos = pos
        if pos == end and self._pending is None:
            self._let_go()
        return found

    def _let_go(self) -> None:
        self._data = b""
        self._view = _NOTHING
        self._pos = self._end = 0
        self.empty = True

    def _expose(self, data: bytes | bytearray) -> None:
        self._data = data
        self._view = memoryview(data)
        self._pos = 0
        self._end = len(data)

    def _promote_pending(self) -> bool:
        """Make the pending bytes the current ones if they begin with a whole frame."""
        pending = self._pending
        if pending is None or len(pending) < 4:
            return False
        (length,) = _LENGTH.unpack_from(pending)
        if length < 4 or length + 4 > self.max_frame_bytes:
            self._refuse(length, 0)
        if len(pending) < length + 4:
            if len(pending) >= FRAME_PREFIX_BYTES:
                (mark,) = _LENGTH.unpack_from(pending, 4)
                if (mark & _MAX_HEADER_BYTES) > length - 4:
                    self._refuse(length, mark)
            return False
        self._pending = None
        self._expose(pending)
        return True

    def _keep_rest(self) -> None:
        """Move an incomplete tail out of the exposed bytes; views already returned stay valid."""
        if self._pos < self._end:
            rest = bytearray(self._view[self._pos :])
            if self._pending is not None:
                rest += self._pending
            self._pending = rest
        if self._end:
            self._expose(b"")
        if self._pending is not None and len(self._pending) >= 4:
            (length,) = _LENGTH.unpack_from(self._pending)
            if length < 4 or length + 4 > self.max_frame_bytes:
                self._refuse(length, 0)

    def _refuse(self, length: int, mark: int) -> None:
        if length + 4 > self.max_frame_bytes:
            raise FramingError(
                f"a frame of {length + 4} bytes is over the limit of {self.max_frame_bytes}; "
                "send smaller messages or raise the limit on both sides"
            )
        if length < 4:
            raise FramingError(f"a frame length of {length} is shorter than its own header mark")
        raise FramingError(f"a header of {mark & _MAX_HEADER_BYTES} bytes does not fit a frame of {length}")


def pack_head(serialize_type: int, header: bytes, body_bytes: int) -> bytes:
    """Returns a frame without its body, which is written after it."""
    header_bytes = len(header)
    if header_bytes > _MAX_HEADER_BYTES:
        raise HeaderError(
            f"a header of {header_bytes} bytes is over the {_MAX_HEADER_BYTES} that a frame can say"
        )
    return _PREFIX.pack(4 + header_bytes + body_bytes, serialize_type << 24 | header_bytes) + header


def json_frame(header: bytes) -> bytes:
    """Returns a frame without a body for an encoded JSON header."""
    if len(header) < _SHORT_HEADER:
        return _SHORT_PREFIXES[len(header)] + header
    return pack_head(JSON, header, 0)
