"""How full a partition is, in the whole percents that RocketMQ's thresholds are given in; what to do then."""

from __future__ import annotations

import errno
from typing import Final

from cometmq.ports.disk import Disk, DiskUsage
from cometmq.store.config import StoreConfig

UNKNOWN: Final = -1
_START_ROOM: Final = 1024 * 1024
"""What the small files of a store take, more or less, and the first steps of its queues and its index."""


def used_percent(usage: DiskUsage | None) -> int:
    """The used share of what can be used, rounded up; `UNKNOWN` for a path that is not there."""
    if usage is None:
        return UNKNOWN
    available = usage.used + usage.usable
    return -(-usage.used * 100 // available) if available else 100


def room_advice(disk: Disk, config: StoreConfig, error: OSError) -> str:
    """What a failed start adds to its error if the disk is full: how much room there is, and is needed."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return ""
    usage = disk.usage(config.root)
    free = "" if usage is None else f"{usage.usable} bytes are free, "
    return (
        f"; {free}a start needs about {_START_ROOM}, and {config.mapped_file_size_commit_log} more for each "
        "new file of the log: make room on the disk, and start again"
    )
