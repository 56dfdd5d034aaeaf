"""Heartbeats: register this client and its groups with brokers.

Rules kept here:
- Masters get the heartbeats of every client, replicas only of one with a consumer, because nobody sends to a
  replica.
- A failure is logged; the next heartbeat tries again.
- Short (v2) heartbeats go only to a broker that supports them and has confirmed the current subscriptions on
  this connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cometmq.client.instance.routes import Routes
from cometmq.model.errors import CometError
from cometmq.model.route import MASTER_ID
from cometmq.remoting.client import RemotingClient
from cometmq.wire.bodies.heartbeat import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    encode_heartbeat,
    heartbeat_fingerprint,
    short_heartbeat,
)
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.session import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from cometmq.client.instance.members import GroupMember

log = logging.getLogger("cometmq.client")


@dataclass(eq=False, repr=False)
class Heartbeats:
    """Sends the heartbeats of one client instance."""

    _client_id: str
    _remoting: RemotingClient
    _routes: Routes
    _members: Callable[[], Collection[GroupMember]]
    _short_ones: bool
    _timeout_s: float
    _confirmed: dict[str, int] = field(default_factory=dict)
    """The confirmed fingerprint, by address."""
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    versions: dict[str, int] = field(default_factory=dict)
    """The version of each broker that has responded, by address."""

    async def send_to_all(self) -> None:
        """Send to all brokers; returns when all have responded or failed."""
        async with self._lock:  # the last one sent has to be the newest
            data = self._data()
            known = self._routes.broker_addresses().values()
            everywhere = {address for addresses in known for address in addresses.values()}
            for table in (self.versions, self._confirmed):
                for address in table.keys() - everywhere:
                    del table[address]
            wanted = [
                address
                for addresses in known
                for broker_id, address in addresses.items()
                if broker_id == MASTER_ID or data.consumer_data_set
            ]
            await asyncio.gather(*(self._send(address, data) for address in dict.fromkeys(wanted)))

    async def send_to(self, address: str) -> None:
        """Send to one broker."""
        async with self._lock:
            await self._send(address, self._data())

    def connection_lost(self, address: str) -> None:
        """Forget what the broker confirmed: it has forgotten this client."""
        self._confirmed.pop(address, None)

    def _data(self) -> HeartbeatData:
        entries = [member.heartbeat_entry() for member in self._members()]
        return HeartbeatData(
            self._client_id,
            tuple(entry for entry in entries if isinstance(entry, ProducerData)),
            tuple(entry for entry in entries if isinstance(entry, ConsumerData)),
        )

    async def _send(self, address: str, data: HeartbeatData) -> None:
        if not data.producer_data_set and not data.consumer_data_set:
            return
        try:
            if self._short_ones:
                await self._send_v2(address, data)
            else:
                await self._exchange(address, data)
        except CometError as error:
            log.info("the heartbeat to %s failed: %s", address, error)

    async def _send_v2(self, address: str, data: HeartbeatData) -> None:
        fingerprint = heartbeat_fingerprint(data)
        if self._confirmed.get(address) == fingerprint:
            answer = await self._exchange(address, short_heartbeat(data, fingerprint))
            if not answer.is_sub_change:
                return
        full = HeartbeatData(data.client_id, data.producer_data_set, data.consumer_data_set, fingerprint)
        answer = await self._exchange(address, full)
        if answer.is_support_heart_beat_v2 and not answer.is_sub_change:
            self._confirmed[address] = fingerprint
        else:
            self._confirmed.pop(address, None)

    async def _exchange(self, address: str, data: HeartbeatData) -> HeartbeatResponse:
        answer = await self._remoting.call_ok(
            address,
            RequestCode.HEART_BEAT,
            HeartbeatRequest(),
            body=encode_heartbeat(data),
            timeout_s=self._timeout_s,
        )
        self.versions[address] = answer.version
        return answer.header(HeartbeatResponse)
