"""NOTIFY_MIN_BROKER_ID_CHANGE: tells brokers that the smallest id of their group has changed.

Rules kept here: one-way and bounded; a broker that misses its notice learns of the change by polling.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from cometmq.model.errors import CometError
from cometmq.namesrv.tables import MinIdChange
from cometmq.remoting.client import RemotingClient
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.namesrv import NotifyMinBrokerIdChangeRequest

log = logging.getLogger("cometmq.namesrv")

_TIMEOUT_S: Final = 0.3
_MAX_UNDER_WAY: Final = 1_000


class MinIdNotices:
    """Sends the notices."""

    def __init__(self, client: RemotingClient) -> None:
        self._client = client
        self._under_way: set[asyncio.Task[None]] = set()

    def send(self, change: MinIdChange) -> None:
        """Notify all members, or all but the new smallest when that one has just come."""
        min_id = min(change.addresses)
        header = NotifyMinBrokerIdChangeRequest(
            min_broker_id=min_id,
            min_broker_addr=change.addresses[min_id],
            offline_broker_addr=change.offline_addr,
            ha_broker_addr=change.ha_server_addr,
        )
        everyone = change.offline_addr is not None or len(change.addresses) == 1
        for broker_id, address in change.addresses.items():
            if everyone or broker_id != min_id:
                self._start(address, header)

    def _start(self, address: str, header: NotifyMinBrokerIdChangeRequest) -> None:
        if len(self._under_way) >= _MAX_UNDER_WAY:
            log.warning("too many notices are under way; %s is not told", address)
            return
        task = asyncio.get_running_loop().create_task(self._send(address, header))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _send(self, address: str, header: NotifyMinBrokerIdChangeRequest) -> None:
        code = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
        try:
            await self._client.oneway(address, code, header, timeout_s=_TIMEOUT_S)
        except CometError as error:
            log.info("%s was not told of its group's new smallest id: %s", address, error)
