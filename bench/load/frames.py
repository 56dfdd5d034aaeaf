"""Remoting frames for load: written once ahead of time, read back as cheaply as Python can.

Rules kept here:

- The load generator shares no protocol code with the server that it measures; the few rules of frames that it
  needs are written again here.
- A frame to be sent under load carries an opaque of a fixed number of digits. Every answer then has its
  opaque in the same number of bytes, and the number is found without parsing the header.
- What a frame says is decided by its own serialize-type byte: Apache's servers answer a binary request
  with a JSON header.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

import msgspec

from bench.errors import FrameError

FIRST_OPAQUE = 1_000_000
OPAQUE_DIGITS = 7
MAX_OPAQUES = 10**OPAQUE_DIGITS - FIRST_OPAQUE

RESPONSE_FLAG = 1
VERSION_5_3_3 = 479

PREFIX = struct.Struct(">II")
"""Length, then the serialize type in the top byte over a header length of 24 bits."""

BINARY_HEADER = struct.Struct(">hBhii")
"""Code, language, version, opaque, flag; remark and fields follow."""

BINARY_TYPE = 1
_OPAQUE_IN_JSON = re.compile(rb'"opaque"\s*:\s*-?\d+')
_JAVA = 0


class _JsonHeader(msgspec.Struct):
    """The fields of an answer's header that are used here."""

    code: int
    opaque: int
    flag: int
    remark: str | None = None
    extFields: dict[str, str] | None = None  # noqa: N815 - as it is written


_read_json_header = msgspec.json.Decoder(_JsonHeader).decode
_write_json = msgspec.json.Encoder().encode


class Answer(msgspec.Struct, frozen=True):
    """One frame as the peer meant it, fully read."""

    code: int
    opaque: int
    flag: int
    remark: str
    body: bytes
    fields: Mapping[str, str] = {}
    """The fields of a JSON header."""

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE_FLAG)


def json_request(code: int, fields: Mapping[str, str] | None, body: bytes = b"", opaque: int = 0) -> bytes:
    """A request as a Java client writes it: keys in alphabetical order, every field a string."""
    header: dict[str, object] = {"code": code}
    if fields is not None:
        header["extFields"] = dict(fields)
    header |= {
        "flag": 0,
        "language": "JAVA",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": VERSION_5_3_3,
    }
    text = _write_json(header)
    return PREFIX.pack(4 + len(text) + len(body), len(text)) + text + body


def binary_request(code: int, fields: Mapping[str, str], body: bytes = b"", opaque: int = 0) -> bytes:
    """A request with the binary header of `rocketmq.serialize.type=ROCKETMQ`."""
    block = b"".join(
        struct.pack(">h", len(key)) + key + struct.pack(">i", len(value)) + value
        for key, value in ((key.encode(), value.encode()) for key, value in fields.items())
    )
    header = (
        BINARY_HEADER.pack(code, _JAVA, VERSION_5_3_3, opaque, 0) + struct.pack(">ii", 0, len(block)) + block
    )
    return PREFIX.pack(4 + len(header) + len(body), BINARY_TYPE << 24 | len(header)) + header + body


def renumbered(frame: bytes, opaque: int) -> bytes:
    """The frame with another opaque, and with the lengths that follow from it."""
    length, mark = PREFIX.unpack_from(frame)
    header, body = frame[8 : 8 + (mark & 0xFFFFFF)], frame[8 + (mark & 0xFFFFFF) :]
    if len(frame) != length + 4:
        raise FrameError(f"the length prefix says {length + 4} bytes, the frame has {len(frame)}")
    if mark >> 24 == BINARY_TYPE:
        return frame[:13] + struct.pack(">i", opaque) + frame[17:]
    header, found = _OPAQUE_IN_JSON.subn(b'"opaque":%d' % opaque, header)
    if found != 1:
        raise FrameError(f"a JSON header needs exactly one opaque, this one has {found}: {header[:200]!r}")
    return PREFIX.pack(4 + len(header) + len(body), len(header)) + header + body


def split(stream: bytes) -> Iterator[bytes]:
    """The frames of a file or buffer that holds nothing but whole frames, one after the other."""
    position = 0
    while position < len(stream):
        end = position + 4 + int.from_bytes(stream[position : position + 4], "big")
        if len(stream) - position < 8 or not position + 8 <= end <= len(stream):
            raise FrameError(f"no whole frame at byte {position} of {len(stream)}")
        yield stream[position:end]
        position = end


def read_answer(frame: bytes | bytearray | memoryview) -> Answer:
    """Read a whole frame carefully: the slow way that the fast ways are checked against."""
    frame = bytes(frame)
    if len(frame) < 8:
        raise FrameError(f"a frame of only {len(frame)} bytes")
    _, mark = PREFIX.unpack_from(frame)
    header_end = 8 + (mark & 0xFFFFFF)
    if header_end > len(frame):
        raise FrameError(f"the header of {header_end - 8} bytes is longer than its frame of {len(frame)}")
    header, body = frame[8:header_end], frame[header_end:]
    if mark >> 24 == BINARY_TYPE:
        code, _, _, opaque, flag = BINARY_HEADER.unpack_from(header)
        remark_length = int.from_bytes(header[13:17], "big")
        return Answer(code, opaque, flag, header[17 : 17 + remark_length].decode(), body)
    try:
        told = _read_json_header(header)
    except msgspec.MsgspecError as problem:
        raise FrameError(f"unreadable answer header {header[:200]!r}: {problem}") from problem
    return Answer(told.code, told.opaque, told.flag, told.remark or "", body, told.extFields or {})


class Caller:
    """A blocking connection that asks one thing at a time: for set-up and for checks, never for load."""

    def __init__(self, address: tuple[str, int], timeout_seconds: float = 10.0) -> None:
        self._socket = socket.create_connection(address, timeout_seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")

    def ask(self, frame: bytes) -> Answer:
        return self.ask_all([frame])[0]

    def ask_all(self, frames: Sequence[bytes]) -> list[Answer]:
        """Send the frames together and wait for as many answers."""
        self._socket.sendall(b"".join(frames))
        return [self._next_answer() for _ in frames]

    def _next_answer(self) -> Answer:
        length = self._stream.read(4)
        if len(length) < 4:
            raise ConnectionError("the server closed the connection instead of answering")
        return read_answer(length + self._stream.read(int.from_bytes(length, "big")))

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
