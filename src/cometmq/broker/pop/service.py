"""Pop consumption of one broker: its parts, put together, and their life."""

from __future__ import annotations

from cometmq.broker.groups.groups import Groups
from cometmq.broker.groups.offsets import ConsumerOffsets
from cometmq.broker.monitor.counters import Traffic
from cometmq.broker.pop.acks import Acks, OrderAcks
from cometmq.broker.pop.checks import PopChecks
from cometmq.broker.pop.consumer_order import ConsumerOrders
from cometmq.broker.pop.in_flight import InFlight
from cometmq.broker.pop.long_polling import ANY_QUEUE
from cometmq.broker.pop.offset_recovery import PopProgress
from cometmq.broker.pop.offsets import PopOffsets
from cometmq.broker.pop.pop import Peeker, Popper
from cometmq.broker.pop.revive import AckWatermark, Reviver
from cometmq.broker.pop.revive_retry import RetryWriter
from cometmq.broker.pop.revive_topic import ReviveTopic
from cometmq.broker.pop.take import Taker
from cometmq.broker.saved_tables import SavedTable, TableFiles
from cometmq.broker.set_aside import SetAside
from cometmq.broker.settings import Settings
from cometmq.broker.timers.service import TimerService
from cometmq.broker.topics.topics import Topics
from cometmq.model.message import Host
from cometmq.ports.clock import Clock
from cometmq.remoting.connection import Connection
from cometmq.store.message_store import MessageStore
from cometmq.store.tables.tables import ConsumerOrderTable, TopicTable
from cometmq.wire.headers.pop import PollingInfoRequest


class PopService:
    """Everything about popping; belongs to the event loop."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        files: TableFiles,
        host: Host,
        store: MessageStore,
        topics: Topics,
        topic_file: SavedTable[TopicTable],
        groups: Groups,
        offsets: ConsumerOffsets,
        traffic: Traffic,
        set_aside: SetAside,
        timers: TimerService,
    ) -> None:
        self._timers = timers
        revive_topic = self.revive_topic = ReviveTopic(settings, clock, host, store)
        in_flight = InFlight(settings, clock)
        pop_offsets = PopOffsets(settings, store, offsets)
        self.progress = PopProgress(settings, files, store, topics, offsets, revive_topic)
        self.checks = PopChecks(settings, store, topics, groups)
        self.orders = ConsumerOrders(settings, clock, topics, groups, self._queue_is_free)
        taker = Taker(
            settings,
            store,
            topics,
            offsets,
            traffic,
            pop_offsets,
            revive_topic,
            self.orders,
            in_flight,
            self.progress.save_soon,
        )
        self.popper = Popper(settings, clock, store, self.checks, taker)
        self.peeker = Peeker(settings, clock, store, topics, self.checks, pop_offsets, self.orders)
        in_order = OrderAcks(
            settings,
            clock,
            offsets,
            traffic,
            revive_topic,
            self.orders,
            in_flight,
            self._queue_is_free,
        )
        self.acks = Acks(settings, clock, store, traffic, self.checks, revive_topic, in_order, in_flight)
        retry_writer = RetryWriter(
            settings, store, topics, topic_file, groups, offsets, set_aside, revive_topic, in_flight
        )
        watermark = AckWatermark(settings, clock, store, timers)
        self.reviver = Reviver(
            settings, clock, store, offsets, set_aside, timers, revive_topic, retry_writer, watermark
        )
        self._order_file = files.table(ConsumerOrderTable, self.orders.snapshot)
        topics.on_change.append(lambda changed: None if changed else self.progress.save_soon())

    def connection_closed(self, connection: Connection) -> None:
        """Nobody is left to answer on this connection."""
        self.popper.waiters.connection_closed(connection)
        self.peeker.waiters.connection_closed(connection)

    def _queue_is_free(self, topic: str, group: str, queue_id: int) -> None:
        """Let somebody look who waits for a queue that was blocked."""
        for waiters in (self.popper.waiters, self.peeker.waiters):
            if not waiters.wake(topic, group, ANY_QUEUE):
                waiters.wake(topic, group, queue_id)

    def waiting_for(self, header: PollingInfoRequest, connection: Connection) -> int:
        """How many pops wait for a queue."""
        self.checks.check_peek(header, connection)
        return self.popper.waiters.count_of(header.topic, header.consumer_group, header.queue_id)

    # Life

    def load(self) -> None:
        """Read what was saved; blocks."""
        self.progress.load()
        self.orders.load(self._order_file.file.load())

    async def start(self) -> None:
        """Go on where the last run ended."""
        await self.progress.complete()
        self.orders.start()
        if self._timers.runs:
            self.reviver.start()

    async def stop(self) -> None:
        """Answer everybody who waits, and bring nothing back any more."""
        self.orders.stop()
        self.popper.waiters.stop()
        self.peeker.waiters.stop()
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
