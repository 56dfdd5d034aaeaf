"""Recount of waiting timers, once a day: a kill leaves the saved numbers off.

The same is done at a start that finds no numbers, or none that can be read.

Rules kept here:
- It is begun between two slots, when nothing is being delivered: what waits then is in the slots from the
  read time on, and in the timer log before its end. All of that can still be read when it is delivered.
- What changed while it was counted is added to what was counted.
- The timer log knows topics by their hashes; what belongs to no topic that the broker knows is not counted.
- It is read beside the event loop, in small chunks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final

from cometmq.broker.monitor.counters import TopicCounts
from cometmq.broker.settings import Settings
from cometmq.broker.timers.files import TimerFiles
from cometmq.broker.topics.topics import Topics
from cometmq.model.errors import StoreError
from cometmq.ports.clock import Clock
from cometmq.store.timer.log import MAGIC_DELETE
from cometmq.wire.java_hash import java_hash

log = logging.getLogger("cometmq.broker")

AT_ONCE: Final = 512
"""Records that are read in one go."""


@dataclass(eq=False, repr=False)
class TimerRecount:
    """Counts once a day; belongs to the event loop."""

    _settings: Settings
    _clock: Clock
    _worker: Executor
    _topics: Topics
    _files: TimerFiles
    _counts: TopicCounts
    _slot_ms: int

    def __post_init__(self) -> None:
        self._day = self._today()
        self._task: asyncio.Task[None] | None = None
        self.is_wanted = False
        """Set it to have them counted soon, whatever the hour is."""

    def _today(self) -> int:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000).toordinal()

    @property
    def is_running(self) -> bool:
        return self._task is not None

    @property
    def is_due(self) -> bool:
        """Whether this is the hour, and nothing was counted today; a start counts as that."""
        config = self._settings.store
        if self.is_wanted and not self.is_running:
            return True
        if not config.timer_enable_check_metrics or self.is_running:
            return False
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000)
        return self._day != now.toordinal() and f"{now.hour:02d}" in config.timer_check_metrics_when.split(
            ";"
        )

    def begin(self, read_time_ms: int, latest_ms: int) -> None:
        """Count what waits now: everything from one slot up to another; nothing may be delivered just now."""
        self._day = self._today()
        self.is_wanted = False
        before = {topic: metric.count for topic, metric in self._counts.counts.items()}
        self._task = asyncio.ensure_future(self._run(read_time_ms, latest_ms, before))
        self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Count no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            log.warning("waiting messages could not be counted anew: %s", task.exception())

    async def _run(self, read_time_ms: int, latest_ms: int, before: dict[str, int]) -> None:
        counted = await self._count(read_time_ms, latest_ms)
        names = {java_hash(name): name for name in (*self._topics.table, *self._counts.counts)}
        waiting = {names[hashed]: count for hashed, count in counted.items() if hashed in names}
        for topic in {*waiting, *self._counts.counts}:
            off = waiting.get(topic, 0) - before.get(topic, 0)
            if off:
                self._counts.add(topic, off)
        log.info("counted anew: %d messages wait for their time", sum(waiting.values()))

    async def _count(self, read_time_ms: int, latest_ms: int) -> dict[int, int]:
        """How many there are by the hash of their topic."""
        counted: dict[int, int] = {}
        loop, end = asyncio.get_running_loop(), self._files.log.end
        walk = self._walk(read_time_ms, latest_ms, end)
        while records := await loop.run_in_executor(self._worker, lambda: list(islice(walk, AT_ONCE))):
            for hashed, count in records:
                if count:
                    counted[hashed] = counted.get(hashed, 0) + count
        return counted

    def _walk(self, read_time_ms: int, latest_ms: int, end: int) -> Iterator[tuple[int, int]]:
        """The hash of a topic, and what a record adds to its number."""
        wheel, timer_log = self._files.wheel, self._files.log
        for time_ms in range(read_time_ms, latest_ms + 1, self._slot_ms):
            slot = wheel.get(time_ms)
            yield 0, 0  # an empty slot is work, too
            if slot is None or slot.last < 0:
                continue
            try:
                for timer in timer_log.walk(slot.last):
                    if timer.position < end:
                        yield timer.topic_hash, -1 if timer.magic & MAGIC_DELETE else 1
            except StoreError as error:  # they are not delivered either
                log.warning("some timers cannot be counted: %s", error.message)
