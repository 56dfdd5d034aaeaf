"""Making timer log and timer wheel agree after a start.

Rules kept here: the log is right as far as its records are whole and their messages are there; the wheel is
made to know all of them, and nothing else.
"""

from __future__ import annotations

from typing import Final

from cometmq.store.timer.log import MAGIC_DELETE, TimerLog
from cometmq.store.timer.wheel import TimerWheel

MARGIN: Final = 1024 * 1024
"""So much before the position that the checkpoint says is brought into the wheel once more."""


def recover_timers(log: TimerLog, wheel: TimerWheel, start: int, message_end: int | None = None) -> int:
    """Find the end of the log, looking from a position on, and bring the wheel up to it; blocks.

    `message_end` is the end of the commit log.
    """
    scan = log.scan(start, message_end)
    for _ in scan:
        pass
    log.truncate(scan.end)
    cut_from = wheel.cut(log.end)
    unsure_from = max(start - MARGIN, 0) if cut_from is None else min(start, cut_from)
    for position, due_ms, magic in log.scan(unsure_from):
        if position >= unsure_from:
            wheel.revise(due_ms, position, -1 if magic & MAGIC_DELETE else 1)
    return log.end
