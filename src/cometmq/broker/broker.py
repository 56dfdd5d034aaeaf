"""A running broker: its store, tables and ports, announced to its name servers.

Life in three steps: settings (given), build (`Broker(…)`, which takes the ports), `start`, which recovers the
store; at the end `stop`. The fast port serves everything but pulls, so that sends do not wait for them.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec

from cometmq.broker.cluster.addresses import resolve_host
from cometmq.broker.config import BrokerConfig
from cometmq.broker.context import BrokerContext
from cometmq.broker.handlers import HANDLERS
from cometmq.broker.handlers.pull import READS
from cometmq.broker.monitor.exporter import BrokerExporter
from cometmq.broker.monitor.rates import SAMPLE_S
from cometmq.broker.monitor.statistics import SAMPLE_S as STATISTICS_S
from cometmq.broker.ports import HeldPorts
from cometmq.broker.saved_tables import Periodic
from cometmq.broker.send.exactly_once import SAVE_S as ONCE_S
from cometmq.broker.settings import Settings
from cometmq.broker.start_checks import refuse_settings, refuse_store
from cometmq.broker.topics.retention import RETENTION_S
from cometmq.model.errors import StoreError
from cometmq.model.message import Host
from cometmq.ports.clock import Clock, SystemClock
from cometmq.ports.disk import Disk, SystemDisk
from cometmq.ports.system import BINDS_TWICE, physical_memory
from cometmq.remoting.client import RemotingClient
from cometmq.remoting.descriptor_shares import shares
from cometmq.remoting.handler import HandlerTable
from cometmq.remoting.open_ports import warn_if_open
from cometmq.remoting.server import RemotingServer
from cometmq.remoting.server_settings import ServerSettings
from cometmq.store.config import StoreConfig
from cometmq.store.directory import room_advice
from cometmq.wire.codes import RequestCode

log = logging.getLogger("cometmq.broker")

MAIN_PORT_ONLY: Final = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.PEEK_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.NOTIFICATION,
        RequestCode.POLLING_INFO,
    }
)
FIRST_REGISTRATION_S: Final = 3.0
"""How long a start waits for the name servers."""
LOCK_UPKEEP_S: Final = 60.0
SLOW_S: Final = 180.0
"""How often lagging groups are looked for."""


class Broker:
    """One broker."""

    def __init__(
        self,
        config: BrokerConfig,
        store_config: StoreConfig | None = None,
        settings: ServerSettings | None = None,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
    ) -> None:
        store_config = store_config or StoreConfig()
        settings = settings or ServerSettings()
        refuse_settings(config, store_config)
        clock, disk = clock or SystemClock(), disk or SystemDisk()
        self._ports = HeldPorts(config.bind_address, config.listen_port, store_config.ha_listen_port)
        try:
            self.port = self._ports.main
            self.fast_port = self._ports.fast
            config = msgspec.structs.replace(config, listen_port=self.port)
            store_config = msgspec.structs.replace(store_config, ha_listen_port=self._ports.ha)
            memory = physical_memory()
            host = Host(resolve_host("brokerIP1", config.broker_ip1), self.port)
            self.client = RemotingClient(tls=settings.client_tls(enabled=config.use_tls))
            self.context = BrokerContext(
                Settings(config, store_config, clock), clock, disk, host, self.client, memory
            )
            self._build_servers(config, settings)
        except BaseException:
            self._ports.release()
            raise
        self._upkeep = self._periodic_work()
        self._has_store = self._is_started = False

    def _build_servers(self, config: BrokerConfig, settings: ServerSettings) -> None:
        main, fast = HandlerTable(), HandlerTable()
        for family in HANDLERS:
            main.add_handlers(family(self.context))
        for read_code, header, handler_of in READS:
            main.add(read_code, header, handler_of(self.context))
        for code in main.codes - MAIN_PORT_ONLY:
            entry = main.get(code)
            assert entry is not None
            fast.add(code, entry.header, entry.function)
        self.server, self.fast_server = (
            RemotingServer(
                host=config.bind_address,
                port=port,
                handlers=table,
                limits=settings.limits(config),
                tls=settings.tls,
                backlog=config.server_socket_backlog,
            )
            for port, table in ((self.port, main), (self.fast_port, fast))
        )
        context = self.context
        for server in (self.server, self.fast_server):
            server.on_closed += [
                context.clients.connection_closed,
                context.held_pulls.connection_closed,
                context.pop.connection_closed,
                context.sender.connection_closed,
            ]
        self.exporter: BrokerExporter | None = None
        if config.metrics_exporter_type != "DISABLE":
            self.exporter = BrokerExporter(self.context, self.server.metrics, self.fast_server.metrics)

    def _periodic_work(self) -> list[Periodic]:
        context = self.context
        settings = context.settings
        offsets_s = settings.broker.flush_consumer_offset_interval / 1000
        delays_s = max(min(settings.store.flush_delay_offset_interval, 1000), 100) / 1000
        return [
            Periodic(10, offsets_s, context.pop.progress.save_soon, "saving consumer offsets"),
            Periodic(10, 10, context.filters.save, "saving consumer filters"),
            Periodic(10, 10, context.pop.save, "saving the order of pops"),
            Periodic(ONCE_S, ONCE_S, context.once.save_soon, "saving sequences of exactly-once writers"),
            Periodic(1, delays_s, context.delays.save_soon, "saving delay offsets"),
            Periodic(10, 10, context.clients.remove_silent, "closing connections without heartbeats"),
            Periodic(5, 5, context.broadcast_offsets.commit, "committing offsets of broadcast groups"),
            Periodic(SLOW_S, SLOW_S, context.slow_groups.disable, "looking for slow groups"),
            Periodic(RETENTION_S, RETENTION_S, context.topic_retention.begin, "retention of topics"),
            Periodic(SAMPLE_S, SAMPLE_S, context.rates.sample, "measuring rates"),
            Periodic(STATISTICS_S, STATISTICS_S, context.statistics.sample, "taking statistics"),
            Periodic(LOCK_UPKEEP_S, LOCK_UPKEEP_S, context.locks.remove_expired, "removing expired locks"),
        ]

    @property
    def address(self) -> str:
        return self.context.address

    async def start(self) -> None:
        """Recover the store, listen, and announce the broker; what fails leaves nothing running."""
        try:
            await self._start()
        except OSError as error:
            await self.stop()
            config = self.context.settings.store
            root, advice = config.root, room_advice(self.context.disk, config, error)
            raise StoreError(f"the broker with the store {root} cannot start: {error}{advice}") from error
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        context = self.context
        if self.exporter is not None:
            await self.exporter.start()  # who asks meanwhile is told that the store is being recovered
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(context.worker, refuse_store, context.disk, context.settings.store)
        await context.store.start()
        self._has_store = True
        context.statistics.start()
        await loop.run_in_executor(context.worker, self._load_tables)
        await context.topic_retention.run()
        context.delays.start()
        await context.timers.start()
        await context.transactions.start()
        await context.pop.start()
        for work in self._upkeep:
            work.start()
        if not BINDS_TWICE:
            self._ports.release()
        await self.server.start()
        await self.fast_server.start()
        if context.ha_server is not None:
            await context.ha_server.start()
            if context.settings.waits_for_replicas and context.settings.store.in_sync_replicas == 1:
                log.warning(
                    "brokerRole = SYNC_MASTER with inSyncReplicas = 1 waits for no slave; set inSyncReplicas "
                    "to the number of copies that a message needs, with the master's"
                )
        log.info("%s; at most %d queue files are mapped", shares(), context.store.queues.open_files.limit)
        self._ports.release()
        self._is_started = True
        ports = (self.port, self.fast_port, *(() if context.ha_server is None else (self._ports.ha,)))
        what = "messages, topics, groups and settings can be read, changed and deleted"
        warn_if_open(log, what, context.settings.broker.bind_address, ports, "bindAddress")
        if context.ha_client is not None:
            context.ha_client.start()
        if context.table_copies is not None:
            context.table_copies.start()
        await context.name_servers.start()
        context.registration.start()
        await context.registration.settled(FIRST_REGISTRATION_S)
        if self.exporter is not None:
            self.exporter.is_serving = True

    def _load_tables(self) -> None:
        """Read the saved tables; blocks."""
        context = self.context
        context.topics.load(context.topic_file.file.load())
        context.groups.load(context.group_file.file.load())
        for table in (
            context.pop,
            context.delays,
            context.filters,
            context.request_modes,
            context.set_aside,
            context.once,
        ):
            table.load()

    async def stop(self) -> None:
        """Leave the routes, answer what was accepted, put everything on the disk, and close."""
        context = self.context
        if self.exporter is not None:
            self.exporter.is_serving = False
        await context.name_servers.stop()
        await context.registration.stop()
        if context.table_copies is not None:
            await context.table_copies.stop()
        for work in self._upkeep:
            work.stop()
        context.topic_retention.stop()
        await context.pop.stop()
        await context.delays.stop()
        await context.timers.stop()
        await context.transactions.stop()
        if self._has_store:
            context.store.writer.open(is_open=False)
            await context.store.flusher.wait_flushed(
                context.store.log.max_offset
            )  # sends that wait are answered
        if context.ha_client is not None:
            await context.ha_client.stop()
        if context.ha_server is not None:
            await context.ha_server.stop()
        context.held_pulls.stop()
        context.clients.stop()
        for server in (self.server, self.fast_server):
            server.on_closed.clear()
        if self._is_started:
            self._is_started = False
            go_away_s = context.settings.broker.go_away_s
            await asyncio.gather(
                *(each.stop(go_away_s=go_away_s) for each in (self.server, self.fast_server))
            )
        if self.exporter is not None:
            await self.exporter.stop()
        await self._close_store()
        await self.client.stop()
        self._ports.release()
        context.worker.shutdown()

    async def _close_store(self) -> None:
        if not self._has_store:
            return
        self._has_store = False
        context = self.context
        context.filters.save()
        await context.pop.save_all()
        await context.delays.save()
        await context.once.save()
        await context.set_aside.stop()
        await context.files.stop()
        if not await context.store.stop():
            log.error("the store %s could not be left in order", context.settings.store.root)
