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
from typing import TYPE_CHECKING

from cometmq.broker.monitor.topic_counts import TopicCounts
from cometmq.broker.saved_tables import Periodic, SavedTable
from cometmq.broker.transactions.check import TransactionChecking
from cometmq.broker.transactions.end import TransactionEnding
from cometmq.broker.transactions.op_queue import TransactionEnds
from cometmq.broker.transactions.recount import count_open
from cometmq.model.errors import CometError
from cometmq.store.tables.files import CONFIG_FOLDER, ConfigFile
from cometmq.store.tables.tables import TransactionMetricsTable

if TYPE_CHECKING:
    from cometmq.broker.context import BrokerState

log = logging.getLogger("cometmq.broker")


class TransactionService:
    """Everything about transactions; belongs to the event loop."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self.runs = state.store_config.broker_role != "SLAVE"
        """Whether this broker ends transactions."""
        self.counts = TopicCounts(state.clock)
        """How many transactions of each topic are open; who puts a half message counts it."""
        self.ends = TransactionEnds(state)
        self.ending = TransactionEnding(state, self.ends, self.counts)
        self.checking = TransactionChecking(state, self.ends, self.counts)
        self._metrics_file = SavedTable(
            ConfigFile(state.disk, state.store_config.root / CONFIG_FOLDER, TransactionMetricsTable),
            lambda: TransactionMetricsTable(*self.counts.copy()),
            state.worker,
        )
        save_s = max(state.config.transaction_metric_flush_interval, 1) / 1000
        self._saving = Periodic(save_s, save_s, self._save_metrics, "saving transaction metrics")
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take over what is open."""
        loop = asyncio.get_running_loop()
        saved = await loop.run_in_executor(self._state.worker, self._metrics_file.file.load)
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
            counted = await count_open(self._state, self.checking)
        except (OSError, CometError) as error:
            log.warning("open transactions could not be counted: %s", error)
            return
        for topic, count in counted.items():
            self.counts.add(topic, count)

    async def _check_for_ever(self) -> None:
        while True:
            await asyncio.sleep(max(self._state.config.transaction_check_interval, 1) / 1000)
            try:
                await self.checking.run()
            except Exception:
                log.exception("open transactions could not be checked; that is tried again")

    def _save_metrics(self) -> None:
        if self.counts.is_dirty:
            self._metrics_file.changed()
