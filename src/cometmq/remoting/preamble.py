"""The bytes before the first frame: an optional PROXY protocol header, then TLS or plain bytes.

A plain frame begins with 0x00 or 0x01, a TLS hello with 0x16, a PROXY header with its signature. Pure: bytes
in, the protocol out.
"""

from __future__ import annotations

import ipaddress
from enum import Enum
from struct import Struct
from typing import Final

import msgspec

from cometmq.model.errors import FramingError

TLS_HELLO: Final = 0x16
_V1: Final = b"PROXY "
_V2: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_V1_MAX_BYTES: Final = 107
_V2_HEAD: Final = Struct(">BBH")
_V2_MAX_BYTES: Final = 4096
_INET4: Final = Struct(">4s4sHH")
_INET6: Final = Struct(">16s16sHH")


class Detected(Enum):
    """The type of the bytes after an optional PROXY header."""

    MORE = "more bytes are needed"
    PLAIN = "plain"
    TLS = "tls"


class ProxyHeader(msgspec.Struct, frozen=True):
    """The real source and destination of a proxied connection."""

    source: tuple[str, int]
    destination: tuple[str, int]
    tlvs: dict[int, bytes] = msgspec.field(default_factory=dict)


class Preamble:
    """Collects the first bytes of a connection until their type is clear."""

    __slots__ = ("detected", "proxy", "rest")

    def __init__(self) -> None:
        self.rest = b""
        """The bytes after the PROXY header; all bytes while it is not clear what the peer speaks."""
        self.detected = Detected.MORE
        self.proxy: ProxyHeader | None = None

    def feed(self, data: bytes) -> Detected:
        """Take the next bytes; when it is clear what the peer speaks, `rest` belongs to TLS or the frames."""
        self.rest += data
        if self.rest[:1] in (_V1[:1], _V2[:1]):
            used = self._proxy_bytes(self.rest)
            if used is None:
                return Detected.MORE
            self.rest = self.rest[used:]
        if self.rest:
            self.detected = Detected.TLS if self.rest[0] == TLS_HELLO else Detected.PLAIN
        return self.detected

    def _proxy_bytes(self, seen: bytes) -> int | None:
        if self.proxy is not None:
            raise FramingError("two PROXY headers on one connection")
        if _V2.startswith(seen[: len(_V2)]):
            return self._read_v2(seen)
        if _V1.startswith(seen[: len(_V1)]):
            return self._read_v1(seen)
        raise FramingError("the first bytes are neither a frame, nor TLS, nor a PROXY header")

    def _read_v1(self, seen: bytes) -> int | None:
        end = seen.find(b"\r\n")
        if end < 0:
            if len(seen) > _V1_MAX_BYTES:
                raise FramingError("a PROXY line without an end")
            return None
        words = seen[:end].decode("latin-1").split(" ")
        if len(words) >= 2 and words[1] == "UNKNOWN":
            return end + 2
        try:
            _, family, source, destination, source_port, destination_port = words
            if family not in ("TCP4", "TCP6"):
                raise ValueError(family)
            self.proxy = ProxyHeader(
                (str(ipaddress.ip_address(source)), _port(source_port)),
                (str(ipaddress.ip_address(destination)), _port(destination_port)),
            )
        except ValueError as error:
            raise FramingError(f"a PROXY line that cannot be read: {error}") from None
        return end + 2

    def _read_v2(self, seen: bytes) -> int | None:
        start = len(_V2) + _V2_HEAD.size
        if len(seen) < start:
            return None
        version_command, family, size = _V2_HEAD.unpack_from(seen, len(_V2))
        if version_command >> 4 != 2 or size > _V2_MAX_BYTES:
            raise FramingError("a PROXY header of an unknown version or size")
        end = start + int(size)
        if len(seen) < end:
            return None
        layout = {1: _INET4, 2: _INET6}.get(family >> 4)
        if version_command & 0xF == 1 and layout is not None:
            if size < layout.size:
                raise FramingError("a PROXY header too short for its addresses")
            source, destination, source_port, destination_port = layout.unpack_from(seen, start)
            self.proxy = ProxyHeader(
                (str(ipaddress.ip_address(source)), source_port),
                (str(ipaddress.ip_address(destination)), destination_port),
                _tlvs(seen[start + layout.size : end]),
            )
        return end


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise ValueError(f"port {text}")
    return int(text)


def _tlvs(data: bytes) -> dict[int, bytes]:
    tlvs: dict[int, bytes] = {}
    pos = 0
    while pos + 3 <= len(data):
        size = int.from_bytes(data[pos + 1 : pos + 3], "big")
        tlvs[data[pos]] = data[pos + 3 : pos + 3 + size]
        pos += 3 + size
    return tlvs
