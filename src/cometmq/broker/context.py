"""The parts of a broker that its request handlers and monitors look into.

Services get what they need as constructor arguments; only handlers, metrics and `brokerStatus`, which see
everything, get the context. `broker.py` builds it.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

from cometmq.broker.cluster.registration import Registration
from cometmq.broker.groups.assignment import Assignment, RequestModes
from cometmq.broker.groups.groups import Groups
from cometmq.broker.groups.offsets import BroadcastOffsets, ConsumerOffsets
from cometmq.broker.groups.online import Clients
from cometmq.broker.groups.queue_locks import QueueLocks
from cometmq.broker.monitor.counters import Traffic
from cometmq.broker.monitor.rates import Rates
from cometmq.broker.monitor.statistics import Statistics
from cometmq.broker.pop.service import PopService
from cometmq.broker.pull.cold_reads import ColdReads, SlowGroups
from cometmq.broker.pull.long_polling import HeldPulls
from cometmq.broker.pull.pull import Puller
from cometmq.broker.pull.sql_filters import ConsumerFilters
from cometmq.broker.real_targets import RealTargets
from cometmq.broker.saved_tables import SavedTable, TableFiles
from cometmq.broker.send.exactly_once import ExactlyOnce
from cometmq.broker.send.send import MessageSender
from cometmq.broker.set_aside import SetAside
from cometmq.broker.settings import Settings
from cometmq.broker.timers.delay_levels import DelayService
from cometmq.broker.timers.service import TimerService
from cometmq.broker.topics.topics import Topics
from cometmq.broker.transactions.service import TransactionService
from cometmq.model.message import Host
from cometmq.ports.clock import Clock
from cometmq.ports.disk import Disk
from cometmq.store.message_store import MessageStore
from cometmq.store.tables.tables import SubscriptionGroupTable, TopicTable


@dataclass(slots=True, kw_only=True)
class BrokerContext:
    """All parts of one broker, ready for use."""

    settings: Settings
    clock: Clock
    disk: Disk
    files: TableFiles
    worker: Executor
    """Writes tables and settings, one after the other."""
    address: str
    """Where clients find this broker: `host:port` of its main port."""
    host: Host
    """The address of the broker as messages carry it, with an IP address."""
    started_ms: int
    store: MessageStore

    topics: Topics
    topic_file: SavedTable[TopicTable]
    groups: Groups
    group_file: SavedTable[SubscriptionGroupTable]
    offsets: ConsumerOffsets
    broadcast_offsets: BroadcastOffsets
    filters: ConsumerFilters
    clients: Clients
    locks: QueueLocks
    request_modes: RequestModes
    assignment: Assignment

    sender: MessageSender
    once: ExactlyOnce
    delays: DelayService
    timers: TimerService
    transactions: TransactionService
    targets: RealTargets
    set_aside: SetAside

    puller: Puller
    held_pulls: HeldPulls
    cold_reads: ColdReads
    slow_groups: SlowGroups
    pop: PopService

    traffic: Traffic
    statistics: Statistics
    rates: Rates
    registration: Registration
