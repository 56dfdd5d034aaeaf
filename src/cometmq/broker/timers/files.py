"""The files of the timers, opened, recovered and kept safe together.

What has to be on the disk before what:
1. Messages that were delivered, and the messages in the timer topic, before anything here refers to them.
2. The timer log, before the wheel that points into it.
3. Both, before the checkpoint that says how far they are.

A wheel that was made with slots of another length says nothing that can be believed; it is made again from
the log. Everything here blocks, except what the event loop does with log and wheel by itself.
"""

from __future__ import annotations

import logging
from typing import Final

from cometmq.model.errors import StoreError
from cometmq.ports.clock import Clock
from cometmq.ports.disk import Disk
from cometmq.store.config import StoreConfig
from cometmq.store.tables.files import CONFIG_FOLDER
from cometmq.store.timer.checkpoint import TimerCheckpoint, TimerProgress
from cometmq.store.timer.log import TimerLog, recover_timers
from cometmq.store.timer.wheel import SLOTS_PER_ROUND, Changes, TimerWheel

log = logging.getLogger("cometmq.broker")

LOG_FOLDER: Final = "timerlog"
WHEEL_FILE: Final = "timerwheel"
CHECKPOINT_FILE: Final = "timercheck"
DECADE_MS: Final = 10 * 365 * 24 * 3_600_000


class TimerFiles:
    """Timer log, timer wheel and the checkpoint of both."""

    def __init__(self, disk: Disk, clock: Clock, config: StoreConfig) -> None:
        root = config.root
        self._clock = clock
        self.log = TimerLog(disk, root / LOG_FOLDER, config.mapped_file_size_timer_log)
        self.wheel = TimerWheel(disk, root / WHEEL_FILE, config.timer_slot_ms)
        self._checkpoint = TimerCheckpoint(disk, root / CONFIG_FOLDER / CHECKPOINT_FILE)

    def open(self, message_end: int) -> TimerProgress:
        """Load and recover; returns the progress of the timers, as far as that is certain.

        `message_end` is the end of the commit log: what lies after it will be another message.
        """
        saved = self._checkpoint.load()
        self._refuse_implausible(saved)
        self.log.load()
        is_new = self.wheel.load() or self._is_from_other_settings()
        start = self.log.min_position if is_new else saved.last_timer_log_flush_pos
        end = recover_timers(self.log, self.wheel, start, message_end)
        if end < saved.last_timer_log_flush_pos:
            log.error(
                "the timer log ends at %d, not at %d; its messages are read again from the timer topic",
                *(end, saved.last_timer_log_flush_pos),
            )
        return saved

    def _refuse_implausible(self, saved: TimerProgress) -> None:
        """Stop at progress that no broker can have made: what it passes over would never be delivered."""
        numbers = (saved.last_read_time_ms, saved.last_timer_log_flush_pos, saved.last_timer_queue_offset)
        latest_ms = self._clock.now_ms() + SLOTS_PER_ROUND * self.wheel.precision_ms
        if min(numbers) < 0 or saved.last_read_time_ms > latest_ms:
            raise StoreError(
                f"{self._checkpoint.path} says that timers were delivered up to {saved.last_read_time_ms}, "
                "which cannot be; check the clock, or move the file away: then timers of the last days may "
                "come again"
            )

    def _is_from_other_settings(self) -> bool:
        """Whether the wheel has slots of another length, and is empty now: its moments are decades away."""
        now_ms = self._clock.now_ms()
        if self.wheel.lies_within(now_ms - DECADE_MS, now_ms + DECADE_MS):
            return False
        log.warning("the timer wheel has slots of another length, and is made again from the timer log")
        self.wheel.clear()
        return True

    def save(self, changes: Changes, progress: TimerProgress) -> None:
        """Put the log, changes of the wheel that were taken, and how far they are on the disk."""
        self.log.sync()
        self.wheel.write_back(changes)
        self._checkpoint.save(progress)

    def close(self) -> None:
        """Let go of everything; what was not saved is lost."""
        self.log.close()
        self.wheel.close()
        self._checkpoint.close()
