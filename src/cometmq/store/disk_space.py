"""How full a partition is, in the whole percents that RocketMQ's thresholds are given in."""

from __future__ import annotations

from typing import Final

from cometmq.ports.disk import DiskUsage

UNKNOWN: Final = -1


def used_percent(usage: DiskUsage | None) -> int:
    """The used share of what can be used, rounded up; `UNKNOWN` for a path that is not there."""
    if usage is None:
        return UNKNOWN
    available = usage.used + usage.usable
    return -(-usage.used * 100 // available) if available else 100
