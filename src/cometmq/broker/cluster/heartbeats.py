"""Broker heartbeats to the name servers, between the registrations.

Rules kept here:
- With `enableSlaveActingMaster` a broker is announced as one that is gone when nothing was heard of it for
  `brokerNotActiveTimeoutMillis`, which is less than the time between two registrations; so every
  `brokerHeartbeatInterval` each name server gets a heartbeat. Without it there are none, as with Apache.
- A heartbeat is a question for the version of the topics, which name servers before 5.0 understand, too; with
  `compatibleWithOldNameSrv=false` it is BROKER_HEARTBEAT, which nobody answers.
- A name server that answers that it does not know the broker is told everything at once.
- A heartbeat that fails is not repeated: the next one follows; `registration` says who cannot be reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from cometmq.broker.settings import Settings
from cometmq.broker.topics.topics import Topics
from cometmq.model.errors import CometError
from cometmq.remoting.client import CALL_TIMEOUT_S, RemotingClient
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.namesrv import BrokerHeartbeatRequest, QueryDataVersionRequest


class BrokerHeartbeats:
    """Sends heartbeats of one broker; belongs to the event loop."""

    def __init__(
        self,
        settings: Settings,
        address: str,
        remoting: RemotingClient,
        topics: Topics,
        register: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._address = address
        self._remoting = remoting
        self._topics = topics
        self._register = register
        self._timer: asyncio.TimerHandle | None = None
        self._under_way: dict[str, asyncio.Task[None]] = {}
        """By address; there is at most one to each name server."""

    def start(self) -> None:
        """Send from now on, if the settings ask for it; called again when they have changed."""
        if self._timer is None and self._settings.broker.enable_slave_acting_master:
            self._schedule()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for task in self._under_way.values():
            task.cancel()

    def _schedule(self) -> None:
        delay_s = self._settings.broker.broker_heartbeat_interval / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._beat)

    def _beat(self) -> None:
        self._timer = None
        config = self._settings.broker
        if not config.enable_slave_acting_master:
            return
        self._schedule()
        for address in config.namesrv_addresses:
            if address not in self._under_way:  # one that is slow gets the next one when it has answered
                self._under_way[address] = asyncio.get_running_loop().create_task(self._send_one(address))

    async def _send_one(self, address: str) -> None:
        try:
            await self._send(address)
        finally:
            del self._under_way[address]

    async def _send(self, address: str) -> None:
        config = self._settings.broker
        timeout_s = config.send_heartbeat_timeout_millis / 1000
        try:
            if not config.compatible_with_old_name_srv:
                heartbeat = BrokerHeartbeatRequest(
                    cluster_name=config.broker_cluster_name,
                    broker_addr=self._address,
                    broker_name=config.broker_name,
                    broker_id=config.broker_id,
                )
                await self._remoting.oneway(
                    address, RequestCode.BROKER_HEARTBEAT, heartbeat, timeout_s=timeout_s
                )
                return
            answer = await self.query_data_version(address, timeout_s)
        except CometError:
            return
        if not answer.body:
            self._register()

    async def query_data_version(self, address: str, timeout_s: float = CALL_TIMEOUT_S) -> Command:
        """Ask a name server whether it knows the topics as they are; it learns that this broker lives."""
        config = self._settings.broker
        header = QueryDataVersionRequest(
            broker_name=config.broker_name,
            broker_addr=self._address,
            cluster_name=config.broker_cluster_name,
            broker_id=config.broker_id,
        )
        body = msgspec.json.encode(self._topics.data_version)
        code = RequestCode.QUERY_DATA_VERSION
        return await self._remoting.call_ok(address, code, header, body=body, timeout_s=timeout_s)
