"""Reading the unique ids that clients and brokers give to messages."""

from __future__ import annotations

import struct
from ipaddress import ip_address
from typing import NamedTuple

_TAIL = struct.Struct(">HIIH")


class UniqueId(NamedTuple):
    """The parts of a unique id. `month_ms` counts from the first of the month in the producer's time."""

    ip: str
    pid: int
    process_constant: int
    month_ms: int
    counter: int


def parse_unique_id(text: str) -> UniqueId:
    assert len(text) in (32, 56), text
    data = bytes.fromhex(text)
    return UniqueId(str(ip_address(data[: -_TAIL.size])), *_TAIL.unpack(data[-_TAIL.size :]))
