"""Making timer log and timer wheel agree after a start.

Rules kept here: the log is right as far as its records are whole; the wheel is made to know all of them, and
nothing else.
"""

from __future__ import annotations

from cometmq.store.timer_log import MAGIC_DELETE, TimerLog
from cometmq.store.timer_wheel import TimerWheel


def recover_timers(log: TimerLog, wheel: TimerWheel, start: int) -> int:
    """Find the end of the log, looking from a position on, and bring the wheel up to it; blocks."""
    scan = log.scan(start)
    for _ in scan:
        pass
    log.truncate(scan.end)
    cut_from = wheel.cut(log.end)
    for position, due_ms, magic in log.scan(start if cut_from is None else min(start, cut_from)):
        wheel.revise(due_ms, position, -1 if magic & MAGIC_DELETE else 1)
    return log.end
