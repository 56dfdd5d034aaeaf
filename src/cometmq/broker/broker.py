"""A running broker: its store and tables behind two ports, announced to its name servers.

Life in three steps: settings (given), build (`Broker(…)`, which takes the ports), `start`, which recovers the
store; at the end `stop`. The fast port serves everything but pulls, so that sends do not queue up behind
them.
"""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from typing import Final

import msgspec

from cometmq.broker.cluster.addresses import announced, resolve_host
from cometmq.broker.config import BrokerConfig
from cometmq.broker.context import BrokerState
from cometmq.broker.handlers import HANDLERS
from cometmq.broker.monitor.exporter import BrokerExporter
from cometmq.broker.monitor.runtime_info import SAMPLE_S
from cometmq.broker.monitor.statistics import SAMPLE_S as STATISTICS_S
from cometmq.broker.ports import HeldPorts
from cometmq.broker.pull.slow_groups import disable_slow_groups
from cometmq.broker.saved_tables import Periodic
from cometmq.broker.send.exactly_once import SAVE_S as ONCE_S
from cometmq.broker.start_checks import refuse_settings, refuse_store
from cometmq.model.errors import StoreError
from cometmq.model.message import Host
from cometmq.ports.clock import Clock, SystemClock
from cometmq.ports.disk import Disk, SystemDisk
from cometmq.remoting.client import RemotingClient
from cometmq.remoting.descriptor_shares import shares
from cometmq.remoting.handler import HandlerTable
from cometmq.remoting.open_ports import warn_if_open
from cometmq.remoting.server import RemotingServer
from cometmq.remoting.server_settings import ServerSettings
from cometmq.store.config import StoreConfig
from cometmq.store.directory import room_advice
from cometmq.store.message_store import MessageStore
from cometmq.wire.codes import RequestCode
from cometmq.wire.record.ids import pack_host

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
"""How often groups that are far behind are looked for."""


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
        self._ports = HeldPorts(config.bind_address, config.listen_port)
        try:
            self.port = self._ports.main
            self.fast_port = self._ports.fast
            config = msgspec.structs.replace(config, listen_port=self.port)
            store_config = msgspec.structs.replace(
                store_config, ha_listen_port=store_config.ha_listen_port or self.port + 1
            )
            memory = physical_memory()
            host = Host(resolve_host("brokerIP1", config.broker_ip1), self.port)
            store = MessageStore(disk, clock, store_config, pack_host(host), memory_bytes=memory)
            self.client = RemotingClient(tls=settings.client_tls(enabled=config.use_tls))
            self.state = BrokerState(
                config,
                settings,
                store_config,
                store,
                disk=disk,
                clock=clock,
                remoting=self.client,
                address=announced(config.broker_ip1, self.port),
                host=host,
                memory_bytes=memory,
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
            main.add_handlers(family(self.state))
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
        for server in (self.server, self.fast_server):
            server.on_closed.append(self.state.connection_closed)
        self.exporter: BrokerExporter | None = None
        if config.metrics_exporter_type == "PROM":
            self.exporter = BrokerExporter(
                self.state,
                self.server.metrics,
                self.fast_server.metrics,
                host=config.metrics_prom_exporter_host or config.bind_address,
                port=config.metrics_prom_exporter_port,
            )

    def _periodic_work(self) -> list[Periodic]:
        state = self.state
        offsets_s = state.config.flush_consumer_offset_interval / 1000
        delays_s = max(min(state.store_config.flush_delay_offset_interval, 1000), 100) / 1000
        return [
            Periodic(10, offsets_s, state.save_offsets, "saving consumer offsets"),
            Periodic(10, 10, state.save_filters, "saving consumer filters"),
            Periodic(10, 10, state.pop.save, "saving what is popped in order"),
            Periodic(ONCE_S, ONCE_S, state.once.save_soon, "saving lanes of exactly-once writers"),
            Periodic(1, delays_s, state.delays.save_soon, "saving delay offsets"),
            Periodic(10, 10, state.clients.remove_silent, "looking for clients that are gone"),
            Periodic(5, 5, state.broadcast_offsets.commit, "committing offsets of broadcast groups"),
            Periodic(SLOW_S, SLOW_S, partial(disable_slow_groups, state), "looking for slow groups"),
            Periodic(SAMPLE_S, SAMPLE_S, state.rates.sample, "measuring rates"),
            Periodic(STATISTICS_S, STATISTICS_S, state.statistics.sample, "taking statistics"),
            Periodic(LOCK_UPKEEP_S, LOCK_UPKEEP_S, state.locks.remove_expired, "removing expired locks"),
        ]

    @property
    def address(self) -> str:
        return self.state.address

    async def start(self) -> None:
        """Recover the store, listen, and announce the broker; what fails leaves nothing running."""
        try:
            await self._start()
        except OSError as error:
            await self.stop()
            root, advice = (
                self.state.store_config.root,
                room_advice(self.state.disk, self.state.store_config, error),
            )
            raise StoreError(f"the broker with the store {root} cannot start: {error}{advice}") from error
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        state = self.state
        if self.exporter is not None:
            await self.exporter.start()  # who asks meanwhile is told that the store is being recovered
        await asyncio.get_running_loop().run_in_executor(
            state.worker, refuse_store, state.disk, state.store_config
        )
        await state.store.start()
        self._has_store = True
        state.statistics.start()
        await asyncio.get_running_loop().run_in_executor(state.worker, state.load_tables)
        state.delays.start()
        await state.timers.start()
        await state.transactions.start()
        await state.pop.start()
        for work in self._upkeep:
            work.start()
        await self.server.start()
        await self.fast_server.start()
        log.info("%s; at most %d queue files are mapped", shares(), state.store.queues.open_files.limit)
        self._ports.release()
        self._is_started = True
        ports = (self.port, self.fast_port)
        what = "messages, topics, groups and settings can be read, changed and deleted"
        warn_if_open(log, what, state.config.bind_address, ports, "bindAddress")
        state.registration.start()
        await state.registration.settled(FIRST_REGISTRATION_S)
        if self.exporter is not None:
            self.exporter.is_serving = True

    async def stop(self) -> None:
        """Leave the routes, answer what was accepted, put everything on the disk, and close."""
        state = self.state
        if self.exporter is not None:
            self.exporter.is_serving = False
        await state.registration.stop()
        for work in self._upkeep:
            work.stop()
        await state.pop.stop()
        await state.delays.stop()
        await state.timers.stop()
        await state.transactions.stop()
        if self._has_store:
            state.store.writer.open(is_open=False)
            await state.store.flusher.wait_flushed(state.store.log.max_offset)  # sends that wait are answered
        state.held_pulls.stop()
        state.clients.stop()
        for server in (self.server, self.fast_server):
            server.on_closed.clear()
        if self._is_started:
            self._is_started = False
            config = state.config
            go_away_s = config.shutdown_wait_time_seconds if config.enable_shutdown_gracefully else 0
            await asyncio.gather(
                *(each.stop(go_away_s=go_away_s) for each in (self.server, self.fast_server))
            )
        if self.exporter is not None:
            await self.exporter.stop()
        await self._close_store()
        await self.client.stop()
        self._ports.release()
        state.worker.shutdown()

    async def _close_store(self) -> None:
        if not self._has_store:
            return
        self._has_store = False
        await self.state.save_everything()
        if not await self.state.store.stop():
            log.error("the store %s could not be left in order", self.state.store_config.root)


def physical_memory() -> int:
    """The memory of this machine in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
