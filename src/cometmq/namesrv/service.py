"""A running name server: its port, and the watch over its brokers.

Lifecycle: `Namesrv(…)`, which reads the key-value file, `start`, `stop`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping

from cometmq.model.errors import SettingsError
from cometmq.namesrv.cluster_test import ClusterTestRouteHandlers, ProductionAddresses
from cometmq.namesrv.config import NamesrvConfig, NamesrvSettings
from cometmq.namesrv.handlers import HANDLERS
from cometmq.namesrv.handlers.route import RouteHandlers
from cometmq.namesrv.metrics import NamesrvExporter
from cometmq.namesrv.notices import MinIdNotices
from cometmq.namesrv.state import NamesrvState
from cometmq.ports.clock import Clock, SystemClock
from cometmq.ports.files import Files, SystemFiles
from cometmq.remoting.client import RemotingClient
from cometmq.remoting.connection import Connection
from cometmq.remoting.descriptor_shares import shares
from cometmq.remoting.handler import HandlerTable
from cometmq.remoting.open_ports import warn_if_open
from cometmq.remoting.server import RemotingServer

log = logging.getLogger("cometmq.namesrv")


class Namesrv:
    def __init__(
        self,
        config: NamesrvConfig,
        settings: NamesrvSettings | None = None,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        _check_paths(config)
        settings = settings or NamesrvSettings()
        self.client = RemotingClient(tls=settings.client_tls())
        self.state = NamesrvState(
            config,
            clock=clock or SystemClock(),
            files=files or SystemFiles(),
            notices=MinIdNotices(self.client),
        )
        self.state.kv.load()
        self.server = RemotingServer(
            host=config.bind_address,
            port=config.listen_port,
            handlers=self._handlers(config, settings, os.environ if environment is None else environment),
            limits=settings.limits(config),
            tls=settings.tls,
            backlog=config.server_socket_backlog,
        )
        self.server.on_closed.append(self._connection_closed)
        self.exporter: NamesrvExporter | None = None
        if settings.metrics_port is not None:
            self.exporter = NamesrvExporter(
                self.state, self.server.metrics, host=config.bind_address, port=settings.metrics_port
            )
        self._scan_timer: asyncio.TimerHandle | None = None

    def _handlers(
        self, config: NamesrvConfig, settings: NamesrvSettings, environment: Mapping[str, str]
    ) -> HandlerTable:
        table = HandlerTable()
        for family in HANDLERS:
            if family is RouteHandlers and config.cluster_test:
                addresses = ProductionAddresses(config, settings.product_env_namesrv_addr, environment)
                table.add_handlers(ClusterTestRouteHandlers(self.state, self.client, addresses))
            else:
                table.add_handlers(family(self.state))
        return table

    @property
    def port(self) -> int:
        return self.server.port

    async def start(self) -> None:
        """Listen, and begin to watch the brokers."""
        if self.exporter is not None:
            await self.exporter.start()
        await self.server.start()
        what = "routes, brokers and settings can be read, changed and deleted"
        warn_if_open(log, what, self.state.config.bind_address, (self.port,), "bindAddress")
        log.info("%s", shares())
        if self.exporter is not None:
            self.exporter.is_serving = True
        self._schedule_scan()

    async def stop(self) -> None:
        """Answer what was accepted, then close everything."""
        if self.exporter is not None:
            self.exporter.is_serving = False
        if self._scan_timer is not None:
            self._scan_timer.cancel()
            self._scan_timer = None
        self.server.on_closed.clear()  # brokers have not left because we stop
        await self.server.stop(go_away_s=self.state.config.go_away_s)
        await self.client.stop()
        if self.exporter is not None:
            await self.exporter.stop()

    # The watch.

    def _schedule_scan(self) -> None:
        seconds = max(self.state.config.scan_not_active_broker_interval, 1) / 1000
        self._scan_timer = asyncio.get_running_loop().call_later(seconds, self._scan)

    def _scan(self) -> None:
        self._schedule_scan()
        self.remove_silent_brokers()

    def remove_silent_brokers(self) -> None:
        """Remove the brokers that were silent for too long, and close their connections."""
        state = self.state
        for key, live in state.tables.expired(state.clock.monotonic_ms()):
            left = state.tables.leaving(key)
            if isinstance(live.channel, Connection):
                live.channel.close("broker expired", abort=True)
            if left is not None:
                state.remove([left], f"silent for more than {live.timeout_ms} ms")

    def _connection_closed(self, connection: Connection) -> None:
        """Remove the brokers of a connection, unless they have registered on another since."""
        state = self.state
        gone = [left for key in state.tables.brokers_of(connection) if (left := state.tables.leaving(key))]
        if gone:
            state.remove(gone, f"its connection ended ({connection.close_reason})")


def _check_paths(config: NamesrvConfig) -> None:
    paths = {"kvConfigPath": config.kv_config_path, "configStorePath": config.config_store_path}
    for key, path in paths.items():
        if not path:
            raise SettingsError(f"{key} is empty; name the file in which changes by request are kept")
