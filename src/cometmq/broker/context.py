"""What the handlers of a broker share."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import msgspec

from cometmq.broker.cluster.addresses import announced
from cometmq.broker.cluster.registration import Registration
from cometmq.broker.config import BrokerConfig
from cometmq.broker.groups.broadcast_offsets import BroadcastOffsets
from cometmq.broker.groups.groups import Groups
from cometmq.broker.groups.offsets import ConsumerOffsets
from cometmq.broker.groups.online import Clients
from cometmq.broker.groups.queue_locks import QueueLocks
from cometmq.broker.groups.request_modes import RequestModes
from cometmq.broker.monitor.counters import Traffic
from cometmq.broker.monitor.runtime_info import Rates
from cometmq.broker.monitor.statistics import Statistics
from cometmq.broker.pop.offset_recovery import PoppedOffsetTable
from cometmq.broker.pop.service import PopService
from cometmq.broker.pull.cold_reads import ColdReads
from cometmq.broker.pull.long_polling import HeldPulls
from cometmq.broker.pull.sql_filters import ConsumerFilters
from cometmq.broker.restoring import RestoreTargets
from cometmq.broker.saved_tables import SavedTable
from cometmq.broker.send.answers import SendAnswers
from cometmq.broker.send.exactly_once import ExactlyOnce
from cometmq.broker.send.pressure import Pressure
from cometmq.broker.set_aside import SetAside
from cometmq.broker.timers.delay_levels import DelayService
from cometmq.broker.timers.service import TimerService
from cometmq.broker.topics.topics import Topics
from cometmq.broker.transactions.service import TransactionService
from cometmq.model.message import Host
from cometmq.model.topic import DataVersion
from cometmq.ports.clock import Clock
from cometmq.ports.disk import Disk
from cometmq.remoting.client import RemotingClient
from cometmq.remoting.connection import Connection
from cometmq.remoting.server_settings import ServerSettings
from cometmq.store.config import StoreConfig
from cometmq.store.message_store import USUAL_MEMORY, MessageStore
from cometmq.store.tables.files import CONFIG_FOLDER, ConfigFile
from cometmq.store.tables.tables import (
    ConsumerFilterTable,
    DelayOffsetTable,
    MessageRequestModeTable,
    SubscriptionGroupTable,
    TopicTable,
)


class Counters(msgspec.Struct):
    """What a broker has done since its start."""

    started_ms: int = 0
    put_messages: int = 0
    put_bytes: int = 0
    put_failures: int = 0
    got_messages: int = 0
    got_bytes: int = 0
    found_pulls: int = 0
    """Pulls and pops that were given messages."""
    missed_pulls: int = 0
    sent_back: int = 0
    dead_letters: int = 0
    delayed: int = 0
    """Messages of delay levels that were delivered."""


class BrokerState:
    """Tables, store and settings of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        settings: ServerSettings,
        store_config: StoreConfig,
        store: MessageStore,
        *,
        disk: Disk,
        clock: Clock,
        remoting: RemotingClient,
        address: str,
        host: Host,
        memory_bytes: int = USUAL_MEMORY,
        worker: Executor | None = None,
    ) -> None:
        self.config = config
        self.settings = settings
        self.store_config = store_config
        self.store = store
        self.clock = clock
        self.remoting = remoting
        """Calls to name servers and other brokers."""
        self.address = address
        """Where clients find this broker: `host:port` of its main port."""
        self.host = host
        """The same as messages carry it, with an IP address."""
        self.memory_bytes = memory_bytes
        """What the machine has."""
        self.config_version = DataVersion(0, clock.now_ms(), 0)
        """Changes with the settings."""
        self.on_config_change: list[Callable[[], None]] = []
        """Called after the settings changed."""
        self.on_closed: list[Callable[[Connection], object]] = []
        """Called with each connection of a client that has ended."""
        self.counters = Counters(started_ms=clock.now_ms())
        self.traffic = Traffic(puts_wait=store_config.flush_disk_type == "SYNC_FLUSH")
        self.worker = worker or ThreadPoolExecutor(1, thread_name_prefix="broker-save")
        """Writes tables and settings, one thing after the other."""
        self.disk = disk

        ha_port = store_config.ha_listen_port or host.port + 1
        self.ha_address = announced(config.broker_ip2.strip() or config.broker_ip1, ha_port)
        """Where replicas find this broker."""

        self.topics = Topics(config, clock, has_timers=store_config.timer_wheel_enable)
        self.groups = Groups(config, clock)
        self.offsets = ConsumerOffsets(config, clock)
        self.targets = RestoreTargets(self)
        self.set_aside = SetAside(self)
        self.delays = DelayService(self)
        self.pressure = Pressure(self)
        self.send_answers = SendAnswers(self)
        self.clients = Clients(self)
        self.timers = TimerService(self)
        self.transactions = TransactionService(self)
        self.locks = QueueLocks(clock)
        self.filters = ConsumerFilters(self)
        self.held_pulls = HeldPulls(self)
        self.broadcast_offsets = BroadcastOffsets(self)
        self.cold_reads = ColdReads(self)
        self.pop = PopService(self)
        self.request_modes = RequestModes(self)
        self.once = ExactlyOnce(self)
        self.registration = Registration(self)
        self.rates = Rates(self)
        self.statistics = Statistics(self)
        self.on_closed += [self.clients.connection_closed, self.held_pulls.connection_closed]

        folder = Path(store_config.store_path_root_dir) / CONFIG_FOLDER
        self.topic_file = SavedTable(ConfigFile(disk, folder, TopicTable), self.topics.snapshot, self.worker)
        self.group_file = SavedTable(
            ConfigFile(disk, folder, SubscriptionGroupTable), self.groups.snapshot, self.worker
        )
        self.offset_file = SavedTable(
            ConfigFile(disk, folder, PoppedOffsetTable), self.pop.progress.snapshot, self.worker
        )
        self.delay_file = SavedTable(
            ConfigFile(disk, folder, DelayOffsetTable), self.delays.snapshot, self.worker
        )
        self.filter_file = SavedTable(
            ConfigFile(disk, folder, ConsumerFilterTable), self.filters.snapshot, self.worker
        )
        self.request_mode_file = SavedTable(
            ConfigFile(disk, folder, MessageRequestModeTable), self.request_modes.snapshot, self.worker
        )
        self.topics.on_dirty = self.topic_file.changed
        self.groups.on_dirty = self.group_file.changed

    def change_config(self, config: BrokerConfig, store_config: StoreConfig) -> None:
        """Put other settings in force, as far as they can change while the broker runs."""
        version = self.config_version
        self.config_version = DataVersion(version.state_version, self.clock.now_ms(), version.counter + 1)
        self.config = self.topics.config = self.groups.config = config
        self.offsets.resets_on_server = config.use_server_side_reset_offset
        self.store_config = store_config
        self.store.change_config(store_config)
        for listener in self.on_config_change:
            listener()

    def connection_closed(self, connection: Connection) -> None:
        for listener in self.on_closed:
            listener(connection)

    def load_tables(self) -> None:
        """Read the tables that were saved; this blocks."""
        self.topics.load(self.topic_file.file.load())
        self.groups.load(self.group_file.file.load())
        self.pop.progress.load(self.offset_file.file.load())
        self.delays.load(self.delay_file.file.load())
        self.filters.load(self.filter_file.file.load())
        self.request_modes.load(self.request_mode_file.file.load())
        self.set_aside.load()
        self.pop.load()
        self.once.load()

    def save_offsets(self) -> None:
        """Save soon how far the groups are, if they went on."""
        if self.offsets.is_dirty:
            self.offsets.is_dirty = False
            self.pop.progress.save_soon()

    def save_filters(self) -> None:
        """Save soon what groups filter by, if that changed."""
        self.filters.remove_long_dead()
        if self.filters.is_dirty:
            self.filters.is_dirty = False
            self.filter_file.changed()

    async def save_everything(self) -> None:
        """Put every table on the disk, for the last time."""
        self.save_filters()
        await self.pop.save_all()
        await self.delays.save()
        await self.once.save()
        await self.set_aside.stop()
        for table in (
            self.topic_file,
            self.group_file,
            self.offset_file,
            self.delay_file,
            self.filter_file,
            self.request_mode_file,
        ):
            await table.stop()
