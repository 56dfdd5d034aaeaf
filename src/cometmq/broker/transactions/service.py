"""Transactions of a broker: their ends, the check-back task, and how many are open.

Rules kept here:
- Open transactions follow from the half topic, the op topic and the offsets of the transaction group; there
  is no other state. An orderly stop puts all known ends into the op topic.
- The number of open transactions is saved; a start without readable numbers counts anew: half messages after
  the offset of the group are open, unless the op topic says that they have ended.
- Checks begin anew every `transactionCheckInterval`; while no transaction is open they cost nothing.
"""

from __future__ import annotations

import asyncio
import logging

from cometmq.broker.groups.offsets import ConsumerOffsets
from cometmq.broker.groups.online import Clients
from cometmq.broker.monitor.counters import TopicCounts, Traffic
from cometmq.broker.real_targets import RealTargets, Target
from cometmq.broker.saved_tables import Periodic, TableFiles
from cometmq.broker.set_aside import SetAside
from cometmq.broker.settings import Settings
from cometmq.broker.topics.topics import Topics
from cometmq.broker.transactions.check import READ_AT_ONCE, WINDOW, CheckBacks, TransactionChecker
from cometmq.broker.transactions.end import TransactionEnder
from cometmq.broker.transactions.half_messages import target_of
from cometmq.broker.transactions.op_queue import OpQueue
from cometmq.model.errors import CometError, ProtocolError
from cometmq.model.message import Host
from cometmq.model.names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from cometmq.ports.clock import Clock
from cometmq.store.message_store import MessageStore
from cometmq.store.tables.tables import TransactionMetricsTable
from cometmq.wire.record.codec import decode_record

log = logging.getLogger("cometmq.broker")


def _target_in(view: memoryview) -> Target | None:
    try:
        return target_of(decode_record(view).properties())
    except ProtocolError:
        return None


class TransactionService:
    """Everything about transactions; belongs to the event loop."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        files: TableFiles,
        host: Host,
        store: MessageStore,
        topics: Topics,
        offsets: ConsumerOffsets,
        clients: Clients,
        traffic: Traffic,
        targets: RealTargets,
        set_aside: SetAside,
    ) -> None:
        self._settings = settings
        self._store = store
        self._topics = topics
        self.runs = not settings.is_slave
        """Whether this broker ends transactions."""
        self.counts = TopicCounts(clock)
        """How many transactions of each topic are open; who puts a half message counts it."""
        self.ends = OpQueue(settings, clock, host, store)
        self.ender = TransactionEnder(settings, clock, store, traffic, targets, self.ends, self.counts)
        self.checker = TransactionChecker(
            settings,
            clock,
            store,
            topics,
            offsets,
            targets,
            set_aside,
            CheckBacks(settings, clients),
            self.ends,
            self.counts,
        )
        self._metrics_file = files.table(
            TransactionMetricsTable, lambda: TransactionMetricsTable(*self.counts.copy())
        )
        save_s = max(settings.broker.transaction_metric_flush_interval, 1) / 1000
        self._saving = Periodic(save_s, save_s, self._save_metrics, "saving transaction metrics")
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take over what is open."""
        saved = await self._metrics_file.load()
        if saved is not None:
            self.counts.load(saved.data_version, saved.transaction_count)
        elif self.runs:
            await self._count_anew()
        if self.runs:
            self._saving.start()
            self._task = asyncio.ensure_future(self._check_for_ever())

    async def stop(self) -> None:
        """Check no more, and put everything that is known into the store, which has to be open still."""
        if self._task is None:
            return
        self._saving.stop()
        self._task.cancel()
        await asyncio.wait([self._task])
        self._task = None
        self.ends.stop()
        self._metrics_file.changed()
        await self._metrics_file.stop()

    async def _count_anew(self) -> None:
        try:
            counted = await self._count_open()
        except (OSError, CometError) as error:
            log.warning("open transactions could not be counted: %s", error)
            return
        for topic, count in counted.items():
            self.counts.add(topic, count)

    async def _count_open(self) -> dict[str, int]:
        """How many transactions of each topic are open."""
        counted: dict[str, int] = {}
        checker = self.checker
        topic = self._topics.get(TRANS_HALF_TOPIC)
        for queue_id in range(1 if topic is None else topic.read_queue_nums):
            half = checker.offset_in(TRANS_HALF_TOPIC, queue_id)
            end = checker.end_of(TRANS_HALF_TOPIC, queue_id)
            operation, window_end = checker.offset_in(TRANS_OP_HALF_TOPIC, queue_id), 0
            ended: set[int] = set()
            while half < end:
                if half >= window_end:
                    window_end = half + WINDOW
                    ended = await checker.read_window(queue_id, operation, window_end)
                found = await self._store.get(TRANS_HALF_TOPIC, queue_id, half, READ_AT_ONCE)
                for view, queue_offset in zip(found.records, found.queue_offsets, strict=True):
                    target = None if queue_offset in ended else _target_in(view)
                    if target is not None:
                        counted[target[0]] = counted.get(target[0], 0) + 1
                if found.next_offset <= half:
                    break
                half = found.next_offset
                await asyncio.sleep(0)  # others get their turn
        return counted

    async def _check_for_ever(self) -> None:
        while True:
            await asyncio.sleep(max(self._settings.broker.transaction_check_interval, 1) / 1000)
            try:
                await self.checker.run()
            except Exception:
                log.exception("open transactions could not be checked; that is tried again")

    def _save_metrics(self) -> None:
        if self.counts.is_dirty:
            self._metrics_file.changed()
