"""Unique ids for messages that come without one."""

from __future__ import annotations

import os
from datetime import datetime
from ipaddress import ip_address

from cometmq.ports.clock import Clock
from cometmq.wire.record.ids import UniqueIdGenerator


class UniqueIds:
    """Ids of one broker; belongs to the event loop."""

    def __init__(self, ip: str, clock: Clock) -> None:
        self._now_ms = clock.now_ms
        start_ms, self._month_ends_ms = _month(self._now_ms())
        constant = int.from_bytes(os.urandom(4), "big")  # two brokers of one process, or of one pid in turn
        self._generator = UniqueIdGenerator(ip_address(ip).packed, os.getpid(), constant, start_ms)

    def next_id(self) -> str:
        now_ms = self._now_ms()
        if now_ms >= self._month_ends_ms:
            start_ms, self._month_ends_ms = _month(now_ms)
            self._generator.start_month(start_ms)
        return self._generator.next_id(now_ms)


def _month(now_ms: int) -> tuple[int, int]:
    """When the month of a moment begins and ends, in local time."""
    first = datetime.fromtimestamp(now_ms / 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    return int(first.timestamp() * 1000), int(following.timestamp() * 1000)
