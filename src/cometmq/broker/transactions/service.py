"""The transactions of a broker: their ends, the checks that go on beside, and how many are open.

Rules kept here:
- What is open after a restart follows from the half topic, the op topic and the offsets of the transaction
  group; there is no other state. A stop in good order puts everything that is known about ends into the op
  topic.
- How many are open is saved; a start that finds no such numbers, or none that can be read, counts anew.
- Checks begin anew every `transactionCheckInterval`; while no transaction is open they cost nothing.
"""

from __future__ import annotations

import asyncio
import logging

from cometmq.broker.groups.offsets import ConsumerOffsets
from cometmq.broker.groups.online import Clients
from cometmq.broker.monitor.counters import TopicCounts, Traffic
from cometmq.broker.restoring import RestoreTargets
from cometmq.broker.saved_tables import Periodic, TableFiles
from cometmq.broker.set_aside import SetAside
from cometmq.broker.settings import Settings
from cometmq.broker.topics.topics import Topics
from cometmq.broker.transactions.check import TransactionChecking
from cometmq.broker.transactions.check_requests import ProducerQuestions
from cometmq.broker.transactions.end import TransactionEnding
from cometmq.broker.transactions.op_queue import TransactionEnds
from cometmq.broker.transactions.recount import count_open
from cometmq.model.errors import CometError
from cometmq.model.message import Host
from cometmq.ports.clock import Clock
from cometmq.store.message_store import MessageStore
from cometmq.store.tables.tables import TransactionMetricsTable

log = logging.getLogger("cometmq.broker")


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
        targets: RestoreTargets,
        set_aside: SetAside,
    ) -> None:
        self._settings = settings
        self._store = store
        self._topics = topics
        self.runs = settings.store.broker_role != "SLAVE"
        """Whether this broker ends transactions."""
        self.counts = TopicCounts(clock)
        """How many transactions of each topic are open; who puts a half message counts it."""
        self.ends = TransactionEnds(settings, clock, host, store)
        self.ending = TransactionEnding(settings, clock, store, traffic, targets, self.ends, self.counts)
        self.checking = TransactionChecking(
            settings,
            clock,
            store,
            topics,
            offsets,
            targets,
            set_aside,
            ProducerQuestions(settings, clients),
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
            counted = await count_open(self._topics, self._store, self.checking)
        except (OSError, CometError) as error:
            log.warning("open transactions could not be counted: %s", error)
            return
        for topic, count in counted.items():
            self.counts.add(topic, count)

    async def _check_for_ever(self) -> None:
        while True:
            await asyncio.sleep(max(self._settings.broker.transaction_check_interval, 1) / 1000)
            try:
                await self.checking.run()
            except Exception:
                log.exception("open transactions could not be checked; that is tried again")

    def _save_metrics(self) -> None:
        if self.counts.is_dirty:
            self._metrics_file.changed()
