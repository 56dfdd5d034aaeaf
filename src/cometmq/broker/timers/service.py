"""The timers of a broker: one task that takes and delivers, and the files that follow it.

Rules kept here:
- Nothing polls: as long as no message waits, nothing runs. While one waits, the end of each slot is looked
  at, because the wall clock, which decides, may be set.
- Messages that come are taken together: the first one waits a moment for others. That is a small part of a
  slot, and never beyond the end of one.
- What is saved about progress is only what is safe: delivered messages are on the disk before the checkpoint
  says that they are delivered. So no crash loses a message; after a kill those of the last slots may come
  again: of those that were delivered within two seconds before it, and of the one that was being delivered.
  After an orderly stop the next start goes on exactly there.
- A stop lets the slot that is being delivered end, as long as that takes seconds.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final

from cometmq.broker.monitor.counters import TopicCounts, Traffic
from cometmq.broker.real_targets import RealTargets
from cometmq.broker.saved_tables import Periodic, TableFiles
from cometmq.broker.send.checks import SendRefused
from cometmq.broker.set_aside import SetAside
from cometmq.broker.settings import Settings
from cometmq.broker.timers.deliver import TimerDelivery
from cometmq.broker.timers.enqueue import BLANK_SLOTS, TimerEnqueuer
from cometmq.broker.timers.files import TimerFiles
from cometmq.broker.timers.recount import TimerRecount
from cometmq.broker.timers.schedule import set_timer
from cometmq.broker.topics.topics import Topics
from cometmq.model.names import TIMER_TOPIC
from cometmq.ports.clock import Clock
from cometmq.ports.disk import Disk
from cometmq.store.message_store import MessageStore
from cometmq.store.status import PutStatus
from cometmq.store.tables.tables import TimerMetricsTable
from cometmq.store.timer.checkpoint import TimerProgress
from cometmq.store.timer.wheel import SLOTS_PER_ROUND
from cometmq.wire.codes import ResponseCode
from cometmq.wire.record.codec import Record

log = logging.getLogger("cometmq.broker")

LONGEST_SLEEP_S: Final = 1.0
GATHER_S: Final = 0.05
"""How long the first message waits for others; a twentieth of a slot, if that is less."""
FAILURE_S: Final = 1.0
STOP_S: Final = 10.0
SAVE_METRICS_S: Final = 10.0
EXPIRE_S: Final = 30.0


class TimerService:
    """Sets, delivers and saves timers; belongs to the event loop."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        disk: Disk,
        files: TableFiles,
        store: MessageStore,
        topics: Topics,
        traffic: Traffic,
        targets: RealTargets,
        set_aside: SetAside,
        worker: Executor | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._store = store
        config = settings.store
        self.runs = settings.has_timers and config.broker_role != "SLAVE"
        """Whether this broker delivers timed messages."""
        self._slot_ms = config.timer_slot_ms
        self._worker = worker or ThreadPoolExecutor(2, thread_name_prefix="broker-timers")
        self._files = TimerFiles(disk, clock, config)
        self.counts = TopicCounts(clock)
        """How many messages of each topic wait for their time."""
        self.delivery = TimerDelivery(
            settings, clock, self._worker, store, targets, set_aside, self._files, self.counts
        )
        self.enqueuer = TimerEnqueuer(
            settings, clock, store, traffic, targets, set_aside, self._files, self.counts, self.delivery
        )
        self.recount = TimerRecount(
            settings, clock, self._worker, topics, self._files, self.counts, self._slot_ms
        )
        self._metrics_file = files.table(TimerMetricsTable, lambda: TimerMetricsTable(*self.counts.copy()))
        self.progress = TimerProgress()
        """How far the timers are, as it was last saved."""
        self._saving: asyncio.Future[None] | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        flush_s = config.timer_flush_interval_ms / 1000
        self._upkeep = [
            Periodic(flush_s, flush_s, self.save_soon, "saving timers"),
            Periodic(SAVE_METRICS_S, SAVE_METRICS_S, self._save_metrics, "saving timer metrics"),
            Periodic(EXPIRE_S, EXPIRE_S, self._remove_expired, "removing expired timers"),
        ]

    # What others ask

    def count_at(self, slot_ms: int) -> int:
        """How many messages wait in a slot."""
        slot = self._files.wheel.get(slot_ms)
        return 0 if slot is None else slot.num

    def set(self, record: Record, properties: dict[str, str]) -> None:
        """Let a message wait in the timer topic until its time; raises `SendRefused`."""
        if not self._settings.has_timers:
            remark = "accurate timer message is not enabled, timerWheelEnable is false"
            raise SendRefused(ResponseCode.SYSTEM_ERROR, remark)
        set_timer(record, properties, self._settings.store, self._clock.now_ms(), self.count_at)

    @property
    def read_behind_ms(self) -> int:
        """How much later than it should be the next message is delivered."""
        if not self._is_waiting:
            return 0
        return max(self._clock.now_ms() - self.delivery.read_time_ms - self._slot_ms, 0)

    @property
    def _is_waiting(self) -> bool:
        return self.enqueuer.latest_ms >= self.delivery.read_time_ms

    # Life

    async def start(self) -> None:
        """Go on where the last run ended."""
        if not self.runs:
            return
        loop = asyncio.get_running_loop()
        message_end = self._store.log.max_offset
        self.progress = saved = await loop.run_in_executor(self._worker, self._files.open, message_end)
        metrics = await self._metrics_file.load()
        if metrics is None:
            self.recount.is_wanted = True
        else:
            self.counts.load(metrics.data_version, metrics.timing_count)
        now_slot = self._clock.now_ms() // self._slot_ms * self._slot_ms
        oldest_ms = now_slot - (SLOTS_PER_ROUND - BLANK_SLOTS) * self._slot_ms
        self.delivery.read_time_ms = max(saved.last_read_time_ms // self._slot_ms * self._slot_ms, oldest_ms)
        self.enqueuer.resume(saved, self.delivery.read_time_ms)
        if not self._is_waiting and not self.enqueuer.lag:
            self.counts.clear()
        log.info(
            "timers go on at %d of the timer topic; delivered up to %d",
            *(self.enqueuer.queue_offset, self.delivery.read_time_ms),
        )
        self._store.arrivals.append(self._arrived, TIMER_TOPIC)
        self._settings.on_change.append(self._wake.set)
        self._task = asyncio.ensure_future(self._run())
        for work in self._upkeep:
            work.start()

    async def stop(self) -> None:
        """Deliver no more, and put everything on the disk."""
        for work in self._upkeep:
            work.stop()
        if self._task is not None:
            self._store.arrivals.remove(self._arrived, TIMER_TOPIC)
            self._stopping = self.delivery.is_stopping = True
            self._wake.set()
            await asyncio.wait([self._task], timeout=STOP_S)
            if not self._task.done():
                log.warning("timers are stopped within a slot; some of its messages will be delivered again")
                self._task.cancel()
                await asyncio.wait([self._task])
            self._task = None
            await self.recount.stop()
            await self._save_all()
        else:
            self._files.close()
        self._worker.shutdown()

    def _arrived(
        self, topic: str, queue_id: int, offset: int, code: int, stored_ms: int, block: bytes | memoryview
    ) -> None:
        self._wake.set()

    async def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            try:
                await self._turn()
            except Exception:
                log.exception("timers did not go on; trying again in %d s", FAILURE_S)
                await asyncio.sleep(FAILURE_S)
                continue
            if self._stopping:
                return
            try:
                async with asyncio.timeout(self._sleep_s()):
                    await self._wake.wait()
            except TimeoutError:
                continue
            if not self._stopping:
                await asyncio.sleep(min(GATHER_S, self._slot_ms / 20_000, self._slot_left_s()))

    async def _turn(self) -> None:
        config, enqueuer, delivery = self._settings.store, self.enqueuer, self.delivery
        if not self._is_waiting:
            delivery.read_time_ms = max(delivery.read_time_ms, enqueuer.write_time_ms)
        if self.recount.is_due:
            self.recount.begin(delivery.read_time_ms, enqueuer.latest_ms)
        await enqueuer.catch_up(takes=not config.timer_stop_enqueue)
        if not (config.timer_stop_dequeue or self._settings.hidden_s):
            await delivery.deliver_before(enqueuer.write_time_ms, enqueuer.latest_ms)

    def _sleep_s(self) -> float | None:
        if not self._is_waiting:
            return None
        return min(self._slot_left_s(), LONGEST_SLEEP_S)

    def _slot_left_s(self) -> float:
        slot_ends_ms = self.enqueuer.write_time_ms + self._slot_ms
        return max(slot_ends_ms - self._clock.now_ms(), 1) / 1000

    # Files

    def save_soon(self) -> None:
        """Save how far the timers are, if they went on, once what was delivered is on the disk."""
        if self._saving is not None or not self._has_moved():
            return
        self._saving = asyncio.ensure_future(self._save())
        self._saving.add_done_callback(self._save_ended)

    def _has_moved(self) -> bool:
        saved = self.progress
        return (
            saved.last_timer_queue_offset != self.enqueuer.queue_offset
            or saved.last_timer_log_flush_pos != self._files.log.end
            or saved.last_read_time_ms < min(self.delivery.read_time_ms, self.enqueuer.latest_ms + 1)
        )

    async def _save(self) -> None:
        store, offset = self._store, self.enqueuer.queue_offset
        progress = TimerProgress(
            self.delivery.read_time_ms,
            self._files.log.end,
            offset,
            offset,
            self.progress.data_version.after(self._clock.now_ms()),
        )
        changes = self._files.wheel.take_changes()
        if await store.flusher.wait_flushed(store.log.max_offset) is PutStatus.PUT_OK:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._worker, self._files.save, changes, progress)
            self.progress = progress

    def _save_ended(self, saving: asyncio.Future[None]) -> None:
        self._saving = None
        if not saving.cancelled() and saving.exception() is not None:
            log.error("timers could not be saved, and are saved later: %s", saving.exception())

    async def _save_all(self) -> None:
        if self._saving is not None:
            await asyncio.wait([self._saving])
        try:
            await self._save()
        except OSError as error:
            log.error("timers could not be saved; the next start reads them again: %s", error)
        self._metrics_file.changed()
        await self._metrics_file.stop()
        await asyncio.get_running_loop().run_in_executor(self._worker, self._files.close)

    def _save_metrics(self) -> None:
        if not self._is_waiting and not self.enqueuer.lag:
            self.counts.clear()
        if self.counts.is_dirty:
            self._metrics_file.changed()

    def _remove_expired(self) -> None:
        expired = self._files.log.detach_expired(self._store.log.min_offset)
        if expired:
            loop = asyncio.get_running_loop()
            erasing = loop.run_in_executor(self._worker, self._files.log.erase, expired)
            erasing.add_done_callback(_log_failure)


def _log_failure(erasing: asyncio.Future[None]) -> None:
    if not erasing.cancelled() and erasing.exception() is not None:
        log.error("expired files of the timer log could not be removed: %s", erasing.exception())
