"""The parts of a broker that its request handlers and monitors look into.

Services get what they need as constructor arguments; only handlers, metrics and `brokerStatus`, which see
everything, get the context.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from cometmq.broker.cluster.addresses import announced
from cometmq.broker.cluster.log_comparison import LogComparison
from cometmq.broker.cluster.name_servers import NameServers
from cometmq.broker.cluster.registration import Registration
from cometmq.broker.cluster.table_copies import TableCopies
from cometmq.broker.groups.assignment import Assignment, RequestModes
from cometmq.broker.groups.groups import Groups
from cometmq.broker.groups.offsets import BroadcastOffsets, ConsumerOffsets
from cometmq.broker.groups.online import Clients
from cometmq.broker.groups.queue_locks import QueueLocks
from cometmq.broker.monitor.counters import Traffic
from cometmq.broker.monitor.rates import Rates
from cometmq.broker.monitor.statistics import Statistics
from cometmq.broker.pop.service import PopService
from cometmq.broker.pull.checks import PullChecks
from cometmq.broker.pull.cold_reads import ColdReads, SlowGroups
from cometmq.broker.pull.long_polling import HeldPulls
from cometmq.broker.pull.pull import Puller
from cometmq.broker.pull.sql_filters import ConsumerFilters
from cometmq.broker.real_targets import RealTargets
from cometmq.broker.saved_tables import TableFiles
from cometmq.broker.send.answers import SendAnswers
from cometmq.broker.send.exactly_once import ExactlyOnce
from cometmq.broker.send.pressure import Pressure
from cometmq.broker.send.retries import Retries
from cometmq.broker.send.safety import SendSafety
from cometmq.broker.send.send import MessageSender
from cometmq.broker.set_aside import SetAside
from cometmq.broker.settings import Settings
from cometmq.broker.timers.delay_levels import DelayService
from cometmq.broker.timers.service import TimerService
from cometmq.broker.topics.retention import TopicRetention
from cometmq.broker.topics.topics import Topics
from cometmq.broker.transactions.service import TransactionService
from cometmq.model.message import Host
from cometmq.ports.clock import Clock
from cometmq.ports.disk import Disk
from cometmq.remoting.client import RemotingClient
from cometmq.replication.client import HaClient
from cometmq.replication.server import HaServer
from cometmq.store.message_store import MessageStore
from cometmq.store.tables.files import CONFIG_FOLDER
from cometmq.store.tables.tables import SubscriptionGroupTable, TopicTable
from cometmq.wire.record.ids import pack_host


class BrokerContext:
    """All parts of one broker, each built after those that it needs."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        disk: Disk,
        host: Host,
        remoting: RemotingClient,
        memory_bytes: int,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.disk = disk
        self.host = host
        """The address of the broker as messages carry it, with an IP address."""
        self.address = announced(settings.broker.broker_ip1, host.port)
        """Where clients find this broker: `host:port` of its main port."""
        self.started_ms = clock.now_ms()
        self.worker = ThreadPoolExecutor(1, thread_name_prefix="broker-save")
        """Writes tables and settings, one after the other."""
        self.files = TableFiles(disk, settings.store.root / CONFIG_FOLDER, self.worker)
        self.store = MessageStore(disk, clock, settings.store, pack_host(host), memory_bytes=memory_bytes)
        settings.on_change.append(lambda: self.store.change_config(settings.store))
        self.ha_server: HaServer | None = None
        """The HA port of a master."""
        self.ha_client: HaClient | None = None
        """What a slave follows its master with."""
        if settings.is_slave:
            self.ha_client = HaClient(self.store, lambda: settings.store, clock)
            if settings.store.ha_master_address:
                self.ha_client.follow(settings.store.ha_master_address)
        else:
            bind = settings.broker.bind_address
            self.ha_server = HaServer(self.store, lambda: settings.store, bind, settings.store.ha_listen_port)
        self.safety = SendSafety(settings, self.store, self.ha_server)
        self.traffic = Traffic(puts_wait=self.safety.answers_wait)
        self._build_tables(remoting)
        self._build_services()
        self._build_sends(memory_bytes)
        self._build_pulls()
        self.topic_retention = TopicRetention(settings, clock, self.store, self.topics)
        self.table_copies: TableCopies | None = None
        """What a slave copies besides the log."""
        if self.ha_client is not None:
            self.table_copies = TableCopies(
                self.address,
                remoting,
                self.store,
                self.topics,
                self.groups,
                self.offsets,
                self.delays,
                self.request_modes,
            )
            self.registration.on_master = self._follow
            self.ha_client.compare = LogComparison(remoting, self.store, self.table_copies).difference
        self.statistics = Statistics(settings, clock, self.store, self.topics, self.traffic)
        self.rates = Rates(clock, self.traffic, self.timers)

    def _follow(self, master: str | None, ha_address: str | None) -> None:
        """Follow the master that the name servers know."""
        if self.table_copies is not None:
            self.table_copies.follow(master)
        if self.ha_client is not None and ha_address and not self.settings.store.ha_master_address:
            self.ha_client.follow(ha_address)

    def _build_tables(self, remoting: RemotingClient) -> None:
        """Topics, groups, clients, and what follows from them."""
        settings, clock, files, store = self.settings, self.clock, self.files, self.store
        topics = self.topics = Topics(settings, clock)
        self.topic_file = files.table(TopicTable, topics.snapshot)
        topics.on_dirty = self.topic_file.changed
        groups = self.groups = Groups(settings, clock)
        self.group_file = files.table(SubscriptionGroupTable, groups.snapshot)
        groups.on_dirty = self.group_file.changed
        offsets = self.offsets = ConsumerOffsets(settings, clock)
        self.filters = ConsumerFilters(settings, clock, files)
        self.locks = QueueLocks(clock)
        self.request_modes = RequestModes(settings, files)
        clients = self.clients = Clients(settings, clock, groups, self.filters)
        self.broadcast_offsets = BroadcastOffsets(settings, clock, store, offsets, clients)
        self.slow_groups = SlowGroups(settings, store, topics, groups, offsets, clients)
        name_servers = self.name_servers = NameServers(settings)
        self.assignment = Assignment(settings, clock, remoting, topics, clients, name_servers)
        ha_host = settings.broker.broker_ip2.strip() or settings.broker.broker_ip1
        self.ha_address = announced(ha_host, settings.store.ha_listen_port)
        """Where slaves find the log of this broker."""
        self.registration = Registration(
            settings, self.address, self.ha_address, remoting, topics, name_servers
        )

    def _build_services(self) -> None:
        """Services that work through topics of the broker."""
        settings, clock, files, store = self.settings, self.clock, self.files, self.store
        host, topics, offsets, traffic = self.host, self.topics, self.offsets, self.traffic
        targets = self.targets = RealTargets(settings, store, topics)
        set_aside = self.set_aside = SetAside(clock, files, store)
        self.once = ExactlyOnce(self.safety, clock, files, store)
        self.delays = DelayService(settings, clock, files, store, traffic, targets, set_aside)
        self.timers = TimerService(
            settings, clock, self.disk, files, store, topics, traffic, targets, set_aside
        )
        self.transactions = TransactionService(
            settings, clock, files, host, store, topics, offsets, self.clients, traffic, targets, set_aside
        )
        self.pop = PopService(
            settings,
            clock,
            files,
            host,
            store,
            topics,
            self.topic_file,
            self.groups,
            offsets,
            traffic,
            set_aside,
            self.timers,
        )

    def _build_sends(self, memory_bytes: int) -> None:
        settings, store, traffic = self.settings, self.store, self.traffic
        pressure = Pressure(settings, memory_bytes, store)
        self.sender = MessageSender(
            settings,
            self.clock,
            self.host,
            store,
            self.topics,
            self.topic_file,
            traffic,
            pressure,
            self.safety,
            SendAnswers(settings, self.disk, self.host, store, traffic, pressure),
            Retries(self.topics, self.groups, self.locks, traffic),
            self.delays,
            self.timers,
            self.transactions,
        )

    def _build_pulls(self) -> None:
        settings, clock = self.settings, self.clock
        self.held_pulls = HeldPulls(settings, clock, self.store)
        self.cold_reads = ColdReads(settings, clock)
        self.puller = Puller(
            settings,
            clock,
            self.store,
            self.offsets,
            self.clients,
            self.traffic,
            self.held_pulls,
            self.broadcast_offsets,
            self.cold_reads,
            PullChecks(settings, self.topics, self.groups, self.filters, self.clients),
            self.ha_client,
        )
