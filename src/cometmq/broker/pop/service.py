"""Pop consumption of one broker: its parts, put together, and their life."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.broker.pop.acks import Acks
from cometmq.broker.pop.checks import PopChecks
from cometmq.broker.pop.consumer_order import ConsumerOrders
from cometmq.broker.pop.in_flight import InFlight
from cometmq.broker.pop.long_polling import ANY_QUEUE
from cometmq.broker.pop.offset_recovery import PopProgress
from cometmq.broker.pop.offsets import Places
from cometmq.broker.pop.order_acks import OrderAcks
from cometmq.broker.pop.peek import Looking
from cometmq.broker.pop.pop import Popper
from cometmq.broker.pop.revive import Reviver
from cometmq.broker.pop.revive_topic import ReviveLog
from cometmq.broker.pop.take import Taker
from cometmq.broker.saved_tables import SavedTable
from cometmq.store.tables.files import CONFIG_FOLDER, ConfigFile
from cometmq.store.tables.tables import ConsumerOrderTable
from cometmq.wire.headers.pop import PollingInfoRequest

if TYPE_CHECKING:
    from cometmq.broker.context import BrokerState
    from cometmq.remoting.connection import Connection


class PopService:
    """Everything about popping; belongs to the event loop."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        revive_log = self.revive_log = ReviveLog(state)
        in_flight = InFlight(state)
        places = Places(state)
        self.checks = PopChecks(state)
        self.orders = ConsumerOrders(state, self._queue_is_free)
        self.popper = Popper(state, self.checks, Taker(state, places, revive_log, self.orders, in_flight))
        self.looking = Looking(state, self.checks, places, self.orders)
        in_order = OrderAcks(state, places, revive_log, self.orders, in_flight, self._queue_is_free)
        self.acks = Acks(state, self.checks, revive_log, in_order, in_flight)
        self.reviver = Reviver(state, revive_log, in_flight)
        self.progress = PopProgress(state, revive_log)
        self._order_file = SavedTable(
            ConfigFile(state.disk, state.store_config.root / CONFIG_FOLDER, ConsumerOrderTable),
            self.orders.snapshot,
            state.worker,
        )
        state.topics.on_change.append(lambda topics: None if topics else state.save_offsets())

    def _queue_is_free(self, topic: str, group: str, queue_id: int) -> None:
        """Let somebody look who waits for a queue that was blocked."""
        for waiters in (self.popper.waiters, self.looking.waiters):
            if not waiters.wake(topic, group, ANY_QUEUE):
                waiters.wake(topic, group, queue_id)

    def waiting_for(self, header: PollingInfoRequest, connection: Connection) -> int:
        """How many pops wait for a queue."""
        self.checks.check_look(header, connection)
        return self.popper.waiters.count_of(header.topic, header.consumer_group, header.queue_id)

    # Life

    def load(self) -> None:
        """Read what was saved; this blocks."""
        self.orders.load(self._order_file.file.load())

    async def start(self) -> None:
        """Go on where the last run ended."""
        await self.progress.complete()
        self.orders.start()
        if self._state.timers.runs:
            self.reviver.start()

    async def stop(self) -> None:
        """Answer everybody who waits, and bring nothing back any more."""
        self.orders.stop()
        self.popper.waiters.stop()
        self.looking.waiters.stop()
        self.acks.write()
        await self.reviver.stop()

    def save(self) -> None:
        """Save soon what was popped in order, if that changed."""
        self.orders.forget_gone()
        if self.orders.is_dirty:
            self.orders.is_dirty = False
            self._order_file.changed()

    async def save_all(self) -> None:
        """Put everything on the disk, for the last time."""
        await self.progress.save()
        self.save()
        await self._order_file.stop()
