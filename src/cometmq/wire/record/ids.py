"""Message ids (unique id and offset id), and the packed hosts in them.

Rules kept here:
- A packed host is the address, 4 or 16 bytes, and the port in 4 bytes. Records and ids use it.
- The *unique id* is the producer's: where and when a message was made. The *offset id* is the broker's:
  where it is stored. Both are upper-case hexadecimal, 32 characters with an IPv4 address and 56 with an
  IPv6 one; lower case is read too.
- Nothing here asks what time it is: the generator is told, also when a month begins.
"""

from __future__ import annotations

import struct
from binascii import unhexlify
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, NamedTuple

from cometmq.model.errors import MessageError, ProtocolError
from cometmq.model.message import Host

_PORT: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")
_UNIQUE_FIXED: Final = struct.Struct(">HI")
_PORT_MAX: Final = 65535
_IPV4_LENGTH: Final = 4
_IPV6_LENGTH: Final = 16
_ID_TEXT_LENGTHS: Final = (32, 56)
_HOSTS_REMEMBERED: Final = 4096

PACKED_IPV4_LENGTH: Final = _IPV4_LENGTH + _PORT.size
PACKED_IPV6_LENGTH: Final = _IPV6_LENGTH + _PORT.size


class IdError(ProtocolError):
    """A text that is not a message id, or bytes that are not a host."""


class OffsetId(NamedTuple):
    """The parts of an offset id: which broker has the message, and where in its commit log."""

    store_host: Host
    commit_log_offset: int


# A producer's and a broker's address come with every one of their messages.
@lru_cache(maxsize=_HOSTS_REMEMBERED)
def pack_host(host: Host) -> bytes:
    try:
        address = ip_address(host.ip).packed
    except ValueError:
        raise MessageError(f"{host.ip!r} is not an IP address; messages carry addresses, not names") from None
    if not 0 <= host.port <= _PORT_MAX:
        raise MessageError(f"{host.port} is not a port")
    return address + _PORT.pack(host.port)


@lru_cache(maxsize=_HOSTS_REMEMBERED)
def unpack_host(packed: bytes) -> Host:
    if len(packed) not in (PACKED_IPV4_LENGTH, PACKED_IPV6_LENGTH):
        raise IdError(f"a host takes {PACKED_IPV4_LENGTH} or {PACKED_IPV6_LENGTH} bytes, not {len(packed)}")
    (port,) = _PORT.unpack_from(packed, len(packed) - _PORT.size)
    if not 0 <= port <= _PORT_MAX:
        raise IdError(f"the port of a host is {port}; expected 0 to {_PORT_MAX}")
    return Host(str(ip_address(packed[: -_PORT.size])), port)


def encode_offset_id(packed_store_host: bytes, commit_log_offset: int) -> str:
    """The offset id of the record at this offset of the commit log."""
    return (packed_store_host + _OFFSET.pack(commit_log_offset)).hex().upper()


def decode_offset_id(text: str) -> OffsetId:
    data = _id_bytes(text, "an offset id")
    (offset,) = _OFFSET.unpack_from(data, len(data) - _OFFSET.size)
    if offset < 0:
        raise IdError(f"{text!r} is not an offset id: the offset {offset} is negative")
    return OffsetId(unpack_host(data[: -_OFFSET.size]), offset)


def _id_bytes(text: str, what: str) -> bytes:
    if len(text) not in _ID_TEXT_LENGTHS:
        raise IdError(f"{text[:80]!r} is not {what}: expected 32 or 56 hexadecimal digits, found {len(text)}")
    try:
        return unhexlify(text)
    except ValueError:
        raise IdError(f"{text!r} is not {what}: expected hexadecimal digits only") from None


class UniqueIdGenerator:
    """Makes the unique ids of one process.

    65,536 ids in the same millisecond are different; two processes of one machine differ in `pid` or
    `process_constant`. Call `start_month` when a month begins, before the first id of that month.
    """

    __slots__ = ("_counter", "_month_start_ms", "_prefix")

    def __init__(
        self, ip: bytes, pid: int, process_constant: int, month_start_ms: int, counter: int = 0
    ) -> None:
        if len(ip) not in (_IPV4_LENGTH, _IPV6_LENGTH):
            raise MessageError(f"an IP address has {_IPV4_LENGTH} or {_IPV6_LENGTH} bytes, not {len(ip)}")
        fixed = _UNIQUE_FIXED.pack(pid & 0xFFFF, process_constant & 0xFFFFFFFF)
        self._prefix = (ip + fixed).hex().upper()
        self._month_start_ms = month_start_ms
        self._counter = counter & 0xFFFF

    @property
    def month_start_ms(self) -> int:
        return self._month_start_ms

    def start_month(self, month_start_ms: int) -> None:
        """From now on count milliseconds from here. The counter goes on, so that no id comes twice."""
        self._month_start_ms = month_start_ms

    def next_id(self, now_ms: int) -> str:
        """The id of a message made now. A clock set back to before the month counts as its start."""
        month_ms = max(now_ms - self._month_start_ms, 0) & 0xFFFFFFFF
        counter = self._counter
        self._counter = (counter + 1) & 0xFFFF
        return f"{self._prefix}{month_ms:08X}{counter:04X}"
